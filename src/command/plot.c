/* src/command/plot.c - curves over one axis, as an SVG picture. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/plot.h"

#include <math.h>

/* Pixels: a panel with room for numbers on its left and for its name above. */
enum { LEFT = 90, RIGHT = 30, WIDTH = 760, HEIGHT = 240, TOP = 56, GAP = 56, TICKS = 8 };

/* The panel that is being drawn: where it lies, and what its corners mean. */
typedef struct panel {
  double top, x_min, x_max, y_max;
} panel;

static double place_x(const panel *p, double x)
{
  return p->x_max > p->x_min ? LEFT + (x - p->x_min) / (p->x_max - p->x_min) * WIDTH : LEFT;
}

static double place_y(const panel *p, double y)
{
  return p->top + HEIGHT - y / p->y_max * HEIGHT;
}

/* A round distance, 1, 2 or 5 times a power of ten, that cuts `range` into at most TICKS parts. */
static double tick(double range)
{
  double least = range / TICKS, power = pow(10, floor(log10(least)));
  return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

static lm_status write_text(lm_buffer *out, double x, double y, const char *anchor, const char *text, lm_error *err)
{
  return lm_buffer_printf(out, err, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}

static lm_status write_number(lm_buffer *out, double x, double y, const char *anchor, double value, lm_error *err)
{
  return lm_buffer_printf(out, err, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.6g</text>\n", x, y, anchor,
                          value);
}

static lm_status write_line(lm_buffer *out, double x1, double y1, double x2, double y2, lm_error *err)
{
  return lm_buffer_printf(out, err, "<path d=\"M%.1f %.1f L%.1f %.1f\" stroke=\"#ccc\" fill=\"none\"/>\n", x1, y1, x2,
                          y2);
}

static lm_status write_grid(lm_buffer *out, const panel *p, lm_error *err)
{
  double bottom = p->top + HEIGHT, step = tick(p->y_max), x_step = tick(fmax(p->x_max - p->x_min, 1));
  for (int i = 0; i * step <= p->y_max * (1 + 1e-9); i++) {
    LM_TRY(write_line(out, LEFT, place_y(p, i * step), LEFT + WIDTH, place_y(p, i * step), err));
    LM_TRY(write_number(out, LEFT - 8, place_y(p, i * step) + 4, "end", i * step, err));
  }
  for (int i = (int)ceil(p->x_min / x_step); i * x_step <= p->x_max; i++) {
    double x = i * x_step;
    LM_TRY(write_line(out, place_x(p, x), p->top, place_x(p, x), bottom, err));
    LM_TRY(write_number(out, place_x(p, x), bottom + 18, "middle", x, err));
  }
  return LM_OK;
}

static lm_status write_curve(lm_buffer *out, panel *p, const double *x, size_t n, const lm_curve *curve, lm_error *err)
{
  p->y_max = 0;
  for (size_t i = 0; i < n; i++) p->y_max = fmax(p->y_max, curve->y[i]);
  p->y_max = p->y_max > 0 ? p->y_max * 1.05 : 1;
  LM_TRY(write_text(out, LEFT, p->top - 10, "start", curve->name, err));
  LM_TRY(write_grid(out, p, err));
  LM_TRY(lm_buffer_printf(out, err, "<path stroke=\"#1f5fa8\" stroke-width=\"2\" fill=\"none\" d=\""));
  for (size_t i = 0; i < n; i++)
    LM_TRY(lm_buffer_printf(out, err, "%c%.2f %.2f", i == 0 ? 'M' : 'L', place_x(p, x[i]), place_y(p, curve->y[i])));
  return lm_buffer_printf(out, err, "\"/>\n");
}

lm_status lm_plot_svg(lm_buffer *out, const char *title, const char *x_name, const double *x, size_t n,
                      const lm_curve *curves, size_t n_curves, lm_error *err)
{
  int width = LEFT + WIDTH + RIGHT, height = TOP + (int)n_curves * (HEIGHT + GAP) + 8;
  LM_TRY(lm_buffer_printf(out, err,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                          "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
                          "fill=\"white\"/>\n",
                          width, height));
  LM_TRY(write_text(out, LEFT, 24, "start", title, err));
  panel p = {.top = TOP, .x_min = x[0], .x_max = x[n - 1]};
  for (size_t i = 0; i < n_curves; i++, p.top += HEIGHT + GAP) LM_TRY(write_curve(out, &p, x, n, &curves[i], err));
  LM_TRY(write_text(out, LEFT + WIDTH, height - 10, "end", x_name, err));
  return lm_buffer_printf(out, err, "</svg>\n");
}
