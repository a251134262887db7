/* kernels/cuda/optimizer.cu - AdamW and SGD, with the rounded copy of the weights. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

#include <math.h>

enum { THREADS = 256 };

/* What a step needs, worked out in double. */
struct adamw_step {
  float beta1, rest1, beta2, rest2; /* rest = 1 - beta */
  float eps, shrink;                /* 1 - lr decay */
  float rate, root;                 /* lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
  float scale;
};

template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(float *w, float *m, float *v, const float *g, E *w16, size_t n, adamw_step a)
{
  size_t i = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
  if (i + W > n) return;
  pack<float, W> w_ = load<W>(w + i), m_ = load<W>(m + i), v_ = load<W>(v + i), g_ = load<W>(g + i);
  pack<E, W> rounded;
#pragma unroll
  for (int k = 0; k < W; k++) {
    float gradient = a.scale * g_.v[k];
    m_.v[k] = a.beta1 * m_.v[k] + a.rest1 * gradient;
    v_.v[k] = a.beta2 * v_.v[k] + a.rest2 * gradient * gradient;
    w_.v[k] = w_.v[k] * a.shrink - a.rate * m_.v[k] / (sqrtf(v_.v[k]) * a.root + a.eps);
    rounded.v[k] = from_float<E>(w_.v[k]);
  }
  store(w + i, w_), store(m + i, m_), store(v + i, v_);
  if (w16 != NULL) store(w16 + i, rounded);
}

/* The packs, then what is left of them. */
template <typename F> static void packs_and_rest(size_t n, bool wide, F f)
{
  size_t packed = wide ? n / 4 * 4 : 0;
  if (packed > 0) f(std::integral_constant<int, 4>{}, 0, packed);
  if (packed < n) f(std::integral_constant<int, 1>{}, packed, n - packed);
}

template <typename E> static E *at(E *p, size_t i)
{
  return p == NULL ? NULL : p + i;
}

void lm_adamw_cuda(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                   const lm_adamw_config *cfg, float lr, float scale, int64_t step)
{
  double beta1 = cfg->beta1, beta2 = cfg->beta2, decay = static_cast<double>(lr) * cfg->decay;
  adamw_step a = {};
  a.beta1 = cfg->beta1, a.rest1 = static_cast<float>(1 - beta1);
  a.beta2 = cfg->beta2, a.rest2 = static_cast<float>(1 - beta2);
  a.eps = cfg->eps, a.shrink = static_cast<float>(1 - decay), a.scale = scale;
  a.rate = static_cast<float>(lr / (1 - pow(beta1, static_cast<double>(step))));
  a.root = static_cast<float>(1 / sqrt(1 - pow(beta2, static_cast<double>(step))));
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    E *half = static_cast<E *>(w16);
    packs_and_rest(n, aligned_to(16, w, m, v, g) && aligned_to(4 * sizeof(E), half),
                   [&](auto width, size_t from, size_t count) {
                     constexpr int W = decltype(width)::value;
                     lm_cuda_launch("adamw", adamw_kernel<E, W>, blocks_for(count, THREADS * W), THREADS, 0, w + from,
                                    m + from, v + from, g + from, at(half, from), count, a);
                   });
  });
}

struct sgd_step {
  float momentum, lr, shrink, scale;
  bool nesterov;
};

template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    sgd_kernel(float *w, float *m, const float *g, E *w16, size_t n, sgd_step a)
{
  size_t i = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
  if (i + W > n) return;
  pack<float, W> w_ = load<W>(w + i), m_ = {}, g_ = load<W>(g + i);
  pack<E, W> rounded;
  if (m != NULL) m_ = load<W>(m + i);
#pragma unroll
  for (int k = 0; k < W; k++) {
    float gradient = a.scale * g_.v[k], update = gradient;
    if (m != NULL) {
      m_.v[k] = a.momentum * m_.v[k] + gradient;
      update = a.nesterov ? gradient + a.momentum * m_.v[k] : m_.v[k];
    }
    w_.v[k] = w_.v[k] * a.shrink - a.lr * update;
    rounded.v[k] = from_float<E>(w_.v[k]);
  }
  store(w + i, w_);
  if (m != NULL) store(m + i, m_);
  if (w16 != NULL) store(w16 + i, rounded);
}

void lm_sgd_cuda(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg,
                 float lr, float scale)
{
  sgd_step a = {cfg->momentum, lr, static_cast<float>(1 - static_cast<double>(lr) * cfg->decay), scale, cfg->nesterov};
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    E *half = static_cast<E *>(w16);
    packs_and_rest(n, aligned_to(16, w, m, g) && aligned_to(4 * sizeof(E), half),
                   [&](auto width, size_t from, size_t count) {
                     constexpr int W = decltype(width)::value;
                     lm_cuda_launch("sgd", sgd_kernel<E, W>, blocks_for(count, THREADS * W), THREADS, 0, w + from,
                                    at(m, from), g + from, at(half, from), count, a);
                   });
  });
}
