/* kernels/cuda/linear.cu - matrix products: by cuBLASLt, and by own kernels where it is not for them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/sums.h"

#include <cublasLt.h>
#include <vector>

/* ---- up to LM_FEW_ROWS rows: a warp an output, all rows at once, so that w is read once. A row's sum has one order,
 * however many rows there are ---- */

enum { FEW_WARPS = 8 };

template <typename E, int W>
static __global__ void __launch_bounds__(FEW_WARPS *WARP)
    few_rows_kernel(E *y, const E *x, const E *w, const E *bias, int M, int N, int K)
{
  int n = blockIdx.x * FEW_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (n >= N) return;
  float sum[LM_FEW_ROWS] = {};
  for (int k = lane * W; k < K; k += WARP * W) {
    pack<E, W> weight = load<W>(w + static_cast<size_t>(n) * K + k);
#pragma unroll
    for (int m = 0; m < LM_FEW_ROWS; m++) {
      if (m >= M) break;
      pack<E, W> v = load<W>(x + static_cast<size_t>(m) * K + k);
#pragma unroll
      for (int i = 0; i < W; i++) sum[m] += to_float(v.v[i]) * to_float(weight.v[i]);
    }
  }
  float b = bias == NULL ? 0 : to_float(bias[n]);
#pragma unroll
  for (int m = 0; m < LM_FEW_ROWS; m++) {
    if (m >= M) break;
    float s = warp_sum(sum[m]);
    if (lane == 0) y[static_cast<size_t>(m) * N + n] = from_float<E>(s + b);
  }
}

static void few_rows(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(K % WIDTH<E> == 0 && aligned_to(16, x, w), [&](auto width) {
      lm_cuda_launch("linear_fwd", few_rows_kernel<E, decltype(width)::value>, blocks_for(N, FEW_WARPS),
                     FEW_WARPS * WARP, 0, static_cast<E *>(y), static_cast<const E *>(x), static_cast<const E *>(w),
                     static_cast<const E *>(bias), static_cast<int>(M), N, K);
    });
  });
}

/* ---- any product: out[i,j] = bias[j] + sum_k a(i,k) b(k,j), or with add += ---- */

enum { SIDE = 16 };

/* A matrix: element (i, j) is at p[i rows + j columns]. */
template <typename E> struct matrix {
  const E *p;
  size_t rows, columns;
};

template <typename O, typename E>
static __global__ void __launch_bounds__(SIDE *SIDE)
    product_kernel(O *out, matrix<E> a, matrix<E> b, const E *bias, size_t M, int N, size_t K, bool add)
{
  __shared__ float A[SIDE][SIDE + 1], B[SIDE][SIDE + 1];
  size_t i = static_cast<size_t>(blockIdx.x) * SIDE + threadIdx.y;
  int j = blockIdx.y * SIDE + threadIdx.x;
  float sum = 0;
  for (size_t k0 = 0; k0 < K; k0 += SIDE) {
    size_t ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
    A[threadIdx.y][threadIdx.x] = i < M && ka < K ? to_float(a.p[i * a.rows + ka * a.columns]) : 0;
    B[threadIdx.y][threadIdx.x] = j < N && kb < K ? to_float(b.p[kb * b.rows + j * b.columns]) : 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIDE; k++) sum += A[threadIdx.y][k] * B[k][threadIdx.x];
    __syncthreads();
  }
  if (i >= M || j >= N) return;
  if (bias != NULL) sum += to_float(bias[j]);
  if (add) sum += static_cast<float>(out[i * N + j]);
  out[i * N + j] = from_float<O>(sum);
}

template <typename O, typename E>
static void product(const char *what, O *out, matrix<E> a, matrix<E> b, const E *bias, size_t M, int N, size_t K,
                    bool add)
{
  lm_cuda_launch(what, product_kernel<O, E>, dim3(blocks_for(M, SIDE), blocks_for(N, SIDE)), dim3(SIDE, SIDE), 0, out,
                 a, b, bias, M, N, K, add);
}

/* ---- cuBLASLt: a plan for each shape, made once ---- */

typedef enum op { FORWARD, INPUT, WEIGHT } op;

/* cuBLASLt's matrices have their columns one after another, ours their rows: it computes the transpose of each product,
 * out^T [columns, rows]. */
typedef struct shape {
  op what;
  lm_dtype t;
  bool bias, gelu; /* gelu: FORWARD also keeps what GELU saw, INPUT multiplies by its derivative there */
  size_t M;
  int N, K;
} shape;

