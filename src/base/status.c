/* src/base/status.c - how a function says that it failed, and with which words. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lm_status(lm_fail)(lm_error *err, lm_status s, const char *format, ...)
{
  if (err == NULL) return s;
  *err = (lm_error){.status = s, .rank = -1};
  va_list args;
  va_start(args, format);
  vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  return s;
}

lm_status lm_fail_in(lm_error *err, lm_status s, const char *format, ...)
{
  if (err == NULL) return s;
  char old[sizeof err->text];
  memcpy(old, err->text, sizeof old);
  va_list args;
  va_start(args, format);
  int n = vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof err->text) snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
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
