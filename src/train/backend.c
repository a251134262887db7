/* src/train/backend.c - start a backend on the device that is this rank's own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/backend.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"

#include <stdlib.h>

lm_status lm_backend_device(int *out, int local_rank, int local_size, int visible, lm_error *err)
{
  *out = 0;
  if (visible == 1) return LM_OK;
  if (visible < 1) return lm_fail(err, LM_EINVAL, "no visible GPU: look at CUDA_VISIBLE_DEVICES and the job's GPUs");
  if (visible < local_size)
    return lm_fail(err, LM_EINVAL, "this node has %d ranks, which see %d GPUs; want a GPU a rank", local_size, visible);
  *out = local_rank;
  return LM_OK;
}

/* A machine without a driver is not made to open CUDA's libraries, which takes half a second. */
lm_backend lm_backend_auto(lm_error *why)
{
  int visible;
  *why = (lm_error){0};
  lm_status s = lm_cuda_driver(why);
  if (s == LM_OK) s = lm_cuda_devices(NULL, 0, &visible, why);
  return s == LM_OK ? LM_BACKEND_CUDA : LM_BACKEND_CPU;
}

static lm_backend resolve(lm_backend which)
{
  lm_error why;
  if (which != LM_BACKEND_AUTO) return which;
  which = lm_backend_auto(&why);
  if (which == LM_BACKEND_CPU && *why.text != '\0') lm_info("the CPU computes: %s", why.text);
  return which;
}

lm_status lm_backend_start(const lm_kernels **out, const lm_comm *comm, lm_backend which, lm_error *err)
{
  bool named = which == LM_BACKEND_CUDA;
  which = resolve(which);
  if (which == LM_BACKEND_CUDA) {
    int visible, device;
    *out = NULL;
    lm_status s = lm_cuda_devices(NULL, 0, &visible, err);
    if (s == LM_OK) s = lm_backend_device(&device, comm->local_rank, comm->local_size, visible, err);
    if (s != LM_OK) return lm_fail_in(err, s, named ? "--backend=cuda" : "--backend=auto");
    lm_cuda_use_device(device);
  }
  return lm_kernels_select(out, which, err);
}

/* ---- how fast it multiplies ---- */

/* n x n numbers between -1 and 1. A GPU that multiplies zeros needs less power and keeps a clock that others do not. */
static lm_status make_factor(void **out, const lm_kernels *k, lm_dtype t, size_t n, const uint16_t *noise,
                             lm_error *err)
{
  size_t bytes = n * lm_dtype_size(t), rows = n;
  LM_TRY(k->alloc(out, bytes * rows, "a factor", err));
  for (size_t r = 0; r < rows; r++) k->to_device((char *)*out + r * bytes, (const char *)noise + r % 64 * 2, bytes);
  return LM_OK;
}

/* Seconds of a product of n x n matrices; 0 where memory is short. */
static double time_product(const lm_kernels *k, lm_dtype t, int n, const uint16_t *noise)
{
  enum { TIMES = 8 };
  size_t side = (size_t)n;
  void *x = NULL, *w = NULL, *y = NULL;
  double took = 0;
  lm_status s = make_factor(&x, k, t, side, noise, NULL);
  if (s == LM_OK) s = make_factor(&w, k, t, side, noise, NULL);
  if (s == LM_OK) s = k->alloc(&y, side * side * lm_dtype_size(t), "a product", NULL);
  for (int warm = 0; s == LM_OK && warm < 2; warm++) { /* the first one chooses an algorithm */
    double begin = lm_clock();
    for (int i = 0; i < (warm ? TIMES : 1); i++) k->linear_fwd(t, y, x, w, NULL, side, n, n);
    k->to_host(NULL, NULL, 0);
    took = (lm_clock() - begin) / (warm ? TIMES : 1);
    if (took > 0.05) break;
  }
  k->release(x), k->release(w), k->release(y);
  return took;
}

/* Larger and larger products, until one keeps the device busy for some time. */
static double device_rate(const lm_kernels *k, lm_dtype t)
{
  enum { LEAST = 256, MOST = 8192 };
  uint16_t *noise;
  double best = 0;
  if (lm_alloc(&noise, 2 * (MOST + 64), sizeof *noise, "a factor", NULL) != LM_OK) return 0;
  for (uint64_t i = 0; i < 2 * (MOST + 64); i += 4) {
    uint32_t words[4];
    lm_random_words(0, LM_STREAM_INIT, 0, i, words);
    for (int j = 0; j < 4; j++)
      noise[i + (uint64_t)j] = (uint16_t)((words[j] & 0x80ff) | 0x3e00); /* bf16; as f32, too */
  }
  for (int n = LEAST; n <= MOST; n *= 2) {
    double took = time_product(k, t, n, noise), rate = took > 0 ? 2.0 * n * n * n / took : 0;
    if (rate > best) best = rate;
    if (took == 0 || took > 2e-3) break;
  }
  free(noise);
  return best;
}

double lm_backend_rate(const lm_kernels *k, lm_dtype t)
{
  return k->on_device ? device_rate(k, t) : lm_cpu_product_rate(t);
}
