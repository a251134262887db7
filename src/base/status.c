/* src/base/status.c - how a function says that it failed, and with which words. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = sizeof((lm_error *)0)->text, LONG = 3 * TEXT + 4096 /* two paths fit */ };

/* Of a sentence that is too long, for the paths in it, the middle is left out: what is wrong stands at its end. */
static void put_text(char out[TEXT], const char *all)
{
  static const char gap[] = " ... ";
  size_t length = strlen(all), head = TEXT / 4;
  if (length < TEXT) {
    memcpy(out, all, length + 1);
    return;
  }
  while (head > 0 && ((unsigned char)all[head] & 0xc0) == 0x80) head--; /* characters stay whole */
  const char *tail = all + length - (TEXT - sizeof gap - head);
  while (((unsigned char)*tail & 0xc0) == 0x80) tail++;
  snprintf(out, TEXT, "%.*s%s%s", (int)head, all, gap, tail);
}

lm_status(lm_fail)(lm_error *err, lm_status s, const char *format, ...)
{
  char all[LONG];
  if (err == NULL) return s;
  *err = (lm_error){.status = s, .rank = -1};
  va_list args;
  va_start(args, format);
  if (vsnprintf(all, sizeof all, format, args) < 0) all[0] = '\0';
  va_end(args);
  put_text(err->text, all);
  return s;
}

lm_status lm_fail_in(lm_error *err, lm_status s, const char *format, ...)
{
  char all[LONG + TEXT];
  if (err == NULL) return s;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(all, LONG, format, args);
  va_end(args);
  size_t at = n < 0 ? 0 : n < LONG ? (size_t)n : LONG - 1;
  snprintf(all + at, sizeof all - at, ": %s", err->text);
  put_text(err->text, all);
  return s;
}

int lm_exit_code(lm_status s)
{
  switch (s) {
  case LM_OK: return 0;
  case LM_EINVAL: return 2;
  case LM_STOPPED: return 75;
  case LM_NO_PROGRESS: return 76;
  default: return 1;
  }
}

void lm_assert_failed(const char *cond, const char *file, int line)
{
  fprintf(stderr, "mpilm: bug at %s:%d: %s does not hold\n", file, line, cond);
  abort();
}
