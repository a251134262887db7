/* tests/fuzz/libfuzzer.c - the entry for clang's libFuzzer; MPILM_FUZZ names the reader. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* With MPILM_FUZZ_SEEDS=FOLDER the good inputs are written there first. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc, (void)argv;
  const char *name = getenv("MPILM_FUZZ"), *folder = getenv("MPILM_FUZZ_SEEDS");
  for (target = fuzz_targets; target->name != NULL && (name == NULL || strcmp(name, target->name) != 0);) target++;
  if (target->name == NULL) {
    fprintf(stderr, "MPILM_FUZZ names no reader; these are there:\n");
    for (target = fuzz_targets; target->name != NULL; target++) fprintf(stderr, "%s\n", target->name);
    exit(2);
  }
  for (const fuzz_seed *s = target->seeds; folder != NULL && s->bytes != NULL; s++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/seed-%d", folder, (int)(s - target->seeds));
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(s->bytes, 1, s->n, f) != s->n || fclose(f) != 0) exit(2);
  }
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
  target->run(bytes, n);
  return 0;
}
