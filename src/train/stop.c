/* src/train/stop.c - stop requests: SIGUSR1, SIGTERM, SIGINT. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t received;

static void note(int signal)
{
  received = signal;
}

void lm_stop_watch(void)
{
  static const int signals[] = {SIGUSR1, SIGTERM, SIGINT};
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (signals[i] == SIGINT) action.sa_flags |= SA_RESETHAND;
    sigaction(signals[i], &action, NULL);
  }
}

bool lm_stop_requested(void)
{
  return received != 0;
}

const char *lm_stop_signal(void)
{
  return received == SIGUSR1 ? "SIGUSR1" : received == SIGTERM ? "SIGTERM" : received == SIGINT ? "SIGINT" : "";
}
