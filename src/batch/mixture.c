/* src/batch/mixture.c - which source each sample of a run comes from. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/mixture.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of eras ---- */

lm_status lm_mixture_new(lm_mixture *out, size_t eras, size_t sources, lm_error *err)
{
  static const char what[] = "the mixture of sources";
  *out = (lm_mixture){.eras = eras, .sources = sources};
  lm_status s = lm_alloc(&out->checksum, sources, sizeof *out->checksum, what, err);
  if (s == LM_OK) s = lm_alloc(&out->from, eras, sizeof *out->from, what, err);
  if (s == LM_OK) s = lm_alloc(&out->weight, eras * sources, sizeof *out->weight, what, err);
  if (s == LM_OK) s = lm_alloc(&out->drawn, eras * sources, sizeof *out->drawn, what, err);
  if (s != LM_OK) lm_mixture_free(out);
  return s;
}

void lm_mixture_free(lm_mixture *m)
{
  free(m->checksum);
  free(m->from);
  free(m->weight);
  free(m->drawn);
  *m = (lm_mixture){0};
}

size_t lm_mixture_column(const lm_mixture *m, uint64_t checksum)
{
  size_t column = 0;
  while (column < m->sources && m->checksum[column] != checksum) column++;
  return column;
}

/* The sum of weights; UINT64_MAX where it is too large. */
static uint64_t sum_of(const uint64_t *weight, size_t n)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    if (weight[i] > LM_MOST_WEIGHT || sum > LM_MOST_WEIGHT - weight[i]) return UINT64_MAX;
    sum += weight[i];
  }
  return sum;
}

double lm_mixture_share(const lm_mixture *m, size_t column)
{
  const uint64_t *last = m->weight + (m->eras - 1) * m->sources;
  return column < m->sources ? (double)last[column] / (double)sum_of(last, m->sources) : 0;
}

bool lm_mixture_valid(const lm_mixture *m)
{
  if (m->eras < 1 || m->sources < 1 || m->sources > LM_MOST_SOURCES || m->from[0] != 0) return false;
  for (size_t e = 0; e < m->eras; e++) {
    uint64_t sum = sum_of(m->weight + e * m->sources, m->sources);
    if (sum == 0 || sum > LM_MOST_WEIGHT || (e > 0 && m->from[e] <= m->from[e - 1])) return false;
  }
  for (size_t i = 0; i < m->sources; i++)
    if (lm_mixture_column(m, m->checksum[i]) != i) return false;
  return true;
}

/* ---- a walk through it ---- */

/* A source's next draw belongs between two times of the period, in samples from 1: drawn earlier it would be too far
 * ahead of its share, later too far behind. The one whose time ends first is drawn. */
struct turn {
  size_t column;
  uint64_t weight, drawn; /* drawn: since the period began */
  uint64_t earliest, latest;
};

struct lm_mixture_walk {
  const lm_mixture *m;
  struct turn *turns; /* [sources]: those of this era, n of them */
  size_t n, era;
  uint64_t period, sum; /* of the era; its weights' sum is the length of a period */
  uint64_t next;        /* samples of the period that are drawn */
  struct turn *last;    /* who had the last one; NULL: none was drawn */
};

__extension__ typedef unsigned __int128 wide;

/* With k sources the deviation stays within 1 - 1 / (2 k - 2) where the x-th draw from 0 falls between the times
 * sum (x + 1 / (2 k - 2)) / weight, and sum (x + 1 - 1 / (2 k - 2)) / weight plus one. */
static void set_turn(const lm_mixture_walk *w, struct turn *t)
{
  wide parts = w->n > 1 ? 2 * w->n - 2 : 1, x = (wide)t->drawn * parts, scale = parts * t->weight;
  t->earliest = (uint64_t)((w->sum * (x + 1) + scale - 1) / scale);
  t->latest = (uint64_t)(w->sum * (x + parts - 1) / scale);
}

static void begin_period(lm_mixture_walk *w, size_t era, uint64_t period)
{
  const uint64_t *weight = w->m->weight + era * w->m->sources;
  w->era = era;
  w->period = period;
  w->sum = sum_of(weight, w->m->sources);
  w->next = w->n = 0;
  w->last = NULL;
  for (size_t i = 0; i < w->m->sources; i++)
    if (weight[i] > 0) w->turns[w->n++] = (struct turn){.column = i, .weight = weight[i]};
  for (size_t i = 0; i < w->n; i++) set_turn(w, &w->turns[i]);
}

static void draw_next(lm_mixture_walk *w)
{
  struct turn *first = NULL;
  if (w->last != NULL) {
    w->last->drawn++;
    set_turn(w, w->last);
  }
  w->next++;
  for (struct turn *t = w->turns; t < w->turns + w->n; t++)
    if ((t->earliest <= w->next || w->n == 1) && (first == NULL || t->latest < first->latest)) first = t;
  LM_ASSERT(first != NULL);
  w->last = first;
}

lm_status lm_mixture_walk_new(lm_mixture_walk **out, const lm_mixture *m, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a walk through the sources", err));
  (*out)->m = m;
  lm_status s = lm_alloc(&(*out)->turns, m->sources, sizeof *(*out)->turns, "a walk through the sources", err);
  if (s == LM_OK) {
    begin_period(*out, 0, 0);
    return LM_OK;
  }
  free(*out);
  *out = NULL;
  return s;
}

