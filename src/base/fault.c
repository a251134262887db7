/* src/base/fault.c - faults that a test asks for by MPILM_FAULT. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
  const char *name;
  const char *counts;  /* what the number after '@' counts; NULL: the fault has a duration instead */
  const char *instead; /* what else it may count; NULL: nothing */
} kinds[LM_FAULT_KINDS] = {
    [LM_FAULT_DIE] = {"die", "step", NULL},
    [LM_FAULT_EXIT] = {"exit", "step", NULL},
    [LM_FAULT_HANG] = {"hang", "step", NULL},
    [LM_FAULT_GRAD_INF] = {"grad_inf", "step", "sample"},
    [LM_FAULT_GRAD_NAN] = {"grad_nan", "step", "sample"},
    [LM_FAULT_LOSS_SPIKE] = {"loss_spike", "step", "sample"},
    [LM_FAULT_FAIL_WRITE] = {"fail_write", "ckpt", NULL},
    [LM_FAULT_FLIP_WEIGHT] = {"flip_weight", "step", NULL},
    [LM_FAULT_SLOW_SAVE] = {"slow_save", NULL, NULL},
    [LM_FAULT_LATE_SAVE] = {"late_save", NULL, NULL},
};

enum { MAX_FAULTS = 32 };

static struct {
  lm_fault_kind kind;
  uint64_t n;
  bool instead; /* n counts kinds[].instead */
  double seconds;
} asked[MAX_FAULTS]; /* of this rank only */
static size_t n_asked;

/* Digits and nothing else; *end is what follows them. */
static bool read_number(const char *text, char **end, uint64_t *out)
{
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  *out = strtoull(text, end, 10);
  return errno == 0;
}

static bool read_seconds(const char *text, double *out)
{
  char *end;
  uint64_t whole;
  if (!read_number(text, &end, &whole)) return false;
  *out = strcmp(end, "ms") == 0 ? (double)whole * 1e-3 : (double)whole;
  return strcmp(end, "s") == 0 || strcmp(end, "ms") == 0;
}

/* "@step5" or "@step5:rank2", after the name. */
static bool read_place(const char *text, const char *counts, uint64_t *n, bool *everywhere, uint64_t *rank)
{
  if (counts == NULL) return false;
  size_t len = strlen(counts);
  char *end;
  if (*text != '@' || strncmp(text + 1, counts, len) != 0 || !read_number(text + 1 + len, &end, n)) return false;
  *everywhere = *end == '\0';
  if (*everywhere) return true;
  return strncmp(end, ":rank", 5) == 0 && read_number(end + 5, &end, rank) && *end == '\0';
}

static bool read_entry(const char *entry, int my_rank)
{
  size_t len = strcspn(entry, "@=");
  for (lm_fault_kind k = 0; k < LM_FAULT_KINDS; k++) {
    if (strlen(kinds[k].name) != len || strncmp(entry, kinds[k].name, len) != 0) continue;
    uint64_t n = 0, rank = 0;
    double seconds = 0;
    bool everywhere = true;
    bool good = kinds[k].counts != NULL ? read_place(entry + len, kinds[k].counts, &n, &everywhere, &rank)
                                        : entry[len] == '=' && read_seconds(entry + len + 1, &seconds);
    bool instead = !good && read_place(entry + len, kinds[k].instead, &n, &everywhere, &rank);
    if (!(good || instead) || n_asked == MAX_FAULTS) return false;
    if (!everywhere && rank != (uint64_t)my_rank) return true;
    asked[n_asked].kind = k;
    asked[n_asked].n = n;
    asked[n_asked].instead = instead;
    asked[n_asked++].seconds = seconds;
    return true;
  }
  return false;
}

lm_status lm_fault_init(const char *list, int rank, lm_error *err)
{
  n_asked = 0;
  if (list == NULL) return LM_OK;
  char *copy = strdup(list), *rest = copy;
  if (copy == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the list of faults");
  lm_status s = LM_OK;
  for (char *entry; s == LM_OK && (entry = strsep(&rest, ",")) != NULL;) {
    entry += strspn(entry, " ");
    if (*entry != '\0' && !read_entry(entry, rank))
      s = lm_fail(
          err, LM_EINVAL,
          "MPILM_FAULT: '%s' is no fault; want, for example, die@step5:rank2, hang@step4, grad_inf@step3:rank1, "
          "loss_spike@sample40, fail_write@ckpt2 or slow_save=2s",
          entry);
  }
  free(copy);
  return s;
}

bool lm_fault(lm_fault_kind kind, uint64_t n)
{
  for (size_t i = 0; i < n_asked; i++)
    if (asked[i].kind == kind && !asked[i].instead && asked[i].n == n) return true;
  return false;
}

bool lm_fault_sample(lm_fault_kind kind, uint64_t first, uint64_t count)
{
  for (size_t i = 0; i < n_asked; i++)
    if (asked[i].kind == kind && asked[i].instead && asked[i].n >= first && asked[i].n - first < count) return true;
  return false;
}

double lm_fault_seconds(lm_fault_kind kind)
{
  for (size_t i = 0; i < n_asked; i++)
    if (asked[i].kind == kind) return asked[i].seconds;
  return 0;
}

void lm_fault_die(void)
{
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void lm_fault_exit(void)
{
  _exit(0);
}

void lm_fault_hang(void)
{
  for (;;) pause();
}

void lm_fault_pause(lm_fault_kind kind)
{
  double seconds = lm_fault_seconds(kind);
  struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
  while (seconds > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}
