/* src/model/head.c - the head and the loss, a chunk of rows at a time: [B*T, V] never exists whole. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parts.h"

void lm_model_head(lm_model *m, size_t rows, float scale)
{
  size_t C = (size_t)m->C;
  for (size_t r = 0; r < rows; r += m->head_rows) {
    size_t n = rows - r < m->head_rows ? rows - r : m->head_rows;
    const void *x = lm_model_at(m, m->final_norm.out, r * C);
    void *z = m->work.logits;
    lm_linear_fwd(m, &m->head, z, x, n);
    m->k->cross_entropy(m->t, m->work.loss + r, z, m->work.targets + r, &m->objective, n, m->V, m->Vp, scale);
    bool add = r > 0 || lm_model_adds(m);
    if (scale != 0) lm_linear_bwd(m, &m->head, add, lm_model_at(m, m->work.narrow, r * C), z, x, n);
  }
}

void lm_model_logits(lm_model *m, const void *z, float *logits)
{
  m->k->cast(m->work.next, LM_F32, z, m->t, (size_t)m->V);
  m->k->to_host(logits, m->work.next, (size_t)m->V * sizeof *logits);
}

void lm_model_head_row(lm_model *m, size_t row, float *logits)
{
  const void *x = lm_model_at(m, m->final_norm.out, row * (size_t)m->C);
  lm_linear_fwd(m, &m->head, m->work.logits, x, 1);
  lm_model_logits(m, m->work.logits, logits);
}