void lm_mixture_walk_free(lm_mixture_walk *w)
{
  if (w == NULL) return;
  free(w->turns);
  free(w);
}

static size_t era_of(const lm_mixture *m, uint64_t position)
{
  size_t era = m->eras - 1;
  while (m->from[era] > position) era--;
  return era;
}

/* To `position` of its era, before that sample is drawn where `before`, behind it where not. */
static void walk_to(lm_mixture_walk *w, uint64_t position, bool before)
{
  size_t era = era_of(w->m, position);
  uint64_t n = position - w->m->from[era], sum = sum_of(w->m->weight + era * w->m->sources, w->m->sources);
  uint64_t want = n % sum + !before;
  if (w->era != era || w->period != n / sum || w->next > want) begin_period(w, era, n / sum);
  while (w->next < want) draw_next(w);
}

static uint64_t drawn_before(const lm_mixture_walk *w, const struct turn *t)
{
  return w->m->drawn[w->era * w->m->sources + t->column] + w->period * t->weight + t->drawn;
}

lm_draw lm_mixture_draw(lm_mixture_walk *w, uint64_t position)
{
  walk_to(w, position, false);
  return (lm_draw){.source = w->last->column, .index = drawn_before(w, w->last)};
}

lm_status lm_mixture_drawn(const lm_mixture *m, uint64_t position, uint64_t *drawn, lm_error *err)
{
  lm_mixture_walk *w;
  LM_TRY(lm_mixture_walk_new(&w, m, err));
  walk_to(w, position, true);
  memcpy(drawn, m->drawn + w->era * m->sources, m->sources * sizeof *drawn);
  for (const struct turn *t = w->turns; t < w->turns + w->n; t++)
    drawn[t->column] = drawn_before(w, t) + (t == w->last); /* the last one is counted when the next is drawn */
  lm_mixture_walk_free(w);
  return LM_OK;
}

/* ---- change ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
  while (b != 0) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The weights of a new era, column by column, without a common divisor; and the checksums of the columns. */
static void lay_out(const lm_mixture *m, const uint64_t *checksum, const uint64_t *weight, size_t n,
                    uint64_t *checksums, uint64_t *row, size_t *columns)
{
  uint64_t divisor = 0;
  *columns = m->sources;
  for (size_t i = 0; i < n; i++) divisor = common_divisor(weight[i], divisor);
  for (size_t i = 0; i < m->sources; i++) checksums[i] = m->checksum[i];
  for (size_t i = 0; i < n; i++) {
    size_t column = lm_mixture_column(m, checksum[i]);
    if (column == m->sources) column = (*columns)++;
    checksums[column] = checksum[i];
    row[column] = weight[i] / divisor;
  }
}

static bool same_as_last(const lm_mixture *m, const uint64_t *row, size_t columns)
{
  for (size_t i = 0; i < columns && m->eras > 0; i++)
    if (row[i] != (i < m->sources ? m->weight[(m->eras - 1) * m->sources + i] : 0)) return false;
  return m->eras > 0;
}

/* The eras of m that begin before `position`, then one with the weights of `row`. */
static lm_status extend(lm_mixture *out, const lm_mixture *m, uint64_t position, const uint64_t *checksums,
                        const uint64_t *row, size_t columns, lm_error *err)
{
  size_t eras = 0;
  while (eras < m->eras && m->from[eras] < position) eras++;
  LM_TRY(lm_mixture_new(out, eras + 1, columns, err));
  memcpy(out->checksum, checksums, columns * sizeof *checksums);
  memcpy(out->weight + eras * columns, row, columns * sizeof *row);
  for (size_t e = 0; e < eras; e++) {
    out->from[e] = m->from[e];
    for (size_t i = 0; i < m->sources; i++) {
      out->weight[e * columns + i] = m->weight[e * m->sources + i];
      out->drawn[e * columns + i] = m->drawn[e * m->sources + i];
    }
  }
  if (eras == 0) return LM_OK;
  out->from[eras] = position;
  return lm_mixture_drawn(m, position, out->drawn + eras * columns, err);
}

lm_status lm_mixture_change(lm_mixture *m, uint64_t position, const uint64_t *checksum, const uint64_t *weight,
                            size_t n, lm_error *err)
{
  uint64_t *checksums = NULL, *row = NULL, sum = sum_of(weight, n);
  size_t columns;
  lm_mixture next = {0};
  LM_ASSERT(sum >= 1 && sum <= LM_MOST_WEIGHT);
  if (m->sources + n > LM_MOST_SOURCES)
    return lm_fail(err, LM_EINVAL, "the run has had %zu sources, %zu are given; want at most %d in all", m->sources, n,
                   LM_MOST_SOURCES);
  lm_status s = lm_alloc(&checksums, m->sources + n, sizeof *checksums, "the mixture of sources", err);
  if (s == LM_OK) s = lm_alloc(&row, m->sources + n, sizeof *row, "the mixture of sources", err);
  if (s == LM_OK) {
    lay_out(m, checksum, weight, n, checksums, row, &columns);
    if (!same_as_last(m, row, columns)) s = extend(&next, m, position, checksums, row, columns, err);
  }
  free(checksums);
  free(row);
  if (s == LM_OK && next.sources > 0) {
    lm_mixture_free(m);
    *m = next;
  } else {
    lm_mixture_free(&next);
  }
  return s;
}
