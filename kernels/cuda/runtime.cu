/* kernels/cuda/runtime.cu - the CUDA module's table: devices, the stream, errors, memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/attention.h"

#include <nvtx3/nvToolsExt.h>
#include <stdarg.h>
#include <stdio.h>

lm_cuda_state lm_cuda;

void lm_cuda_check(cudaError_t e, const char *what)
{
  if (e != cudaSuccess && !lm_cuda_spoils_graph(e))
    lm_cuda_stop("%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

void lm_cuda_stop(const char *format, ...)
{
  char why[512];
  int n = snprintf(why, sizeof why, "GPU %d: ", lm_cuda.device);
  va_list args;
  va_start(args, format);
  vsnprintf(why + n, sizeof why - static_cast<size_t>(n), format, args);
  va_end(args);
  lm_cuda.host->stop(why);
}

/* ---- devices ---- */

/* Of dense products with sums in f32, by NVIDIA's data sheets: FLOPs of a multiprocessor and a clock. A100 SXM bf16:
 * 108 x 2048 x 1.41 GHz = 312 TFLOP/s; H100 and H200 SXM: 132 x 4096 x 1.83 GHz = 989 TFLOP/s. */
static double rate_of(lm_dtype t, int major, int minor, int multiprocessors, int kilohertz)
{
  bool hopper = major >= 9, data_center = minor == 0;
  double of_halves = hopper ? 4096 : data_center ? 2048 : 1024, of_floats = hopper || !data_center ? 256 : 128;
  double clock = hopper && kilohertz > 1830000 ? 1.83e9 : 1e3 * kilohertz; /* tensor cores do not reach the last step */
  return multiprocessors * (t == LM_F32 ? of_floats : of_halves) * clock;
}

static lm_status devices(const lm_cuda_host *host, lm_cuda_device *list, int most, int *count, lm_error *err)
{
  *count = 0;
  int n = 0;
  cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess)
    return host->fail(err, LM_EINVAL, "no GPU can be used: %s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
  if (n == 0) return host->fail(err, LM_EINVAL, "no GPU can be used: the driver shows none");
  for (int i = 0; i < n && i < most; i++) {
    cudaDeviceProp p;
    int kilohertz = 0;
    e = cudaGetDeviceProperties(&p, i);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, i);
    if (e != cudaSuccess) return host->fail(err, LM_EINVAL, "GPU %d: %s", i, cudaGetErrorString(e));
    snprintf(list[i].name, sizeof list[i].name, "%s", p.name);
    list[i].major = p.major;
    list[i].minor = p.minor;
    list[i].multiprocessors = p.multiProcessorCount;
    list[i].bytes = p.totalGlobalMem;
    list[i].rate = rate_of(LM_BF16, p.major, p.minor, p.multiProcessorCount, kilohertz);
  }
  *count = n;
  return LM_OK;
}

/* ---- memory ---- */

/* How much of the device is free, for whoever is told that it is not enough. */
static lm_status no_memory(cudaError_t e, size_t bytes, const char *what, lm_error *err)
{
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return lm_cuda.host->fail(err, LM_ENOMEM, "no memory on GPU %d for %s (%zu bytes): %s; %zu of its %zu bytes are free",
                            lm_cuda.device, what, bytes, cudaGetErrorString(e), free, total);
}

lm_status lm_alloc_cuda(void **out, size_t bytes, const char *what, lm_error *err)
{
  *out = NULL;
  cudaError_t e = cudaMalloc(out, bytes == 0 ? 256 : bytes);
  if (e != cudaSuccess) {
    *out = NULL;
    cudaGetLastError(); /* it was said, and is over: the device is well */
    return no_memory(e, bytes, what, err);
  }
  lm_zero_cuda(*out, bytes);
  return LM_OK;
}

void lm_release_cuda(void *p)
{
  if (p == NULL) return;
  lm_cuda_forget_graphs();
  lm_cuda_check(cudaFree(p), "release");
}

