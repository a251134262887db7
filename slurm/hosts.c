/* slurm/hosts.c - Slurm's short forms of node names and of tasks per node. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "slurm/hosts.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slurm itself has at most 65533 nodes; a list that says more is a mistake, not a cluster. */
enum { MAX_NODES = 1 << 20, MAX_NAME = 256, MAX_DIGITS = 15 };

struct names {
  const char *list; /* for the error */
  lm_buffer *out;
  size_t count;
  char name[MAX_NAME];
};

static lm_status wrong(const char *list, const char *what, lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "the node list '%.300s' %s; want the form node[01-03,07],other", list, what);
}

/* Digits and their value; *digits is how many, leading zeros included. */
static bool read_number(const char **at, uint64_t *value, int *digits)
{
  const char *begin = *at;
  for (*value = 0; isdigit((unsigned char)**at) && *at - begin < MAX_DIGITS; (*at)++)
    *value = *value * 10 + (uint64_t)(**at - '0');
  *digits = (int)(*at - begin);
  return *digits > 0 && !isdigit((unsigned char)**at);
}

static lm_status emit(struct names *n, size_t length, const char *at, lm_error *err);

/* "01-03" or "7", with `rest` behind the bracket. The first number's width is that of all: 08-11 is 08 09 10 11. */
static lm_status expand_range(struct names *n, size_t length, const char **at, const char *rest, lm_error *err)
{
  uint64_t first, last;
  int digits, ignored;
  if (!read_number(at, &first, &digits)) return wrong(n->list, "has something else than a number in brackets", err);
  last = first;
  if (**at == '-') {
    (*at)++;
    if (!read_number(at, &last, &ignored)) return wrong(n->list, "has a range without an end", err);
  }
  if (last < first) return wrong(n->list, "has a range that runs backwards", err);
  if (last - first >= MAX_NODES) return wrong(n->list, "has too many names", err);
  for (uint64_t i = first; i <= last; i++) {
    int written = snprintf(n->name + length, sizeof n->name - length, "%0*llu", digits, (unsigned long long)i);
    if (written < 0 || (size_t)written >= sizeof n->name - length) return wrong(n->list, "has too long a name", err);
    LM_TRY(emit(n, length + (size_t)written, rest, err));
  }
  return LM_OK;
}

static lm_status expand_bracket(struct names *n, size_t length, const char *at, lm_error *err)
{
  const char *close = strchr(at, ']');
  if (close == NULL) return wrong(n->list, "has a bracket that does not close", err);
  for (at++;; at++) {
    LM_TRY(expand_range(n, length, &at, close + 1, err));
    if (at == close) return LM_OK;
    if (*at != ',') return wrong(n->list, "has something else than numbers in brackets", err);
  }
}

/* name[0..length) is settled; `at` is what follows it, up to a comma or the end. */
static lm_status emit(struct names *n, size_t length, const char *at, lm_error *err)
{
  for (; *at != '\0' && *at != ','; at++) {
    if (*at == '[') return expand_bracket(n, length, at, err);
    if (!isalnum((unsigned char)*at) && strchr("-_.", *at) == NULL)
      return wrong(n->list, "has a character that no name has", err);
    if (length + 1 >= sizeof n->name) return wrong(n->list, "has too long a name", err);
    n->name[length++] = *at;
  }
  if (length == 0) return wrong(n->list, "has an empty name", err);
  if (++n->count > MAX_NODES) return wrong(n->list, "has too many names", err);
  LM_TRY(lm_buffer_append(n->out, n->name, length, err));
  return lm_buffer_append(n->out, "\n", 1, err);
}

/* The next comma outside of brackets, or the end. */
static const char *next_name(const char *at)
{
  for (int depth = 0; *at != '\0' && (*at != ',' || depth > 0); at++) depth += (*at == '[') - (*at == ']');
  return at;
}

lm_status lm_hosts_expand(const char *list, lm_buffer *out, size_t *count, lm_error *err)
{
  struct names n = {.list = list, .out = out};
  size_t before = out->size;
  *count = 0;
  for (const char *at = list;; at++) {
    lm_status s = emit(&n, 0, at, err);
    if (s != LM_OK) {
      out->size = before;
      return s;
    }
    at = next_name(at);
    if (*at == '\0') break;
  }
  *count = n.count;
  return LM_OK;
}

/* "2(x3)" or "2": so many tasks on each of so many nodes. */
static bool read_repeat(const char **at, uint64_t *tasks, uint64_t *times)
{
  int digits;
  *times = 1;
  if (!read_number(at, tasks, &digits) || *tasks > UINT32_MAX) return false;
  if (**at == '\0' || **at == ',') return true;
  if ((*at)[0] != '(' || (*at)[1] != 'x') return false;
  *at += 2;
  if (!read_number(at, times, &digits) || *times == 0 || **at != ')') return false;
  (*at)++;
  return **at == '\0' || **at == ',';
}

lm_status lm_tasks_expand(const char *text, uint32_t **out, size_t *count, lm_error *err)
{
  size_t capacity = 0;
  uint64_t tasks, times;
  lm_status s = LM_OK;
  *out = NULL;
  *count = 0;
  for (const char *at = text; s == LM_OK; at++) {
    if (!read_repeat(&at, &tasks, &times) || times > MAX_NODES - *count)
      s = lm_fail(err, LM_EINVAL, "the tasks per node '%.300s' are not of the form 2(x3),1", text);
    if (s == LM_OK) s = lm_grow(out, &capacity, *count + times, sizeof **out, err);
    for (uint64_t i = 0; s == LM_OK && i < times; i++) (*out)[(*count)++] = (uint32_t)tasks;
    if (s == LM_OK && *at == '\0') return LM_OK;
  }
  free(*out);
  *out = NULL;
  *count = 0;
  return s;
}
