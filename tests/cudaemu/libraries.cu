/* tests/cudaemu/libraries.cu - the stand-ins for cuBLASLt and, on forked ranks, for NCCL. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <cmath>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- cuBLASLt --- */

typedef __nv_bfloat16 bf16;

struct Gemm {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, d;
  int m, n, k;

  /* d [m, n] = a' b, column-major, a [k, m], b [k, n], bf16 in and out */
  Gemm(int M, int N, int K) : m(M), n(N), k(K)
  {
    const cublasOperation_t t = CUBLAS_OP_T;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, (uint64_t)k, (uint64_t)m, k);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, (uint64_t)k, (uint64_t)n, k);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_16BF, (uint64_t)m, (uint64_t)n, m);
  }

  template <class T> cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, T v)
  {
    return cublasLtMatmulDescSetAttribute(product, attribute, &v, sizeof v);
  }

  cublasStatus_t run(const void *A, const void *B, void *D, float beta, const cublasLtMatmulAlgo_t *algo = nullptr,
                     void *workspace = nullptr, size_t bytes = 0)
  {
    const float one = 1;
    return cublasLtMatmul(handle, product, &one, A, a, B, b, &beta, D, d, D, d, algo, workspace, bytes, nullptr);
  }
};

static std::vector<bf16> numbers(int count)
{
  std::vector<bf16> v;
  for (int i = 0; i < count; i++) v.push_back(__float2bfloat16((float)((int)(random_word() % 33) - 16) / 16));
  return v;
}

static void test_epilogues()
{
  const int m = 24, n = 10, k = 40;
  Gemm g(m, n, k);
  const std::vector<bf16> a = numbers(m * k), b = numbers(n * k), bias = numbers(m), c = numbers(m * n);
  bf16 *A = to_device(a), *B = to_device(b), *D = to_device(c), *aux = on_device<bf16>((size_t)(m * n));
  g.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  g.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, to_device(bias));
  g.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  g.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)m);
  check(g.run(A, B, D, 1) == CUBLAS_STATUS_SUCCESS, "a product with bias, GELU and beta");
  const std::vector<bf16> d = from_device(D, (size_t)(m * n)), x = from_device(aux, (size_t)(m * n));
  std::vector<double> want;
  double worst = 0;
  auto note = [&worst](double got, double right) {
    const double e = std::fabs(got - right) / (1 + std::fabs(right));
    if (!(e <= worst)) worst = e;
  };
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      double sum = __bfloat162float(c[(size_t)(j * m + i)]) + __bfloat162float(bias[(size_t)i]);
      for (int q = 0; q < k; q++)
        sum += (double)__bfloat162float(a[(size_t)(i * k + q)]) * __bfloat162float(b[(size_t)(j * k + q)]);
      want.push_back(sum);
      note(__bfloat162float(x[want.size() - 1]), sum);
      note(__bfloat162float(d[want.size() - 1]),
           sum / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum))));
    }
  check(worst < 4e-3, "its values and what it keeps: %.1e", worst);
  g.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  check(g.run(A, B, D, 0) == CUBLAS_STATUS_SUCCESS, "the slope of GELU");
  const std::vector<bf16> s = from_device(D, (size_t)(m * n));
  worst = 0;
  for (size_t i = 0; i < want.size(); i++) {
    const double h = 1e-4, v = __bfloat162float(x[i]),
                 dy = want[i] - __bfloat162float(c[i]) - __bfloat162float(bias[i % m]);
    auto gelu = [](double z) { return z / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z))); };
    note(__bfloat162float(s[i]), dy * (gelu(v + h) - gelu(v - h)) / (2 * h));
  }
  check(worst < 4e-3, "against finite differences: %.1e", worst);
}

