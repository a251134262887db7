/* kernels/ref/memory.c - memory of the host, and conversions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"

#include "kernels/ref/ref.h"

#include <stdlib.h>
#include <string.h>

lm_status lm_alloc_ref(void **out, size_t bytes, const char *what, lm_error *err)
{
  return lm_alloc(out, bytes, 1, what, err);
}

void lm_release_ref(void *p)
{
  free(p);
}

void lm_zero_ref(void *p, size_t bytes)
{
  if (bytes > 0) memset(p, 0, bytes);
}

void lm_copy_ref(void *to, const void *from, size_t bytes)
{
  if (bytes > 0) memcpy(to, from, bytes);
}

void lm_cast_ref(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n)
{
  for (size_t i = 0; i < n; i++) lm_ref_store(to, y, i, lm_ref_load(from, x, i));
}
