/* kernels/cuda/optimizer.cu - AdamW and SGD, with the rounded copy of the weights: one tensor, or all in one launch. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

#include <math.h>

enum { THREADS = 256, PACK = 4 };

/* A block has a piece: one of a list, or that of its number of a tensor. Both ways are the same code, so the bits are
 * the same too. Its elements come in packs where all tensors of the piece are aligned for it. */
template <typename E, typename F>
static __device__ __forceinline__ void each_pack(const lm_slice *list, const lm_slice &whole, const float *all_g, F f)
{
  const lm_slice s = list != NULL ? list[blockIdx.x] : whole;
  const float *g = all_g + s.g_at;
  size_t begin = list != NULL ? 0 : static_cast<size_t>(blockIdx.x) * LM_PIECE;
  size_t end = s.n - begin < LM_PIECE ? s.n : begin + LM_PIECE;
  uintptr_t floats = reinterpret_cast<uintptr_t>(s.w) | reinterpret_cast<uintptr_t>(s.m) |
                     reinterpret_cast<uintptr_t>(s.v) | reinterpret_cast<uintptr_t>(g);
  bool wide = floats % 16 == 0 && reinterpret_cast<uintptr_t>(s.w16) % (PACK * sizeof(E)) == 0;
#pragma unroll 2
  for (size_t i = begin + threadIdx.x * PACK; i < end; i += THREADS * PACK) {
    if (wide && i + PACK <= end)
      f(std::integral_constant<int, PACK>{}, s, g, i);
    else
      for (size_t k = i; k < i + PACK && k < end; k++) f(std::integral_constant<int, 1>{}, s, g, k);
  }
}

/* What a step needs, worked out in double. */
struct adamw_step {
  float beta1, rest1, beta2, rest2; /* rest = 1 - beta */
  float eps, shrink;                /* 1 - lr decay */
  float rate, root;                 /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
  float scale;
};

template <typename E>
static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(const lm_slice *list, lm_slice whole, const float *all_g, adamw_step a)
{
  each_pack<E>(list, whole, all_g, [&](auto width, const lm_slice &s, const float *at_g, size_t i) {
    constexpr int W = decltype(width)::value;
    pack<float, W> w = load<W>(s.w + i), m = load<W>(s.m + i), v = load<W>(s.v + i), g = load<W>(at_g + i);
    pack<E, W> rounded;
    float shrink = s.decayed ? a.shrink : 1;
#pragma unroll
    for (int k = 0; k < W; k++) {
      float gradient = a.scale * g.v[k];
      m.v[k] = a.beta1 * m.v[k] + a.rest1 * gradient;
      v.v[k] = a.beta2 * v.v[k] + a.rest2 * gradient * gradient;
      w.v[k] = w.v[k] * shrink - a.rate * m.v[k] / (sqrtf(v.v[k]) * a.root + a.eps);
      rounded.v[k] = from_float<E>(w.v[k]);
    }
    store(s.w + i, w), store(s.m + i, m), store(s.v + i, v);
    if (s.w16 != NULL) store(static_cast<E *>(s.w16) + i, rounded);
  });
}

static adamw_step prepare(const lm_adamw_config *cfg, float lr, float scale, int64_t step)
{
  double beta1 = cfg->beta1, beta2 = cfg->beta2, decay = static_cast<double>(lr) * cfg->decay;
  adamw_step a = {};
  a.beta1 = cfg->beta1, a.rest1 = static_cast<float>(1 - beta1);
  a.beta2 = cfg->beta2, a.rest2 = static_cast<float>(1 - beta2);
  a.eps = cfg->eps, a.shrink = static_cast<float>(1 - decay), a.scale = scale;
  a.rate = static_cast<float>(lr / (1 - pow(beta1, static_cast<double>(step))));
  a.root = static_cast<float>(1 / sqrt(1 - pow(beta2, static_cast<double>(step))));
  return a;
}

void lm_adamw_cuda(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                   const lm_adamw_config *cfg, float lr, float scale, int64_t step)
{
  const lm_slice whole = {w, m, v, w16, 0, n, true};
  by_type(t, [&](auto zero) {
    lm_cuda_launch("adamw", adamw_kernel<decltype(zero)>, blocks_for(n, LM_PIECE), THREADS, 0, nullptr, whole, g,
                   prepare(cfg, lr, scale, step));
  });
}

void lm_adamw_all_cuda(lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg, float lr,
                       float scale, int64_t step)
{
  by_type(t, [&](auto zero) {
    lm_cuda_launch("adamw", adamw_kernel<decltype(zero)>, static_cast<unsigned>(s->n_pieces), THREADS, 0, s->pieces,
                   lm_slice{}, g, prepare(cfg, lr, scale, step));
  });
}

struct sgd_step {
  float momentum, lr, shrink, scale;
  bool nesterov;
};

template <typename E>
static __global__ void __launch_bounds__(THREADS)
    sgd_kernel(const lm_slice *list, lm_slice whole, const float *all_g, sgd_step a)
{
  each_pack<E>(list, whole, all_g, [&](auto width, const lm_slice &s, const float *at_g, size_t i) {
    constexpr int W = decltype(width)::value;
    pack<float, W> w = load<W>(s.w + i), m = {}, g = load<W>(at_g + i);
    pack<E, W> rounded;
    float shrink = s.decayed ? a.shrink : 1;
    if (s.m != NULL) m = load<W>(s.m + i);
#pragma unroll
    for (int k = 0; k < W; k++) {
      float gradient = a.scale * g.v[k], update = gradient;
      if (s.m != NULL) {
        m.v[k] = a.momentum * m.v[k] + gradient;
        update = a.nesterov ? gradient + a.momentum * m.v[k] : m.v[k];
      }
      w.v[k] = w.v[k] * shrink - a.lr * update;
      rounded.v[k] = from_float<E>(w.v[k]);
    }
    store(s.w + i, w);
    if (s.m != NULL) store(s.m + i, m);
    if (s.w16 != NULL) store(static_cast<E *>(s.w16) + i, rounded);
  });
}

static sgd_step prepare(const lm_sgd_config *cfg, float lr, float scale)
{
  return {cfg->momentum, lr, static_cast<float>(1 - static_cast<double>(lr) * cfg->decay), scale, cfg->nesterov};
}

void lm_sgd_cuda(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg,
                 float lr, float scale)
{
  const lm_slice whole = {w, m, NULL, w16, 0, n, true};
  by_type(t, [&](auto zero) {
    lm_cuda_launch("sgd", sgd_kernel<decltype(zero)>, blocks_for(n, LM_PIECE), THREADS, 0, nullptr, whole, g,
                   prepare(cfg, lr, scale));
  });
}

void lm_sgd_all_cuda(lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg, float lr, float scale)
{
  by_type(t, [&](auto zero) {
    lm_cuda_launch("sgd", sgd_kernel<decltype(zero)>, static_cast<unsigned>(s->n_pieces), THREADS, 0, s->pieces,
                   lm_slice{}, g, prepare(cfg, lr, scale));
  });
}