/* What a product is made of: out = a b, or with add out += a b; gelu_at is what GELU saw, written or read. */
typedef struct operands {
  void *out;
  const void *a, *b, *bias;
  void *gelu_at;
  bool add;
} operands;

typedef struct plan {
  shape of;
  bool found; /* an algorithm */
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, out;
  cublasLtMatmulAlgo_t algorithm;
} plan;

static cublasLtHandle_t handle;
static void *workspace;
static const size_t WORKSPACE_BYTES = 32 << 20;

static void check(cublasStatus_t s, const char *what)
{
  if (s != CUBLAS_STATUS_SUCCESS) lm_cuda_stop("%s: cuBLASLt failed with status %d", what, static_cast<int>(s));
}

lm_status lm_cuda_linear_start(lm_error *err)
{
  if (handle != NULL) return LM_OK;
  cublasStatus_t s = cublasLtCreate(&handle);
  if (s != CUBLAS_STATUS_SUCCESS)
    return lm_cuda.host->fail(err, LM_EINVAL, "cuBLASLt does not start on GPU %d: status %d", lm_cuda.device,
                              static_cast<int>(s));
  return lm_alloc_cuda(&workspace, WORKSPACE_BYTES, "the workspace of matrix products", err);
}

static cudaDataType data_type(lm_dtype t)
{
  return t == LM_F32 ? CUDA_R_32F : t == LM_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static cublasLtMatrixLayout_t layout(const char *what, cudaDataType t, size_t rows, size_t columns)
{
  cublasLtMatrixLayout_t l;
  check(cublasLtMatrixLayoutCreate(&l, t, rows, columns, static_cast<int64_t>(rows)), what);
  return l;
}

static cublasLtEpilogue_t epilogue_of(const shape *s)
{
  if (s->gelu && s->what == INPUT) return CUBLASLT_EPILOGUE_DGELU;
  if (s->gelu) return s->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* y^T [N,M] = w x^T, from w^T [K,N] and x^T [K,M]; dx^T [K,M] = w^T dy^T, dy^T [N,M]; dw^T [K,N] = x^T dy. */
static void describe(plan *p, const char *what)
{
  const shape *s = &p->of;
  const cublasComputeType_t compute =
      s->t == LM_F32 && lm_cuda.host->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cudaDataType in = data_type(s->t), out = s->what == WEIGHT ? CUDA_R_32F : in;
  size_t N = static_cast<size_t>(s->N), K = static_cast<size_t>(s->K);
  check(cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F), what);
  if (s->what != INPUT)
    check(cublasLtMatmulDescSetAttribute(p->product,
                                         s->what == FORWARD ? CUBLASLT_MATMUL_DESC_TRANSA : CUBLASLT_MATMUL_DESC_TRANSB,
                                         &transposed, sizeof transposed),
          what);
  const cublasLtEpilogue_t epilogue = epilogue_of(s);
  const int64_t row = s->what == FORWARD ? s->N : s->K; /* of what GELU saw */
  check(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), what);
  if (s->gelu)
    check(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &row, sizeof row), what);
  p->a = s->what == WEIGHT ? layout(what, in, K, s->M) : layout(what, in, K, N);
  p->b = s->what == FORWARD ? layout(what, in, K, s->M) : layout(what, in, N, s->M);
  p->out = s->what == FORWARD ? layout(what, out, N, s->M) : layout(what, out, K, s->what == INPUT ? s->M : N);
}

/* The pointers of the epilogue. */
static cublasStatus_t point(const plan *p, const operands *o)
{
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  if (p->of.bias)
    s = cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias);
  if (p->of.gelu && s == CUBLAS_STATUS_SUCCESS)
    s = cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->gelu_at,
                                       sizeof o->gelu_at);
  return s;
}

static cublasStatus_t multiply(const plan *p, const cublasLtMatmulAlgo_t *algorithm, const operands *o)
{
  const float one = 1, keep = o->add ? 1 : 0;
  cublasStatus_t s = point(p, o);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  return cublasLtMatmul(handle, p->product, &one, o->a, p->a, o->b, p->b, &keep, o->out, p->out, o->out, p->out,
                        algorithm, workspace, WORKSPACE_BYTES, lm_cuda.compute);
}

