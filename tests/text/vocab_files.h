/* tests/text/vocab_files.h - small vocabulary files for tests, and a merge that is as plain as its definition. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_TEXT_VOCAB_FILES_H
#define LM_TESTS_TEXT_VOCAB_FILES_H

#include "text/vocab.h"

/** Write a file into the current folder; it is removed by remove_file(). Local. */
void write_file(const char *path, const char *text, size_t n);
void remove_file(const char *path);

/** The ids of a text, in words "1 2 3", "error: ..." where encoding failed. Local. Valid until the next call. */
const char *ids_of(const lm_vocab *v, const char *text, size_t n, bool specials);

/** ids -> bytes are those of text? Local. */
bool decodes_to(const lm_vocab *v, const lm_ids *ids, const char *text, size_t n);

/** A linear congruential generator (Numerical Recipes): the upper bits are good enough for tests. Local. */
static inline uint32_t draw(uint32_t *state, uint32_t below)
{
  *state = *state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)*state * below) >> 32);
}

#endif
