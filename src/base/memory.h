/* src/base/memory.h - memory that fails with words, and byte buffers that grow. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_MEMORY_H
#define LM_BASE_MEMORY_H

#include "base/status.h"
#include <stdint.h>

/** bytes of memory that nobody has touched, aligned to 64 bytes (a cache line, an AVX-512 register); large blocks in
 * huge pages where the system grants them. Local. NULL where there is none. Free with free(). */
void *lm_reserve(size_t bytes);

/** count zeroed elements of size bytes, aligned as lm_reserve() does. Local.
 *  @param what names the memory in the error: "the moments of 124439808 parameters"
 *  @return LM_OK or LM_ENOMEM (also where count * size overflows); *out is NULL after a failure. Free with free(). */
lm_status lm_alloc(void *out, size_t count, size_t size, const char *what, lm_error *err) LM_NODISCARD;

/** As memcpy() of what will not be read soon: where the CPU can, stores go past the caches, which need not read the lines
 *  first and keep what they hold. Local. */
void lm_copy_far(void *to, const void *from, size_t bytes);

/** Make room for `need` elements of `size` bytes in the growing array that *(T **)data points to. Local.
 *  @param[in,out] capacity  in elements; 0 where *data is NULL @return LM_OK or LM_ENOMEM. Free with free(). */
lm_status lm_grow(void *data, size_t *capacity, size_t need, size_t size, lm_error *err) LM_NODISCARD;

/** A growable run of bytes. Zero-initialise it; free with lm_buffer_free(). */
typedef struct lm_buffer {
  char *data; /* data[size] is always a readable 0 once something was appended */
  size_t size, capacity;
} lm_buffer;

/** Make room for extra more bytes. Local. LM_OK or LM_ENOMEM. */
lm_status lm_buffer_reserve(lm_buffer *b, size_t extra, lm_error *err) LM_NODISCARD;
lm_status lm_buffer_append(lm_buffer *b, const void *bytes, size_t n, lm_error *err) LM_NODISCARD;
lm_status lm_buffer_printf(lm_buffer *b, lm_error *err, const char *format, ...) LM_PRINTF(3, 4) LM_NODISCARD;
void lm_buffer_free(lm_buffer *b);

#endif