/* Milliseconds of three products after one; 0 where it cannot be run. */
static float time_of(const plan *p, const cublasLtMatmulAlgo_t *algorithm, const operands *o)
{
  cudaEvent_t begin, end;
  float ms = 0;
  lm_cuda_check(cudaEventCreate(&begin), "timing a product");
  lm_cuda_check(cudaEventCreate(&end), "timing a product");
  bool runs = multiply(p, algorithm, o) == CUBLAS_STATUS_SUCCESS;
  lm_cuda_check(cudaEventRecord(begin, lm_cuda.compute), "timing a product");
  for (int i = 0; i < 3; i++) runs = runs && multiply(p, algorithm, o) == CUBLAS_STATUS_SUCCESS;
  lm_cuda_check(cudaEventRecord(end, lm_cuda.compute), "timing a product");
  lm_cuda_check(cudaEventSynchronize(end), "timing a product");
  lm_cuda_check(cudaEventElapsedTime(&ms, begin, end), "timing a product");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return runs ? ms : 0;
}

enum { CANDIDATES = 8 };

/* The fastest of n candidates on these operands, whose product goes into memory of its own: dw must stay. */
static int fastest(const plan *p, const cublasLtMatmulHeuristicResult_t *list, int n, const operands *o)
{
  const shape *s = &p->of;
  size_t N = static_cast<size_t>(s->N), K = static_cast<size_t>(s->K);
  size_t elements = s->what == FORWARD ? s->M * N : s->what == INPUT ? s->M * K : N * K;
  operands trial = *o;
  int best = 0;
  float least = 0;
  if (cudaMalloc(&trial.out, elements * sizeof(float)) != cudaSuccess) {
    cudaGetLastError();
    return 0; /* no room to try: the first guess */
  }
  for (int i = 0; i < n; i++) {
    float ms = time_of(p, &list[i].algo, &trial);
    if (ms > 0 && (least == 0 || ms < least)) least = ms, best = i;
  }
  lm_cuda_check(cudaFree(trial.out), "timing a product");
  lm_cuda.host->verbose("product %d of %s, %zu x %d x %d: candidate %d of %d, %.3f ms", static_cast<int>(s->what),
                        lm_dtype_name(s->t), s->M, s->N, s->K, best, n, static_cast<double>(least) / 3);
  return best;
}

/* cuBLASLt's first guess is the same every time; the fastest is not, and another algorithm adds in another order: so it
 * is looked for only where the host asks. */
static void choose(plan *p, const char *what, const operands *o)
{
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t list[CANDIDATES];
  const uint32_t sixteen = 16, sums_in_f32 = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  int n = 0;
  check(cublasLtMatmulPreferenceCreate(&wish), what);
  check(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_BYTES,
                                             sizeof WORKSPACE_BYTES),
        what);
  check(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums_in_f32,
                                             sizeof sums_in_f32),
        what);
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  for (int i = 0; i < 4; i++)
    check(cublasLtMatmulPreferenceSetAttribute(wish, alignments[i], &sixteen, sizeof sixteen), what);
  check(point(p, o), what); /* their alignment decides, too */
  cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(handle, p->product, p->a, p->b, p->out, p->out, wish,
                                                    lm_cuda.host->tune ? CANDIDATES : 1, list, &n);
  p->found = s == CUBLAS_STATUS_SUCCESS && n > 0;
  if (p->found) p->algorithm = list[n > 1 ? fastest(p, list, n, o) : 0].algo;
  check(cublasLtMatmulPreferenceDestroy(wish), what);
}

static plan *plan_for(const shape *of, const char *what, const operands *o)
{
  static std::vector<plan *> &plans = *new std::vector<plan *>; /* a few dozen, to the end of the process */
  for (plan *p : plans)
    if (p->of.what == of->what && p->of.t == of->t && p->of.bias == of->bias && p->of.gelu == of->gelu &&
        p->of.M == of->M && p->of.N == of->N && p->of.K == of->K)
      return p;
  plan *p = new plan{};
  p->of = *of;
  describe(p, what);
  choose(p, what, o);
  if (of->gelu)
    lm_cuda.host->verbose("%s of %s, %zu x %d x %d: %s", what, lm_dtype_name(of->t), of->M, of->N, of->K,
                          p->found ? "in one pass" : "cuBLASLt has none, two passes");
  plans.push_back(p);
  return p;
}

/* A product that was promised, with GELU, is refused all the same: nothing was queued, and there is another way. */
static bool refused(plan *p, cublasStatus_t s, const char *what)
{
  if (!p->of.gelu || (s != CUBLAS_STATUS_NOT_SUPPORTED && s != CUBLAS_STATUS_INVALID_VALUE)) return false;
  lm_cuda.host->verbose("%s: cuBLASLt refuses with status %d, two passes", what, static_cast<int>(s));
  p->found = false;
  return true;
}

