/* kernels/cpu/product.h - matrix products on one thread, by oneDNN. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_PRODUCT_H
#define LM_KERNELS_CPU_PRODUCT_H

#include "base/dtype.h"
#include <stdbool.h>

/** c = a b, or c += a b, or c = a b + bias.  a [m,k] and b [k,n] of type `type` with any strides of which one is 1;
 *  c [m,n] of type `to`, f32 or `type`, with rows `c_row` elements apart; bias [n] of type `type`. Sums are in f32. */
typedef struct lm_product_shape {
  int32_t type, to; /* lm_dtype */
  int32_t add, bias;
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row;
} lm_product_shape;

typedef struct lm_product lm_product;

/** Before the products of an operation, by the thread that starts the others. Products got before are gone. Local. */
void lm_products_begin(void);

/** The product of this shape, made when it is first asked for. Outside parallel regions; zero-initialise the shape.
 *  Valid until the next lm_products_begin(). Local; ends the program where oneDNN has no memory or no such product. */
lm_product *lm_product_get(const lm_product_shape *shape);

/** Compute it on the calling thread, which is number `thread` of its team and has told OpenMP that it is alone
 *  (omp_set_num_threads(1)). The result does not depend on the team. Local. */
void lm_product_run(lm_product *p, int thread, const void *a, const void *b, const void *bias, void *c);

#endif
