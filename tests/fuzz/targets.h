/* tests/fuzz/targets.h - the readers of files that others make, each fed with bytes that may be anything. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_FUZZ_TARGETS_H
#define LM_TESTS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_seed {
  const char *bytes;
  size_t n;
} fuzz_seed;

typedef struct fuzz_target {
  const char *name;
  void (*run)(const uint8_t *bytes, size_t n); /* must come back, whatever the bytes are */
  const fuzz_seed *seeds;                      /* good inputs to start from; ends with NULL */
} fuzz_target;

extern const fuzz_target fuzz_targets[]; /* ends with a name of NULL */

#endif