/* The product by cuBLASLt; false where it has none for this shape, or for memory aligned like this. */
static bool by_library(const shape *of, const char *what, const operands *o)
{
  if (!aligned_to(16, static_cast<char *>(o->out), static_cast<const char *>(o->a), static_cast<const char *>(o->b),
                  static_cast<const char *>(o->bias), static_cast<char *>(o->gelu_at)))
    return false;
  plan *p = plan_for(of, what, o);
  if (!p->found) return false;
  cublasStatus_t s = multiply(p, &p->algorithm, o);
  if (refused(p, s, what)) return false;
  check(s, what);
  return true;
}

/* ---- the operations ---- */

void lm_linear_fwd_cuda(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K)
{
  const char *what = "linear_fwd";
  if (M == 0) return;
  if (M <= LM_FEW_ROWS) {
    few_rows(t, y, x, w, bias, M, N, K);
    return;
  }
  const shape s = {FORWARD, t, bias != NULL, false, M, N, K};
  const operands o = {y, w, x, bias, NULL, false};
  if (by_library(&s, what, &o)) return;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    size_t k = static_cast<size_t>(K);
    product(what, static_cast<E *>(y), matrix<E>{static_cast<const E *>(x), k, 1},
            matrix<E>{static_cast<const E *>(w), 1, k}, static_cast<const E *>(bias), M, N, k, false);
  });
}

void lm_linear_bwd_input_cuda(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K)
{
  const char *what = "linear_bwd_input";
  const shape s = {INPUT, t, false, false, M, N, K};
  const operands o = {dx, w, dy, NULL, NULL, false};
  if (M == 0 || by_library(&s, what, &o)) return;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    size_t n = static_cast<size_t>(N), k = static_cast<size_t>(K);
    product(what, static_cast<E *>(dx), matrix<E>{static_cast<const E *>(dy), n, 1},
            matrix<E>{static_cast<const E *>(w), k, 1}, static_cast<const E *>(NULL), M, K, n, false);
  });
}

void lm_linear_bwd_weight_cuda(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                               int N, int K)
{
  const char *what = "linear_bwd_weight";
  const shape s = {WEIGHT, t, false, false, M, N, K};
  const operands o = {dw, x, dy, NULL, NULL, add};
  if (M == 0) {
    if (!add) lm_zero_cuda(dw, static_cast<size_t>(N) * static_cast<size_t>(K) * sizeof *dw);
    if (!add && dbias != NULL) lm_zero_cuda(dbias, static_cast<size_t>(N) * sizeof *dbias);
    return;
  }
  if (dbias != NULL) lm_cuda_sum_columns(what, t, add, dbias, dy, M, N);
  if (by_library(&s, what, &o)) return;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    size_t n = static_cast<size_t>(N), k = static_cast<size_t>(K);
    product(what, dw, matrix<E>{static_cast<const E *>(dy), 1, n}, matrix<E>{static_cast<const E *>(x), k, 1},
            static_cast<const E *>(NULL), n, K, M, add);
  });
}

/* Others measured cuBLASLt's products with GELU in them as slower than two passes below sm_90. Rows of what GELU saw
 * have to be multiples of 8; f32 keeps the functions whose error is known. The bias gradient stays a pass of its own:
 * in the epilogue it would have 16 bits, and could not be added to. */
static bool gelu_fits(lm_dtype t, size_t M, int row)
{
  return lm_cuda.major >= 9 && !lm_cuda.host->plain && t != LM_F32 && M > LM_FEW_ROWS && row % 8 == 0;
}

bool lm_linear_gelu_fwd_cuda(lm_dtype t, void *y, void *z, const void *x, const void *w, const void *bias, size_t M,
                             int N, int K)
{
  const shape s = {FORWARD, t, bias != NULL, true, M, N, K};
  const operands o = {y, w, x, bias, z, false};
  return gelu_fits(t, M, N) && by_library(&s, "linear_gelu_fwd", &o);
}

bool lm_linear_gelu_bwd_cuda(lm_dtype t, void *dz, const void *dy, const void *w, const void *z, size_t M, int N, int K)
{
  const shape s = {INPUT, t, false, true, M, N, K};
  const operands o = {dz, w, dy, NULL, const_cast<void *>(z), false};
  return gelu_fits(t, M, K) && by_library(&s, "linear_gelu_bwd", &o);
}