void lm_zero_cuda(void *p, size_t bytes)
{
  if (bytes > 0) lm_cuda_check(cudaMemsetAsync(p, 0, bytes, lm_cuda.compute), "zero");
}

void lm_to_host_cuda(void *host, const void *device, size_t bytes)
{
  if (bytes > 0)
    lm_cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, lm_cuda.compute), "to_host");
  lm_cuda_check(cudaStreamSynchronize(lm_cuda.compute), "to_host, or an operation before it");
}

void *lm_cuda_scratch(size_t bytes, const char *what)
{
  static void *block;
  static size_t size;
  if (bytes > size) {
    lm_cuda_forget_graphs();
    lm_cuda_check(cudaFree(block), what); /* waits for what still uses it */
    lm_cuda_check(cudaMalloc(&block, bytes), what);
    size = bytes;
  }
  return block;
}

/* What the host hands over goes through pinned memory, so that the host need not wait for the device to get to it. A
 * slot of it is used again when the copy out of it is done. */
enum { SLOTS = 4 };
static const size_t SLOT_BYTES = 1 << 20;
static struct {
  char *memory[SLOTS];
  cudaEvent_t free[SLOTS];
  unsigned next;
} staging;

static cudaError_t make_staging(void)
{
  for (int i = 0; i < SLOTS; i++) {
    cudaError_t e = cudaMallocHost((void **)&staging.memory[i], SLOT_BYTES);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&staging.free[i], cudaEventDisableTiming);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

void lm_to_device_cuda(void *device, const void *host, size_t bytes)
{
  for (size_t at = 0; at < bytes;) {
    unsigned slot = staging.next++ % SLOTS;
    size_t n = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
    lm_cuda_check(cudaEventSynchronize(staging.free[slot]), "to_device, or an operation before it");
    memcpy(staging.memory[slot], (const char *)host + at, n);
    lm_cuda_check(
        cudaMemcpyAsync((char *)device + at, staging.memory[slot], n, cudaMemcpyHostToDevice, lm_cuda.compute),
        "to_device");
    lm_cuda_check(cudaEventRecord(staging.free[slot], lm_cuda.compute), "to_device");
    at += n;
  }
}

static size_t available(void)
{
  size_t free = 0, total = 0;
  lm_cuda_check(cudaMemGetInfo(&free, &total), "available");
  return free;
}

/* NVTX is a header: without a profiler a call is a test of a pointer. */
static void phase(const char *name)
{
  static bool inside;
  if (inside) nvtxRangePop();
  nvtxRangePushA(name);
  inside = true;
}

static double product_rate(lm_dtype t)
{
  int kilohertz = 0;
  lm_cuda_check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, lm_cuda.device), "product_rate");
  return rate_of(t, lm_cuda.major, lm_cuda.minor, lm_cuda.multiprocessors, kilohertz);
}

/* ---- the table ---- */

static lm_kernels table;

