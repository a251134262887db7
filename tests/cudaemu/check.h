/* tests/cudaemu/check.h - for programs that run on the emulator: checks in TAP, memory for kernels. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_CHECK_H
#define EMU_CHECK_H

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

static int checks_made, checks_failed;

__attribute__((format(printf, 2, 3))) static inline bool check(bool holds, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  printf("%sok %d - ", holds ? "" : "not ", ++checks_made);
  vprintf(format, args);
  printf("\n");
  va_end(args);
  checks_failed += !holds;
  return holds;
}

static inline int finish()
{
  printf("1..%d\n", checks_made);
  return checks_failed > 0;
}

#define CUDA(call)                                                                                                     \
  do {                                                                                                                 \
    const cudaError_t error_ = (call);                                                                                 \
    if (error_ != cudaSuccess) {                                                                                       \
      printf("Bail out! %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                      \
      exit(99);                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* The programs are for the emulator: a real device would run them too, but not find their defects. */
static inline void begin()
{
  cudaDeviceProp p;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CUDA(cudaGetDeviceProperties(&p, 0));
  if (strstr(p.name, "emulator")) return;
  printf("Bail out! this is no emulator but %s\n", p.name);
  exit(99);
}

template <class T> T *to_device(const std::vector<T> &v)
{
  T *p;
  CUDA(cudaMalloc(&p, v.size() * sizeof(T)));
  CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

template <class T> T *on_device(size_t n)
{
  T *p;
  CUDA(cudaMalloc(&p, n * sizeof(T)));
  return p;
}

template <class T> std::vector<T> from_device(const T *p, size_t n)
{
  std::vector<T> v(n);
  CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
  return v;
}

static inline unsigned random_word()
{
  static unsigned long long state = 88172645463325252ull; /* xorshift: Marsaglia, J. Stat. Software 8 (2003) 14 */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (unsigned)(state >> 16);
}

#endif
