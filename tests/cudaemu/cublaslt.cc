/* tests/cudaemu/cublaslt.cc - a stand-in for libcublasLt: as strict as the real one, in plain loops. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "numbers.h"
#include "stand_in.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cublasLt.h>
#include <vector>

using emu::device_view;

struct cublasLtContext {
  int unused;
};

namespace
{
/* --- descriptors --- */

struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t order, batch;
  int64_t stride;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a, transpose_b;
  uint32_t epilogue;
  int32_t bias_type, aux_type; /* -1: that of d */
  const void *bias;
  void *aux;
  int64_t aux_ld;
};

struct Preference {
  uint64_t workspace;
};

/* What an algorithm was asked for: the product must be the same when it is used. */
struct Algorithm {
  uint32_t magic, number;
  uint64_t problem, workspace;
};
constexpr uint32_t algorithm_magic = 0x414c474f;

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

template <class T, class Opaque> T &in(Opaque *o)
{
  return *reinterpret_cast<T *>(o);
}

cublasStatus_t refuse(cublasStatus_t s, const char *format, ...) __attribute__((format(printf, 2, 3)));
cublasStatus_t refuse(cublasStatus_t s, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  fputs("cudaemu: cublasLt: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return s;
}

struct Attribute {
  int id;
  void *value;
  size_t size;
};

cublasStatus_t transfer(const std::vector<Attribute> &known, const char *of, int id, void *get, const void *set,
                        size_t n)
{
  for (const Attribute &a : known) {
    if (a.id != id) continue;
    if (n != a.size)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a %s has %zu bytes, want %zu", id, of, n, a.size);
    if (get) memcpy(get, a.value, n);
    if (set) memcpy(a.value, set, n);
    return CUBLAS_STATUS_SUCCESS;
  }
  return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the emulator has no attribute %d of a %s", id, of);
}

std::vector<Attribute> attributes(Description &d)
{
  return {{CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &d.compute, 4},
          {CUBLASLT_MATMUL_DESC_SCALE_TYPE, &d.scale, 4},
          {CUBLASLT_MATMUL_DESC_TRANSA, &d.transpose_a, 4},
          {CUBLASLT_MATMUL_DESC_TRANSB, &d.transpose_b, 4},
          {CUBLASLT_MATMUL_DESC_EPILOGUE, &d.epilogue, 4},
          {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d.bias, 8},
          {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d.bias_type, 4},
          {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d.aux, 8},
          {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d.aux_ld, 8},
          {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &d.aux_type, 4}};
}

std::vector<Attribute> attributes(Layout &l)
{
  return {{CUBLASLT_MATRIX_LAYOUT_TYPE, &l.type, 4},
          {CUBLASLT_MATRIX_LAYOUT_ORDER, &l.order, 4},
          {CUBLASLT_MATRIX_LAYOUT_ROWS, &l.rows, 8},
          {CUBLASLT_MATRIX_LAYOUT_COLS, &l.cols, 8},
          {CUBLASLT_MATRIX_LAYOUT_LD, &l.ld, 8},
          {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &l.batch, 4},
          {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &l.stride, 8}};
}

/* --- numbers --- */

size_t bytes_of(cudaDataType t)
{
  return t == CUDA_R_32F ? 4 : t == CUDA_R_16BF || t == CUDA_R_16F ? 2 : 0;
}

float load(const void *p, size_t n, cudaDataType t)
{
  if (t == CUDA_R_32F) return ((const float *)p)[n];
  return emu::from_half(((const emu::u16 *)p)[n], t == CUDA_R_16BF);
}

void store(void *p, size_t n, cudaDataType t, float v)
{
  if (t == CUDA_R_32F) {
    ((float *)p)[n] = v;
  } else {
    ((emu::u16 *)p)[n] = t == CUDA_R_16BF ? emu::f32_to_bf16(v) : emu::f32_to_f16(v);
  }
}

constexpr float gelu_scale = 0.7978845608f, gelu_cubic = 0.044715f; /* sqrt(2 / pi) */

float gelu(float x)
{
  return 0.5f * x * (1 + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
}

float gelu_slope(float x)
{
  const float t = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cubic * x * x);
}

/* --- a product --- */

struct Operand {
  const void *p;
  Layout layout;
};

struct Product {
  Description d;
  Operand a, b, c, out;
  float alpha, beta;
  int m, n, k;
};

using Columns = std::vector<float>; /* column-major, without gaps */

/* Matrix `batch` of an operand, transposed if asked. */
bool read(Columns &to, const Operand &x, int batch, bool transpose, bool tf32)
{
  const Layout &l = x.layout;
  const size_t size = bytes_of(l.type), rows = l.rows, cols = l.cols;
  const char *p = (const char *)x.p + (size_t)(batch * l.stride) * size;
  const void *v = device_view(p, ((cols - 1) * (size_t)l.ld + rows) * size, false);
  to.resize(rows * cols);
  for (size_t c = 0; v && c < cols; c++)
    for (size_t r = 0; r < rows; r++) {
      float f = load(v, c * (size_t)l.ld + r, l.type);
      if (tf32) f = emu::as_float(emu::as_bits(f) & 0xffffe000);
      to[transpose ? r * cols + c : c * rows + r] = f;
    }
  return v != nullptr;
}

/* d [m, n] = a [m, k] b [k, n], f32 sums, four rows of b at a time. */
void multiply(Columns &d, const Columns &a, const Columns &b, size_t m, size_t n, size_t k)
{
  d.assign(m * n, 0);
  for (size_t c = 0; c < n; c++) {
    float *to = &d[c * m];
    for (size_t q = 0; q < k; q++) {
      const float *from = &a[q * m], by = b[c * k + q];
      for (size_t r = 0; r < m; r++) to[r] += from[r] * by;
    }
  }
}

bool add_bias(const Product &x, Columns &d)
{
  const cudaDataType t = (cudaDataType)x.d.bias_type;
  const void *bias = device_view(x.d.bias, (size_t)x.m * bytes_of(t), false);
  for (size_t n = 0; bias && n < d.size(); n++) d[n] += load(bias, n % (size_t)x.m, t);
  return bias != nullptr;
}

/* Keeps d for the backward (writes), or multiplies it by the slope at what was kept. */
bool use_aux(const Product &x, Columns &d, bool writes)
{
  const cudaDataType t = (cudaDataType)x.d.aux_type;
  const size_t m = (size_t)x.m, ld = (size_t)x.d.aux_ld;
  void *aux = device_view(x.d.aux, ((size_t)(x.n - 1) * ld + m) * bytes_of(t), writes);
  for (size_t n = 0; aux && n < d.size(); n++) {
    const size_t at = n / m * ld + n % m;
    if (writes) {
      store(aux, at, t, d[n]);
    } else {
      d[n] *= gelu_slope(load(aux, at, t));
    }
  }
  return aux != nullptr;
}

bool has_bias(uint32_t e)
{
  return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         e == CUBLASLT_EPILOGUE_RELU_BIAS;
}

bool has_aux(uint32_t e)
{
  return e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU;
}

bool is_gelu(uint32_t e)
{
  return e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX ||
         e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

bool is_known(uint32_t e)
{
  return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_RELU || has_bias(e) || has_aux(e) || is_gelu(e);
}

bool finish(const Product &x, Columns &d)
{
  const uint32_t e = x.d.epilogue;
  if (has_bias(e) && !add_bias(x, d)) return false;
  if (has_aux(e) && !use_aux(x, d, is_gelu(e))) return false;
  if (is_gelu(e)) std::transform(d.begin(), d.end(), d.begin(), gelu);
  if (e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS)
    for (float &v : d) v = v > 0 ? v : 0;
  return true;
}

void write(const Operand &out, int batch, const Columns &d)
{
  const Layout &l = out.layout;
  const size_t size = bytes_of(l.type), m = l.rows, ld = (size_t)l.ld;
  char *p = (char *)const_cast<void *>(out.p) + (size_t)(batch * l.stride) * size;
  void *v = device_view(p, ((l.cols - 1) * ld + m) * size, true);
  for (size_t n = 0; v && n < d.size(); n++) store(v, n / m * ld + n % m, l.type, d[n]);
}

void execute(const Product &x)
{
  const bool tf32 = x.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && x.a.layout.type == CUDA_R_32F;
  for (int batch = 0; batch < x.out.layout.batch; batch++) {
    Columns a, b, c, d;
    if (!read(a, x.a, batch, x.d.transpose_a, tf32) || !read(b, x.b, batch, x.d.transpose_b, tf32)) return;
    if (x.beta != 0 && !read(c, x.c, batch, false, false)) return;
    multiply(d, a, b, (size_t)x.m, (size_t)x.n, (size_t)x.k);
    for (size_t n = 0; n < d.size(); n++) d[n] = x.alpha * d[n] + (x.beta != 0 ? x.beta * c[n] : 0);
    if (!finish(x, d)) return;
    write(x.out, batch, d);
  }
}

/* --- what is refused --- */

cublasStatus_t check_layout(const char *name, const Layout &l)
{
  if (bytes_of(l.type) == 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%s has type %d", name, l.type);
  if (l.order != CUBLASLT_ORDER_COL) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%s has order %d", name, l.order);
  if (l.rows == 0 || l.cols == 0 || l.ld < (int64_t)l.rows || l.batch < 1)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s is %lux%lu, ld %ld, batch %d", name, l.rows, l.cols, l.ld, l.batch);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_shapes(const Product &x)
{
  const Layout &a = x.a.layout, &b = x.b.layout, &c = x.c.layout, &d = x.out.layout;
  const bool ta = x.d.transpose_a, tb = x.d.transpose_b;
  if ((ta ? a.cols : a.rows) != d.rows || (tb ? b.rows : b.cols) != d.cols ||
      (ta ? a.rows : a.cols) != (tb ? b.cols : b.rows) || c.rows != d.rows || c.cols != d.cols)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes: a %lux%lu%s, b %lux%lu%s, c %lux%lu, d %lux%lu", a.rows, a.cols,
                  ta ? "'" : "", b.rows, b.cols, tb ? "'" : "", c.rows, c.cols, d.rows, d.cols);
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "batches: a %d, b %d, c %d, d %d", a.batch, b.batch, c.batch, d.batch);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_types(const Product &x)
{
  const Layout &a = x.a.layout, &b = x.b.layout, &c = x.c.layout, &d = x.out.layout;
  const cublasComputeType_t how = x.d.compute;
  if (how != CUBLAS_COMPUTE_32F && how != CUBLAS_COMPUTE_32F_FAST_TF32 && how != CUBLAS_COMPUTE_32F_PEDANTIC)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d", how);
  if (x.d.scale != CUDA_R_32F) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale type %d", x.d.scale);
  if (a.type != b.type || c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types: a %d, b %d, c %d, d %d", a.type, b.type, c.type, d.type);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Product &x, bool with_pointers)
{
  const uint32_t e = x.d.epilogue;
  if (!is_known(e)) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the emulator has no epilogue %u", e);
  if ((has_bias(e) || has_aux(e)) && x.out.layout.batch != 1)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u of a batch", e);
  if (has_bias(e) && x.d.bias_type != (int)x.out.layout.type)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a bias of type %d, d is %d", x.d.bias_type, x.out.layout.type);
  if (has_bias(e) && with_pointers && x.d.bias == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u without a bias", e);
  if (!has_aux(e)) return CUBLAS_STATUS_SUCCESS;
  if (x.d.aux_ld < x.m || x.d.aux_ld % 8 != 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "aux has ld %ld, want a multiple of 8, at least %d", x.d.aux_ld, x.m);
  if (with_pointers && (x.d.aux == nullptr || (uintptr_t)x.d.aux % 16))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "aux at %p, want a multiple of 16", x.d.aux);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check(Product &x, bool with_pointers)
{
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  const std::pair<const char *, const Layout *> all[] = {
      {"a", &x.a.layout}, {"b", &x.b.layout}, {"c", &x.c.layout}, {"d", &x.out.layout}};
  for (const auto &l : all)
    if (!s) s = check_layout(l.first, *l.second);
  if (!s) s = check_shapes(x);
  if (!s) s = check_types(x);
  if (s) return s;
  x.m = (int)x.out.layout.rows;
  x.n = (int)x.out.layout.cols;
  x.k = (int)(x.d.transpose_a ? x.a.layout.rows : x.a.layout.cols);
  if (x.d.bias_type < 0) x.d.bias_type = (int)x.out.layout.type;
  if (x.d.aux_type < 0) x.d.aux_type = (int)x.out.layout.type;
  return check_epilogue(x, with_pointers);
}

cublasStatus_t check_pointers(const Product &x)
{
  const std::pair<const char *, const void *> all[] = {{"a", x.a.p}, {"b", x.b.p}, {"c", x.c.p}, {"d", x.out.p}};
  for (const auto &p : all) {
    if (p.second == nullptr && p.first[0] == 'c' && x.beta == 0) continue;
    if (p.second == nullptr || (uintptr_t)p.second % 16)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s at %p, want a multiple of 16", p.first, p.second);
  }
  return CUBLAS_STATUS_SUCCESS;
}

/* CUDAEMU_CUBLAS: 0 has no algorithm for any product, 2 none for those with GELU; 3 has, and refuses to run them. */
cublasStatus_t decline(const Product &x, bool runs)
{
  const char *knob = getenv("CUDAEMU_CUBLAS"), how = knob != nullptr ? *knob : '1';
  const bool gelu = has_aux(x.d.epilogue) || is_gelu(x.d.epilogue);
  const bool declines = runs ? how == '3' && gelu : how == '0' || (how == '2' && gelu);
  return declines ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

uint64_t problem_of(const Product &x)
{
  uint64_t h = 14695981039346656037u; /* FNV-1a */
  const uint64_t parts[] = {(uint64_t)x.m,
                            (uint64_t)x.n,
                            (uint64_t)x.k,
                            (uint64_t)x.a.layout.type,
                            (uint64_t)x.out.layout.type,
                            (uint64_t)x.a.layout.ld,
                            (uint64_t)x.b.layout.ld,
                            (uint64_t)x.out.layout.ld,
                            (uint64_t)x.out.layout.batch,
                            (uint64_t)x.d.transpose_a,
                            (uint64_t)x.d.transpose_b,
                            x.d.epilogue};
  for (uint64_t p : parts) h = (h ^ p) * 1099511628211u;
  return h;
}

/* Real algorithms write their workspace: whoever has something else there finds NaN. */
cublasStatus_t use_workspace(const Product &x, const cublasLtMatmulAlgo_t *given, void *workspace, size_t size,
                             cudaStream_t s)
{
  Algorithm a;
  if (given == nullptr) return CUBLAS_STATUS_SUCCESS;
  memcpy(&a, given, sizeof a);
  if (a.magic != algorithm_magic || a.problem != problem_of(x))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the algorithm was asked for another product");
  if (a.workspace == 0) return CUBLAS_STATUS_SUCCESS;
  if (workspace == nullptr || size < a.workspace || (uintptr_t)workspace % 256)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace of %zu bytes at %p, want %lu at a multiple of 256", size,
                  workspace, a.workspace);
  return cudaMemsetAsync(workspace, 0xff, a.workspace, s) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
} // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
  int n;
  *h = nullptr;
  if (cudaGetDeviceCount(&n) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = new cublasLtContext{0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
  return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
  switch (s) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  default: return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
  return cublasLtGetStatusName(s);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
  *d = new cublasLtMatmulDescOpaque_t();
  in<Description>(*d) = {compute, scale, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, -1, -1, nullptr, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v,
                                              size_t n)
{
  return transfer(attributes(in<Description>(d)), "product", a, nullptr, v, n);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, void *v,
                                              size_t n, size_t *written)
{
  if (written) *written = n;
  return transfer(attributes(in<Description>(d)), "product", a, v, nullptr, n);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld)
{
  *l = new cublasLtMatrixLayoutOpaque_t();
  in<Layout>(*l) = {type, rows, cols, ld, CUBLASLT_ORDER_COL, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
                                                const void *v, size_t n)
{
  return transfer(attributes(in<Layout>(l)), "layout", a, nullptr, v, n);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
  *p = new cublasLtMatmulPreferenceOpaque_t();
  in<Preference>(*p).workspace = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t n)
{
  uint32_t hint; /* what the emulator's choice does not depend on */
  return transfer({{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &in<Preference>(p).workspace, 8},
                   {CUBLASLT_MATMUL_PREF_SEARCH_MODE, &hint, 4},
                   {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &hint, 4},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &hint, 4},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &hint, 4},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &hint, 4},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &hint, 4}},
                  "preference", a, nullptr, v, n);
}

/* Up to four, each of which wants more workspace than the one before. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int want,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
  *found = 0;
  if (h == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (want < 1) return CUBLAS_STATUS_INVALID_VALUE;
  Product x = {in<Description>(d),
               {nullptr, in<Layout>(a)},
               {nullptr, in<Layout>(b)},
               {nullptr, in<Layout>(c)},
               {nullptr, in<Layout>(out)},
               0,
               0,
               0,
               0,
               0};
  cublasStatus_t s = check(x, false);
  if (!s) s = decline(x, false);
  if (s) return s;
  for (uint32_t n = 0; n < 4 && (int)n < want; n++) {
    const Algorithm algorithm = {algorithm_magic, n, problem_of(x), n * 65536ul};
    if (algorithm.workspace > (p ? in<Preference>(p).workspace : 0)) break;
    cublasLtMatmulHeuristicResult_t &r = results[(*found)++];
    memset((void *)&r, 0, sizeof r);
    memcpy((void *)&r.algo, &algorithm, sizeof algorithm);
    r.workspaceSize = algorithm.workspace;
    r.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *out, cublasLtMatrixLayout_t lout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t size, cudaStream_t stream)
{
  if (h == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  Product x = {in<Description>(d),
               {a, in<Layout>(la)},
               {b, in<Layout>(lb)},
               {c, in<Layout>(lc)},
               {out, in<Layout>(lout)},
               *(const float *)alpha,
               *(const float *)beta,
               0,
               0,
               0};
  cublasStatus_t s = check(x, true);
  if (!s) s = check_pointers(x);
  if (!s) s = decline(x, true);
  if (!s) s = use_workspace(x, algorithm, workspace, size, stream);
  if (s) return s;
  return emu::enqueue_host(stream, [x] { execute(x); }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}
