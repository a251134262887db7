/* kernels/cpu/product.c - matrix products on one thread, by oneDNN. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/product.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>

/* oneDNN fails where memory is short or a shape is wrong; neither can be mended in the middle of a step. */
#define DNNL(call) LM_ASSERT((call) == dnnl_success)

/* What differs between oneDNN 2 and 3: a memory descriptor is a struct or a pointer, and an operation is described by a
 * struct of its own or by arguments. */
#if DNNL_VERSION_MAJOR >= 3
#define BORROW(md) (md)
static void forget(dnnl_memory_desc_t md)
{
  if (md != NULL) DNNL(dnnl_memory_desc_destroy(md));
}
#else
#define BORROW(md) (&(md))
#define forget(md) ((void)(md))
#endif

static dnnl_memory_desc_t describe(int64_t rows, int64_t cols, lm_dtype type, int64_t row, int64_t col)
{
  dnnl_memory_desc_t md;
  dnnl_dims_t dims = {rows, cols}, strides = {row, col};
  dnnl_data_type_t t = type == LM_F32 ? dnnl_f32 : dnnl_bf16;
#if DNNL_VERSION_MAJOR >= 3
  DNNL(dnnl_memory_desc_create_with_strides(&md, 2, dims, t, strides));
#else
  DNNL(dnnl_memory_desc_init_by_strides(&md, 2, dims, t, strides));
#endif
  return md;
}

/* The arguments of a product on one thread: oneDNN keeps an address in a memory object. */
enum { SRC, WEIGHTS, BIAS, DST, SCRATCH, ARGUMENTS };
typedef struct arguments {
  dnnl_memory_t memory[ARGUMENTS];
} arguments;

struct lm_product {
  lm_product_shape shape;
  dnnl_primitive_t primitive;
  arguments *of_thread; /* [threads] */
};

typedef struct worker {
  dnnl_stream_t stream;
  void *scratch;
} worker;

/* A full table is emptied: shapes come and go only where texts of all lengths are read. */
enum { SLOTS = 1024, MOST = 512 };
static lm_product *table[SLOTS];
static int used;
static dnnl_engine_t engine;
static worker *workers;
static int threads;
static size_t scratch_size; /* of each worker */

static void product_free(lm_product *p)
{
  if (p == NULL) return;
  for (int i = 0; i < threads; i++)
    for (int k = 0; k < ARGUMENTS; k++) DNNL(dnnl_memory_destroy(p->of_thread[i].memory[k]));
  DNNL(dnnl_primitive_destroy(p->primitive));
  free(p->of_thread);
  free(p);
}

static void forget_all(void)
{
  for (int i = 0; i < SLOTS; i++) {
    product_free(table[i]);
    table[i] = NULL;
  }
  used = 0;
}

static void new_scratch(worker *w)
{
  w->scratch = lm_reserve(scratch_size);
  LM_ASSERT(w->scratch != NULL);
}

void lm_products_begin(void)
{
  int n = omp_get_max_threads();
  if (engine == NULL) {
    DNNL(dnnl_set_primitive_cache_capacity(0)); /* this table is the cache */
    DNNL(dnnl_engine_create(&engine, dnnl_cpu, 0));
  }
  if (n > threads || used > MOST) forget_all();
  if (n <= threads) return;
  workers = realloc(workers, (size_t)n * sizeof *workers);
  LM_ASSERT(workers != NULL);
  for (; threads < n; threads++) {
    workers[threads] = (worker){0};
    DNNL(dnnl_stream_create(&workers[threads].stream, engine, dnnl_stream_default_flags));
    new_scratch(&workers[threads]);
  }
}

static void grow_scratch(size_t size)
{
  if (size <= scratch_size) return;
  scratch_size = size;
  for (int i = 0; i < threads; i++) {
    free(workers[i].scratch);
    new_scratch(&workers[i]);
  }
}

static dnnl_primitive_attr_t attributes(const lm_product_shape *s)
{
  dnnl_primitive_attr_t attr;
  DNNL(dnnl_primitive_attr_create(&attr));
  DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  if (s->add) {
    dnnl_post_ops_t ops;
    DNNL(dnnl_post_ops_create(&ops));
#if DNNL_VERSION_MAJOR >= 3
    DNNL(dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef));
#else
    DNNL(dnnl_post_ops_append_sum(ops, 1.0F));
#endif
    DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    DNNL(dnnl_post_ops_destroy(ops));
  }
  return attr;
}

