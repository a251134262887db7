/* tests/base/test_memory.c - copies past the caches are copies. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"
#include "tests/tap.h"

#include <string.h>

enum { ROOM = 400, MOST = 160 };

/* Of `bytes` bytes from place `from` to place `to`; nothing beside them changes. */
static bool copied(size_t to, size_t from, size_t bytes)
{
  unsigned char source[ROOM], got[ROOM], want[ROOM];
  for (int i = 0; i < ROOM; i++) {
    source[i] = (unsigned char)(7 * i + 1);
    got[i] = want[i] = (unsigned char)(255 - i);
  }
  memcpy(want + to, source + from, bytes);
  lm_copy_far(got + to, source + from, bytes);
  return memcmp(got, want, ROOM) == 0;
}

int main(int argc, char **argv)
{
  lm_comm world;
  tap_begin(&world, argc, argv);
  int wrong = 0;
  for (size_t to = 64; to < 64 + 17; to++)
    for (size_t from = 0; from < 17; from++)
      for (size_t bytes = 0; bytes <= MOST; bytes++) wrong += !copied(to, from, bytes);
  tap_ok(wrong == 0, "lm_copy_far copies 0 to %d bytes between any places, and nothing else: %d times not", MOST,
         wrong);
  return tap_end();
}
