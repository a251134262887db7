/* tests/data/single_source.h - a run's data where there is one dataset: for tests. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_SINGLE_SOURCE_H
#define LM_TESTS_SINGLE_SOURCE_H

#include "batch/sources.h"

struct single_source {
  lm_sources sources;
  lm_mixture mixture;
};

static inline lm_status single_source_open(struct single_source *out, const char *path, int T, lm_error *err)
{
  const lm_list one = {1, (const char *[]){path}};
  *out = (struct single_source){0};
  LM_TRY(lm_sources_open(&out->sources, &one, T, err));
  return lm_sources_mix(&out->sources, &out->mixture, 0, err);
}

static inline void single_source_close(struct single_source *s)
{
  lm_mixture_free(&s->mixture);
  lm_sources_close(&s->sources);
}

#endif
