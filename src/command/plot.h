/* src/command/plot.h - curves over one axis, as an SVG picture. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMMAND_PLOT_H
#define LM_COMMAND_PLOT_H

#include "base/memory.h"

/** One curve, in a panel of its own. */
typedef struct lm_curve {
  const char *name; /* written above the panel, as the title is; plain text without <, > and & */
  const double *y;  /* [n], finite, >= 0 */
} lm_curve;

/** Append an SVG file: the panels one below the other, over the same axis. Local. LM_OK or LM_ENOMEM.
 *  @param x  [n] rising, n >= 1 */
lm_status lm_plot_svg(lm_buffer *out, const char *title, const char *x_name, const double *x, size_t n,
                      const lm_curve *curves, size_t n_curves, lm_error *err) LM_NODISCARD;

#endif