/* md[BIAS] counts only where the shape has a bias. */
static dnnl_primitive_desc_t describe_primitive(const lm_product_shape *s, dnnl_memory_desc_t md[ARGUMENTS])
{
  dnnl_primitive_attr_t attr = attributes(s);
  dnnl_primitive_desc_t pd;
#if DNNL_VERSION_MAJOR >= 3
  DNNL(dnnl_matmul_primitive_desc_create(&pd, engine, md[SRC], md[WEIGHTS], s->bias ? md[BIAS] : NULL, md[DST], attr));
#else
  dnnl_matmul_desc_t matmul;
  DNNL(dnnl_matmul_desc_init(&matmul, &md[SRC], &md[WEIGHTS], s->bias ? &md[BIAS] : NULL, &md[DST]));
  DNNL(dnnl_primitive_desc_create(&pd, &matmul, attr, engine, NULL));
#endif
  DNNL(dnnl_primitive_attr_destroy(attr));
  return pd;
}

/* Which of oneDNN's implementations it is: a slow one ("ref") shows here. */
static void say_product(const lm_product_shape *s, dnnl_primitive_desc_t pd)
{
  const char *how = "?";
  DNNL(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&how));
  lm_verbose("product [%lld, %lld] x [%lld, %lld], %s -> %s: %s", (long long)s->m, (long long)s->k, (long long)s->k,
             (long long)s->n, lm_dtype_name((lm_dtype)s->type), lm_dtype_name((lm_dtype)s->to), how);
}

static lm_product *product_new(const lm_product_shape *s)
{
  lm_product *p = calloc(1, sizeof *p);
  LM_ASSERT(p != NULL);
  p->shape = *s;
  p->of_thread = calloc((size_t)threads, sizeof *p->of_thread);
  LM_ASSERT(p->of_thread != NULL);

  /* oneDNN plans for as many threads as OpenMP would give: one, so that the order of sums is that of one. */
  int team = omp_get_max_threads();
  omp_set_num_threads(1);
  dnnl_memory_desc_t md[ARGUMENTS] = {
      [SRC] = describe(s->m, s->k, (lm_dtype)s->type, s->a_row, s->a_col),
      [WEIGHTS] = describe(s->k, s->n, (lm_dtype)s->type, s->b_row, s->b_col),
      [BIAS] = describe(1, s->n, (lm_dtype)s->type, s->n, 1),
      [DST] = describe(s->m, s->n, (lm_dtype)s->to, s->c_row, 1),
  };
  dnnl_primitive_desc_t pd = describe_primitive(s, md);
  DNNL(dnnl_primitive_create(&p->primitive, pd));
  say_product(s, pd);
  for (int i = 0; i < threads; i++) {
    for (int k = 0; k < SCRATCH; k++)
      DNNL(dnnl_memory_create(&p->of_thread[i].memory[k], BORROW(md[k]), engine, DNNL_MEMORY_NONE));
    DNNL(dnnl_memory_create(&p->of_thread[i].memory[SCRATCH],
                            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), engine, DNNL_MEMORY_NONE));
  }
  grow_scratch(dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)));
  DNNL(dnnl_primitive_desc_destroy(pd));
  for (int k = 0; k < SCRATCH; k++) forget(md[k]);
  omp_set_num_threads(team);
  return p;
}

lm_product *lm_product_get(const lm_product_shape *shape)
{
  size_t i = lm_hash(shape, sizeof *shape) % SLOTS;
  while (table[i] != NULL && memcmp(&table[i]->shape, shape, sizeof *shape) != 0) i = (i + 1) % SLOTS;
  if (table[i] == NULL) {
    table[i] = product_new(shape);
    used++;
  }
  return table[i];
}

void lm_product_run(lm_product *p, int thread, const void *a, const void *b, const void *bias, void *c)
{
  static const int names[ARGUMENTS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                       DNNL_ARG_SCRATCHPAD};
  const void *address[ARGUMENTS] = {a, b, bias, c, workers[thread].scratch};
  dnnl_exec_arg_t list[ARGUMENTS];
  int n = 0;

  for (int k = 0; k < ARGUMENTS; k++) {
    if (k == BIAS && !p->shape.bias) continue;
    dnnl_memory_t memory = p->of_thread[thread].memory[k];
    union {
      const void *in;
      void *handle;
    } u = {.in = address[k]}; /* oneDNN takes what it only reads without const too */
    DNNL(dnnl_memory_set_data_handle(memory, u.handle));
    list[n++] = (dnnl_exec_arg_t){names[k], memory};
  }
  DNNL(dnnl_primitive_execute(p->primitive, workers[thread].stream, n, list));
}
