/* kernels/cuda/pointwise.cu - operations whose elements know nothing of each other: cast, GELU, SwiGLU, scale. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

enum { THREADS = 256 };

/* ---- y[i] = f(x[i]...) ---- */

template <int W, typename F, typename Y, typename... X>
static __device__ __forceinline__ void map_packs(F f, Y *y, const pack<X, W> &...x)
{
  pack<Y, W> out;
#pragma unroll
  for (int k = 0; k < W; k++) out.v[k] = from_float<Y>(f(to_float(x.v[k])...));
  store(y, out);
}

/* y may be one of x: a thread has read an element before it writes it. */
template <int W, typename F, typename Y, typename... X>
static __global__ void __launch_bounds__(THREADS) map_kernel(F f, size_t n, Y *y, const X *...x)
{
  size_t step = static_cast<size_t>(gridDim.x) * THREADS * W;
  for (size_t i = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * W; i < n; i += step)
    if (i + W <= n)
      map_packs<W>(f, y + i, load<W>(x + i)...);
    else
      for (size_t j = i; j < n; j++) map_packs<1>(f, y + j, load<1>(x + j)...);
}

template <typename F, typename Y, typename... X> static void map(const char *what, F f, size_t n, Y *y, const X *...x)
{
  constexpr int WIDE = sizeof(Y) == 4 && (... && (sizeof(X) == 4)) ? 4 : 8;
  by_width<WIDE>(aligned_to(16, y, x...), [&](auto w) {
    constexpr int W = decltype(w)::value;
    unsigned most = static_cast<unsigned>(lm_cuda.multiprocessors) * 32, blocks = blocks_for(n, THREADS * W);
    lm_cuda_launch(what, map_kernel<W, F, Y, X...>, blocks < most ? blocks : most, THREADS, 0, f, n, y, x...);
  });
}

struct same {
  __device__ float operator()(float x) const
  {
    return x;
  }
};

void lm_cast_cuda(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n)
{
  by_type(to, [&](auto y0) {
    by_type(from, [&](auto x0) {
      map("cast", same{}, n, static_cast<decltype(y0) *>(y), static_cast<const decltype(x0) *>(x));
    });
  });
}

struct times {
  float a;
  __device__ float operator()(float x) const
  {
    return x * a;
  }
};

void lm_scale_cuda(float *x, float a, size_t n)
{
  map("scale", times{a}, n, x, static_cast<const float *>(x));
}

struct plus {
  __device__ float operator()(float x, float y) const
  {
    return x + y;
  }
};

void lm_add_cuda(float *x, const float *y, size_t n)
{
  map("add", plus{}, n, x, static_cast<const float *>(x), y);
}

/* ---- GELU: x/2 (1 + tanh(u)) = x s, s = 1 / (1 + exp(-2u)) ---- */

/* s, 1 - s and the derivative of 2u. Beyond 10 s is 0 or 1 to the last bit; there x^3 or exp could overflow. */
struct gate {
  float s, rest, slope;
};

template <typename T> static __device__ __forceinline__ gate gelu_gate(float x)
{
  const float two_k = 1.59576912160573f, cubic = 0.044715f; /* 2 sqrt(2/pi) */
  float v = fminf(fmaxf(x, -10.0f), 10.0f), e = exp_for<T>(-two_k * v * (1 + cubic * v * v));
  float s = divide_for<T>(1, 1 + e);
  return gate{s, e * s, two_k * (1 + 3 * cubic * v * v)}; /* 1 - s would lose the digits of a small rest */
}

template <typename T> struct gelu {
  __device__ float operator()(float x) const
  {
    return x * gelu_gate<T>(x).s;
  }
};

template <typename T> struct gelu_gradient {
  __device__ float operator()(float dy, float x) const
  {
    gate g = gelu_gate<T>(x);
    return dy * (g.s + x * g.s * g.rest * g.slope);
  }
};

void lm_gelu_fwd_cuda(lm_dtype t, void *y, const void *x, size_t n)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) T;
    map("gelu_fwd", gelu<T>{}, n, static_cast<T *>(y), static_cast<const T *>(x));
  });
}

void lm_gelu_bwd_cuda(lm_dtype t, void *dx, const void *dy, const void *x, size_t n)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) T;
    map("gelu_bwd", gelu_gradient<T>{}, n, static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x));
  });
}

/* ---- SwiGLU: rows of F gates, then F ups ---- */

template <typename T> static __device__ __forceinline__ float sigmoid(float x)
{
  return divide_for<T>(1, 1 + exp_for<T>(-x));
}

/* Block (i, r) works on packs of row r; blocks beyond the grid's height go on with later rows. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) swiglu_fwd_kernel(T *y, const T *x, size_t rows, int F)
{
  int f = (blockIdx.x * THREADS + threadIdx.x) * W;
  for (size_t r = blockIdx.y; f < F && r < rows; r += gridDim.y) {
    pack<T, W> gate = load<W>(x + 2 * r * F + f), up = load<W>(x + (2 * r + 1) * F + f), out;
#pragma unroll
    for (int k = 0; k < W; k++) {
      float g = to_float(gate.v[k]);
      out.v[k] = from_float<T>(g * sigmoid<T>(g) * to_float(up.v[k]));
    }
    store(y + r * F + f, out);
  }
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) swiglu_bwd_kernel(T *dx, const T *dy, const T *x, size_t rows, int F)
{
  int f = (blockIdx.x * THREADS + threadIdx.x) * W;
  for (size_t r = blockIdx.y; f < F && r < rows; r += gridDim.y) {
    pack<T, W> gate = load<W>(x + 2 * r * F + f), up = load<W>(x + (2 * r + 1) * F + f), d = load<W>(dy + r * F + f);
    pack<T, W> dgate, dup;
#pragma unroll
    for (int k = 0; k < W; k++) {
      float g = to_float(gate.v[k]), s = sigmoid<T>(g), dy_k = to_float(d.v[k]);
      dgate.v[k] = from_float<T>(dy_k * to_float(up.v[k]) * s * (1 + g * (1 - s)));
      dup.v[k] = from_float<T>(dy_k * g * s);
    }
    store(dx + 2 * r * F + f, dgate);
    store(dx + (2 * r + 1) * F + f, dup);
  }
}

static dim3 rows_by_columns(size_t rows, int columns, int width)
{
  return dim3(blocks_for(columns, THREADS * width), static_cast<unsigned>(rows < 65535 ? rows : 65535));
}

void lm_swiglu_fwd_cuda(lm_dtype t, void *y, const void *x, size_t rows, int F)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) T;
    by_width<WIDTH<T>>(F % WIDTH<T> == 0 && aligned_to(16, y, x), [&](auto w) {
      constexpr int W = decltype(w)::value;
      lm_cuda_launch("swiglu_fwd", swiglu_fwd_kernel<T, W>, rows_by_columns(rows, F, W), THREADS, 0,
                     static_cast<T *>(y), static_cast<const T *>(x), rows, F);
    });
  });
}

void lm_swiglu_bwd_cuda(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) T;
    by_width<WIDTH<T>>(F % WIDTH<T> == 0 && aligned_to(16, dx, dy, x), [&](auto w) {
      constexpr int W = decltype(w)::value;
      lm_cuda_launch("swiglu_bwd", swiglu_bwd_kernel<T, W>, rows_by_columns(rows, F, W), THREADS, 0,
                     static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x), rows, F);
    });
  });
}