static void test_strictness()
{
  Gemm g(16, 16, 16), other(16, 32, 16);
  cublasLtMatmulPreference_t p;
  cublasLtMatmulHeuristicResult_t r[8];
  int found;
  uint64_t bytes = 1 << 20;
  bf16 *A = to_device(numbers(256)), *B = to_device(numbers(512)), *D = on_device<bf16>(512);
  char *workspace = on_device<char>(bytes);
  cublasLtMatmulPreferenceCreate(&p);
  cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
  cublasLtMatmulAlgoGetHeuristic(g.handle, g.product, g.a, g.b, g.d, g.d, p, 8, r, &found);
  check(found > 1, "several algorithms: %d", found);
  const cublasLtMatmulHeuristicResult_t &last = r[found > 0 ? found - 1 : 0];
  check(g.run(A, B, D, 0, &last.algo, workspace, last.workspaceSize) == CUBLAS_STATUS_SUCCESS, "the last one runs");
  check(g.run(A, B, D, 0, &last.algo, workspace, last.workspaceSize - 1) != CUBLAS_STATUS_SUCCESS,
        "not with less workspace");
  check(other.run(A, B, D, 0, &last.algo, workspace, bytes) != CUBLAS_STATUS_SUCCESS, "nor for another product");
  check(g.run(A + 1, B, D, 0) != CUBLAS_STATUS_SUCCESS, "a pointer of 2 bytes is refused");
  check(g.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (short)4) != CUBLAS_STATUS_SUCCESS,
        "so is an attribute of the wrong size");
  std::swap(g.d, other.d);
  check(g.run(A, B, D, 0) != CUBLAS_STATUS_SUCCESS, "and a wrong shape");
}

/* --- NCCL: each rank a process --- */

template <class F> static bool on_ranks(int size, F rank_main)
{
  std::vector<pid_t> children;
  for (int r = 0; r < size; r++) {
    const pid_t pid = fork();
    if (pid == 0) {
      fflush(stdout);
      _exit(rank_main(r) ? 0 : 1);
    }
    children.push_back(pid);
  }
  bool good = true;
  for (pid_t pid : children) {
    int status;
    waitpid(pid, &status, 0);
    good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

static ncclComm_t communicator(const ncclUniqueId &id, int size, int rank)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t c;
  ncclResult_t state = ncclInProgress;
  config.blocking = 0;
  ncclCommInitRankConfig(&c, size, id, rank, &config);
  while (state == ncclInProgress) ncclCommGetAsyncError(c, &state);
  return c;
}

static bool collectives(const ncclUniqueId &id, int rank)
{
  const int size = 3, n = 5;
  ncclComm_t c = communicator(id, size, rank);
  std::vector<float> mine;
  for (int i = 0; i < size * n; i++) mine.push_back((float)(rank * 100 + i));
  float *in = to_device(mine), *all = on_device<float>(size * n), *part = on_device<float>(n),
        *sum = on_device<float>(size * n);
  ncclGroupStart();
  ncclAllReduce(in, sum, size * n, ncclFloat32, ncclSum, c, nullptr);
  ncclReduceScatter(in, part, n, ncclFloat32, ncclSum, c, nullptr);
  ncclAllGather(in, all, n, ncclFloat32, c, nullptr);
  bool good = ncclGroupEnd() == ncclSuccess;
  ncclBroadcast(in, in, size * n, ncclFloat32, 2, c, nullptr);
  const std::vector<float> S = from_device(sum, size * n), P = from_device(part, n), A = from_device(all, size * n),
                           B = from_device(in, size * n);
  for (int i = 0; i < size * n; i++) {
    good &= S[(size_t)i] == (float)(300 + 3 * i) && B[(size_t)i] == (float)(200 + i);
    good &= A[(size_t)i] == (float)(i / n * 100 + i % n);
  }
  for (int i = 0; i < n; i++) good &= P[(size_t)i] == (float)(300 + 3 * (rank * n + i));
  ncclCommFinalize(c);
  return ncclCommDestroy(c) == ncclSuccess && good;
}

static bool halves(const ncclUniqueId &id, int rank)
{
  ncclComm_t c = communicator(id, 2, rank);
  bf16 *p = to_device(std::vector<bf16>(4, __float2bfloat16(rank ? 0.0078125f : 2.f)));
  ncclAllReduce(p, p, 4, ncclBfloat16, ncclSum, c, nullptr); /* 2 + 2^-7: halfway, to even */
  return __bfloat162float(from_device(p, 4)[3]) == 2.f;
}

static void test_nccl()
{
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  check(on_ranks(3, [&](int r) { return collectives(id, r); }),
        "AllReduce, ReduceScatter, AllGather, Broadcast on 3 ranks");
  ncclGetUniqueId(&id);
  check(on_ranks(2, [&](int r) { return halves(id, r); }), "a sum of bf16 is rounded once");
}

int main(int argc, char **)
{
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 1) test_nccl(); /* forks: before this process uses the device */
  begin();
  test_epilogues();
  test_strictness();
  return finish();
}
