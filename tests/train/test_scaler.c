/* tests/train/test_scaler.c - the scale of the loss, step by step. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/scaler.h"
#include "tests/tap.h"

/* The scale after each of the steps in `story`: '.' a good one, 'x' an overflow. */
static bool goes(const lm_scaler_config *cfg, const char *story, const float *scales)
{
  lm_scaler s = lm_scaler_start(cfg);
  bool fine = s.scale == (float)cfg->init;
  for (size_t i = 0; story[i] != '\0'; i++) {
    lm_scaler_update(&s, cfg, story[i] == 'x');
    fine = fine && s.scale == scales[i];
  }
  return fine;
}

/* Defaults as torch.amp.GradScaler's: 2^16, x2 after 2000 good steps, x1/2 at an overflow. */
static void test_defaults(void)
{
  const lm_scaler_config cfg = {.init = 65536, .min = 1, .max = 16777216, .growth_steps = 2000, .hysteresis = 1};
  lm_scaler s = lm_scaler_start(&cfg);
  for (int i = 0; i < 1999; i++) lm_scaler_update(&s, &cfg, false);
  tap_ok(s.scale == 65536, "1999 good steps keep 2^16");
  lm_scaler_update(&s, &cfg, false);
  tap_ok(s.scale == 131072, "the 2000th doubles it");
  for (int i = 0; i < 1999; i++) lm_scaler_update(&s, &cfg, false);
  lm_scaler_update(&s, &cfg, true);
  tap_ok(s.scale == 65536, "an overflow halves it");
  for (int i = 0; i < 1999; i++) lm_scaler_update(&s, &cfg, false);
  tap_ok(s.scale == 65536, "and the count begins anew");
  for (int i = 0; i < 40; i++) lm_scaler_update(&s, &cfg, true);
  tap_ok(s.scale == 1, "it does not fall below the least");
  for (int i = 0; i < 2000 * 40; i++) lm_scaler_update(&s, &cfg, false);
  tap_ok(s.scale == 16777216, "nor rise above the largest");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_defaults();
  const lm_scaler_config plain = {.init = 8, .min = 1, .max = 16, .growth_steps = 2, .hysteresis = 1};
  tap_ok(goes(&plain, "..x.x..", (float[]){8, 16, 8, 8, 4, 4, 8}), "good steps count in a row");
  /* Megatron-LM's rule: the second overflow since the last doubling halves, and each after it. */
  const lm_scaler_config patient = {.init = 8, .min = 1, .max = 16, .growth_steps = 2, .hysteresis = 2};
  tap_ok(goes(&patient, "x.xx..xx", (float[]){8, 8, 4, 2, 2, 4, 4, 2}), "hysteresis 2 forgives one overflow");
  return tap_end();
}
