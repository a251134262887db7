/* src/train/stop.c - stop requests: SIGUSR1, SIGTERM, SIGINT, SIGHUP, the end of the job's time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/stop.h"

#include "base/clock.h"

#include <math.h>
#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t received;
static double end_of_job = INFINITY, reserve;

static void note(int signal)
{
  received = signal;
}

void lm_stop_watch(void)
{
  static const int signals[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP};
  struct sigaction before;
  signal(SIGPIPE, SIG_IGN); /* who read the messages is gone, as `tee` is after Ctrl-C: the run is not */
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
    if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN && signals[i] == SIGHUP) continue;
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (signals[i] == SIGINT) action.sa_flags |= SA_RESETHAND;
    sigaction(signals[i], &action, NULL);
  }
}

void lm_stop_before(double end)
{
  end_of_job = end;
}

void lm_stop_reserve(double seconds)
{
  reserve = seconds;
}

static bool out_of_time(void)
{
  return isfinite(end_of_job) && lm_clock() + reserve >= end_of_job;
}

bool lm_stop_requested(void)
{
  return received != 0 || out_of_time();
}

const char *lm_stop_reason(void)
{
  switch (received) {
  case SIGUSR1: return "as asked by SIGUSR1";
  case SIGTERM: return "as asked by SIGTERM";
  case SIGINT: return "as asked by SIGINT";
  case SIGHUP: return "as its terminal has gone";
  default: return out_of_time() ? "as the job's time is ending" : "as asked";
  }
}
