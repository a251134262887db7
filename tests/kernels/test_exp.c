/* tests/kernels/test_exp.c - the exp of the CPU loops against the maths library's in double. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/vector.h"
#include "tests/tap.h"

#include <float.h>

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  double worst = 0, at = 0;
  for (double x = -87.33; x < 88.37; x += 0x1p-14) { /* and, near 0, down to tiny ones */
    float points[] = {(float)x, (float)(x * 1e-3), (float)(x * 1e-8)};
    for (int i = 0; i < 3; i++) {
      double want = exp((double)points[i]), ulp = want - (double)nextafterf((float)want, 0);
      double error = fabs((double)lm_exp(points[i]) - want) / ulp;
      if (!(error <= worst)) worst = error, at = (double)points[i];
    }
  }
  tap_ok(worst <= 1.2, "at most 1.2 ulp: %.3f at %.9g", worst, at);
  tap_ok(lm_exp(0) == 1 && lm_exp(-0.f) == 1, "exp(0) is 1");
  tap_ok(lm_exp(-INFINITY) == 0 && lm_exp(-FLT_MAX) == 0 && lm_exp(-87.4f) == 0, "far below 0 it is 0");
  tap_ok(isinf(lm_exp(INFINITY)) && isinf(lm_exp(FLT_MAX)) && isinf(lm_exp(88.4f)), "far above it is infinite");
  uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff};
  for (int i = 0; i < 4; i++) {
    float nan;
    memcpy(&nan, &nans[i], sizeof nan);
    tap_ok(isnan(lm_exp(nan)), "NaN %08x stays NaN", nans[i]);
  }
  return tap_end();
}