static void fill_table(void)
{
  static char isa[16];
  snprintf(isa, sizeof isa, "sm_%d%d", lm_cuda.major, lm_cuda.minor);
  table.name = "cuda";
  table.isa = isa;
  table.on_device = true;
  table.fabric = lm_cuda_fabric();
  table.copies = lm_cuda_copies();
  table.repeat = lm_cuda.host->graph ? lm_repeat_cuda : NULL;
  table.recorded = lm_cuda.host->graph ? lm_recorded_cuda : NULL;
  table.mark = lm_mark_cuda;
  table.between = lm_between_cuda;
  table.product_rate = product_rate;
  table.available = available;
  table.phase = phase;
  table.alloc = lm_alloc_cuda;
  table.release = lm_release_cuda;
  table.zero = lm_zero_cuda;
  table.to_device = lm_to_device_cuda;
  table.to_host = lm_to_host_cuda;
  table.cast = lm_cast_cuda;
  table.embedding_fwd = lm_embedding_fwd_cuda;
  table.embedding_bwd = lm_embedding_bwd_cuda;
  table.layernorm_fwd = lm_layernorm_fwd_cuda;
  table.layernorm_bwd = lm_layernorm_bwd_cuda;
  table.linear_fwd = lm_linear_fwd_cuda;
  table.linear_bwd_input = lm_linear_bwd_input_cuda;
  table.linear_bwd_weight = lm_linear_bwd_weight_cuda;
  table.linear_gelu_fwd = lm_linear_gelu_fwd_cuda;
  table.linear_gelu_bwd = lm_linear_gelu_bwd_cuda;
  table.gelu_fwd = lm_gelu_fwd_cuda;
  table.gelu_bwd = lm_gelu_bwd_cuda;
  table.rmsnorm_fwd = lm_rmsnorm_fwd_cuda;
  table.rmsnorm_bwd = lm_rmsnorm_bwd_cuda;
  table.qk_norm_fwd = lm_qk_norm_fwd_cuda;
  table.qk_norm_bwd = lm_qk_norm_bwd_cuda;
  table.rope = lm_rope_cuda;
  table.swiglu_fwd = lm_swiglu_fwd_cuda;
  table.swiglu_bwd = lm_swiglu_bwd_cuda;
  table.dropout = lm_dropout_cuda;
  table.attention_fwd = lm_attention_fwd_cuda;
  table.attention_bwd = lm_attention_bwd_cuda;
  table.cache_store = lm_cache_store_cuda;
  table.attention_next = lm_attention_next_cuda;
  table.cross_entropy = lm_cross_entropy_cuda;
  table.sum = lm_sum_cuda;
  table.sum_squares = lm_sum_squares_cuda;
  table.scale = lm_scale_cuda;
  table.add = lm_add_cuda;
  table.adamw = lm_adamw_cuda;
  table.sgd = lm_sgd_cuda;
  table.adamw_all = lm_adamw_all_cuda;
  table.sgd_all = lm_sgd_all_cuda;
  table.sum_squares_all = lm_sum_squares_all_cuda;
}

static lm_status start(const lm_kernels **out, const lm_cuda_host *host, int device, lm_error *err)
{
  *out = NULL;
  cudaDeviceProp p;
  lm_cuda.host = host;
  cudaError_t e = cudaSetDevice(device);
  if (e == cudaSuccess) e = cudaGetDeviceProperties(&p, device);
  if (e == cudaSuccess && lm_cuda.compute == NULL) {
    e = cudaStreamCreateWithFlags(&lm_cuda.compute, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = make_staging();
    if (e == cudaSuccess) e = lm_cuda_start_copies();
  }
  if (e != cudaSuccess)
    return host->fail(err, LM_EINVAL, "GPU %d cannot be used: %s (%s)", device, cudaGetErrorString(e),
                      cudaGetErrorName(e));
  if (p.major < 8)
    return host->fail(err, LM_EINVAL, "GPU %d, %s, has compute capability %d.%d; want 8.0 or above", device, p.name,
                      p.major, p.minor);
  lm_cuda.device = device;
  lm_cuda.major = p.major;
  lm_cuda.minor = p.minor;
  lm_cuda.shared_bytes = p.sharedMemPerBlockOptin;
  lm_cuda.cache_bytes = static_cast<size_t>(p.l2CacheSize);
  lm_cuda.multiprocessors = p.multiProcessorCount;
  host->verbose("GPU %d: %s, sm_%d%d, %d multiprocessors, %zu bytes", device, p.name, p.major, p.minor,
                p.multiProcessorCount, p.totalGlobalMem);
  fill_table();
  lm_cuda_attention_start();
  lm_status s = lm_cuda_linear_start(err);
  if (s != LM_OK) return s;
  *out = &table;
  return LM_OK;
}

extern "C" {
const lm_cuda_table lm_cuda_module = {sizeof(lm_kernels), sizeof(lm_cuda_table), devices, start};
}
