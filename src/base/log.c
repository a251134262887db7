/* src/base/log.c - messages for people, on stderr. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static struct {
  int rank, size;
  bool verbose;
  char host[64];
} who = {.rank = 0, .size = 1};

void lm_log_init(int rank, int size, const char *host)
{
  who.rank = rank;
  who.size = size;
  snprintf(who.host, sizeof who.host, "%s", host);
}

void lm_log_verbose(bool on)
{
  who.verbose = on;
}

/* One write a line: lines of several ranks that share a terminal must not mix. */
static void LM_PRINTF(2, 0) say(const char *prefix, const char *format, va_list args)
{
  char line[2048];
  int n = snprintf(line, sizeof line, "%s", prefix);
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
  size_t end = (size_t)n + (m < 0 ? 0 : (size_t)m);
  if (end > sizeof line - 2) end = sizeof line - 2;
  line[end] = '\n';
  fwrite(line, 1, end + 1, stderr);
}

void lm_info(const char *format, ...)
{
  if (who.rank != 0) return;
  va_list args;
  va_start(args, format);
  say("", format, args);
  va_end(args);
}

void lm_verbose(const char *format, ...)
{
  if (who.rank != 0 || !who.verbose) return;
  va_list args;
  va_start(args, format);
  say("", format, args);
  va_end(args);
}

void lm_warn(const char *format, ...)
{
  if (who.rank != 0) return;
  va_list args;
  va_start(args, format);
  say("warning: ", format, args);
  va_end(args);
}

void lm_warn_all(const char *format, ...)
{
  char prefix[96];
  snprintf(prefix, sizeof prefix, "[rank %d %s] warning: ", who.rank, who.host);
  va_list args;
  va_start(args, format);
  say(prefix, format, args);
  va_end(args);
}

void lm_log_error(const lm_error *err)
{
  if (who.rank != 0) return;
  if (who.size > 1 && err->rank >= 0)
    fprintf(stderr, "mpilm: [rank %d %s] %s\n", err->rank, err->host, err->text);
  else
    fprintf(stderr, "mpilm: %s\n", err->text);
}
