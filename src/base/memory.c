/* src/base/memory.c - memory that fails with words, and byte buffers that grow. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

void *lm_reserve(size_t bytes)
{
  enum { HUGE_PAGE = 2 << 20, LARGE = 4 * HUGE_PAGE };
  void *p;
  if (bytes > SIZE_MAX / 2 || posix_memalign(&p, bytes < LARGE ? 64 : HUGE_PAGE, bytes == 0 ? 64 : bytes) != 0)
    return NULL;
#ifdef MADV_HUGEPAGE
  /* Where the system has no huge pages, the memory is as good without. */
  if (bytes >= LARGE) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

/* Touching memory for the first time is slow, and all threads may share it; on a machine with several sockets it then
 * lies near who uses it. */
static void zero(char *p, size_t bytes)
{
  enum { PIECE = 8 << 20 };
#pragma omp parallel for schedule(static) if (bytes > 8 * (size_t)PIECE)
  for (size_t at = 0; at < bytes; at += PIECE) memset(p + at, 0, bytes - at < PIECE ? bytes - at : PIECE);
}

lm_status lm_alloc(void *out, size_t count, size_t size, const char *what, lm_error *err)
{
  void *p = NULL;
  size_t bytes;
  *(void **)out = NULL;
  if (__builtin_mul_overflow(count, size, &bytes) || (p = lm_reserve(bytes)) == NULL)
    return lm_fail(err, LM_ENOMEM, "no memory for %s (%zu x %zu bytes)", what, count, size);
  zero(p, bytes);
  *(void **)out = p;
  return LM_OK;
}

void lm_copy_far(void *to, const void *from, size_t bytes)
{
  size_t at = 0;
#ifdef __SSE2__
  enum { WIDTH = sizeof(__m128i) };
  char *out = to;
  const char *in = from;
  at = bytes < WIDTH ? bytes : (size_t)(-(uintptr_t)to % WIDTH);
  if (at > 0) memcpy(out, in, at);
  for (; bytes - at >= WIDTH; at += WIDTH)
    _mm_stream_si128((__m128i *)(void *)(out + at), _mm_loadu_si128((const __m128i *)(const void *)(in + at)));
  _mm_sfence();
#endif
  if (at < bytes) memcpy((char *)to + at, (const char *)from + at, bytes - at);
}

lm_status lm_grow(void *data, size_t *capacity, size_t need, size_t size, lm_error *err)
{
  void *old, *grown;
  if (need <= *capacity) return LM_OK;
  size_t wanted = need + need / 2 + 16, bytes;
  memcpy(&old, data, sizeof old);
  if (__builtin_mul_overflow(wanted, size, &bytes) || (grown = realloc(old, bytes)) == NULL)
    return lm_fail(err, LM_ENOMEM, "no memory for %zu more entries of %zu bytes", wanted - *capacity, size);
  memcpy(data, &grown, sizeof grown);
  *capacity = wanted;
  return LM_OK;
}

lm_status lm_buffer_reserve(lm_buffer *b, size_t extra, lm_error *err)
{
  if (extra > SIZE_MAX / 4 - b->size) return lm_fail(err, LM_ENOMEM, "no memory for %zu more bytes", extra);
  size_t need = b->size + extra + 1;
  if (need <= b->capacity) return LM_OK;
  size_t capacity = b->capacity * 2 > need ? b->capacity * 2 : need;
  char *data = realloc(b->data, capacity);
  if (data == NULL) return lm_fail(err, LM_ENOMEM, "no memory for a buffer of %zu bytes", capacity);
  b->data = data;
  b->capacity = capacity;
  return LM_OK;
}

lm_status lm_buffer_append(lm_buffer *b, const void *bytes, size_t n, lm_error *err)
{
  LM_TRY(lm_buffer_reserve(b, n, err));
  if (n > 0) memcpy(b->data + b->size, bytes, n);
  b->size += n;
  b->data[b->size] = '\0';
  return LM_OK;
}

lm_status lm_buffer_printf(lm_buffer *b, lm_error *err, const char *format, ...)
{
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  lm_status s = n < 0 ? lm_fail(err, LM_EINVAL, "cannot format '%s'", format) : lm_buffer_reserve(b, (size_t)n, err);
  if (s == LM_OK) {
    vsnprintf(b->data + b->size, (size_t)n + 1, format, again);
    b->size += (size_t)n;
  }
  va_end(again);
  return s;
}

void lm_buffer_free(lm_buffer *b)
{
  free(b->data);
  *b = (lm_buffer){0};
}
