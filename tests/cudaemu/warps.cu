/* tests/cudaemu/warps.cu - divergence, shuffles, votes, barriers, atomics, calls, and orders that are no races. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <algorithm>

typedef unsigned u32;
constexpr u32 all_lanes = 0xffffffff;

template <class F> static bool every(int n, F holds)
{
  for (int i = 0; i < n; i++)
    if (!holds(i)) {
      printf("# wrong at %d\n", i);
      return false;
    }
  return true;
}

__global__ void shuffles(int *out)
{
  const int l = (int)threadIdx.x, v = 100 + l;
  out[l] = __shfl_sync(all_lanes, v, 5);
  out[32 + l] = __shfl_up_sync(all_lanes, v, 3);
  out[64 + l] = __shfl_down_sync(all_lanes, v, 3);
  out[96 + l] = __shfl_xor_sync(all_lanes, v, 9);
  out[128 + l] = __shfl_down_sync(all_lanes, v, 2, 8);
  out[160 + l] = __shfl_sync(all_lanes, v, 11, 8);
  out[192 + l] = (int)__double2ll_rn(__shfl_xor_sync(all_lanes, 0.5 + v, 1) * 2);
}

static void test_shuffles()
{
  int *out = on_device<int>(7 * 32);
  shuffles<<<1, 32>>>(out);
  const std::vector<int> g = from_device(out, 7 * 32);
  check(every(32, [&](int l) { return g[l] == 105; }), "shfl.idx");
  check(every(32, [&](int l) { return g[32 + l] == 100 + (l < 3 ? l : l - 3); }), "shfl.up");
  check(every(32, [&](int l) { return g[64 + l] == 100 + (l > 28 ? l : l + 3); }), "shfl.down");
  check(every(32, [&](int l) { return g[96 + l] == 100 + (l ^ 9); }), "shfl.bfly");
  check(every(32, [&](int l) { return g[128 + l] == 100 + (l % 8 > 5 ? l : l + 2); }), "shfl.down in segments of 8");
  check(every(32, [&](int l) { return g[160 + l] == 100 + l / 8 * 8 + 3; }), "shfl.idx in segments of 8");
  check(every(32, [&](int l) { return g[192 + l] == 201 + 2 * (l ^ 1); }), "shfl of 64 bits");
}

__global__ void votes(u32 *out)
{
  const u32 l = threadIdx.x, some = l % 3 == 0, mask = 0x0000fff0;
  out[l] = __ballot_sync(all_lanes, some);
  out[32 + l] =
      (u32)(__any_sync(all_lanes, l == 7) + 2 * __all_sync(all_lanes, l < 32) + 4 * __all_sync(all_lanes, l < 31));
  out[64 + l] = __match_any_sync(all_lanes, l % 5);
  out[96 + l] = __reduce_add_sync(all_lanes, l * l);
  out[128 + l] = (u32)__reduce_min_sync(all_lanes, (int)l - 20);
  out[160 + l] = mask >> l & 1 ? __ballot_sync(mask, l & 1) : 0;
  int same;
  __match_all_sync(all_lanes, 4, &same);
  out[192 + l] = (u32)same;
}

static void test_votes()
{
  u32 *out = on_device<u32>(7 * 32), thirds = 0, fives[5] = {0};
  votes<<<1, 32>>>(out);
  const std::vector<u32> g = from_device(out, 7 * 32);
  for (u32 l = 0; l < 32; l++) thirds |= (u32)(l % 3 == 0) << l;
  for (u32 l = 0; l < 32; l++) fives[l % 5] |= 1u << l;
  check(every(32, [&](int l) { return g[l] == thirds; }), "vote.ballot");
  check(every(32, [&](int l) { return g[32 + l] == 3; }), "vote.any, vote.all");
  check(every(32, [&](int l) { return g[64 + l] == fives[l % 5]; }), "match.any");
  check(every(32, [&](int l) { return g[96 + l] == 31 * 32 * 63 / 6; }), "redux.add");
  check(every(32, [&](int l) { return (int)g[128 + l] == -20; }), "redux.min of negative numbers");
  check(every(32, [&](int l) { return g[160 + l] == (l >= 4 && l < 16 ? 0xaaa0u : 0); }), "a vote of some lanes");
  check(every(32, [&](int l) { return g[192 + l] == 1; }), "match.all");
}

__device__ __noinline__ int collatz(int n) /* lanes leave the loop one by one; a call is made under divergence */
{
  int steps = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    steps++;
  }
  return steps;
}

__device__ int choose(int which, int v) /* a table of branches */
{
  switch (which) {
  case 0: return v + 1;
  case 1: return v * 2;
  case 2: return v * v;
  case 3: return -v;
  case 4: return v / 3;
  case 5: return v ^ 21;
  case 6: return v << 2;
  default: return 7;
  }
}

__global__ void diverges(int *out)
{
  const int t = (int)threadIdx.x;
  int r = t & 1 ? collatz(t + 1) : t & 2 ? -collatz(t + 2) : 0;
  for (int i = 0; i < t; i++) {
    if (i == 20) break;
    if (i % 3 == 1) continue;
    r += i;
  }
  int local[8];
  for (int i = 0; i < 8; i++) local[i] = t * i;
  r += local[t & 7];
  out[t] = r;
  int a = t, b = t; /* unlike in code that was unrolled, the index is known only here */
  for (int k = 0; k < 4; k++) a = choose((t + k) % 9, a);
  out[64 + t] = a;
  if (t >= 40) return;
  b += __popc(__activemask());
  out[128 + t] = b;
}

static int host_collatz(int n)
{
  int steps = 0;
  for (; n != 1; steps++) n = n % 2 ? 3 * n + 1 : n / 2;
  return steps;
}

static int host_choose(int which, int v)
{
  const int r[] = {v + 1,  (int)(2u * (u32)v), (int)((u32)v * (u32)v), (int)(0u - (u32)v), v / 3,
                   v ^ 21, (int)((u32)v << 2)};
  return which < 7 ? r[which] : 7;
}

static void test_divergence()
{
  int *out = on_device<int>(192);
  diverges<<<1, 64>>>(out);
  const std::vector<int> g = from_device(out, 192);
  check(every(64,
              [&](int t) {
                int r = t & 1 ? host_collatz(t + 1) : t & 2 ? -host_collatz(t + 2) : 0;
                for (int i = 0; i < t && i < 20; i++) r += i % 3 == 1 ? 0 : i;
                return g[t] == r + t * (t & 7);
              }),
        "loops, break, continue, calls, arrays of a thread");
  check(every(64,
              [&](int t) {
                int a = t;
                for (int k = 0; k < 4; k++) a = host_choose((t + k) % 9, a);
                return g[64 + t] == a;
              }),
        "a table of branches");
  check(every(40, [&](int t) { return g[128 + t] == t + (t < 32 ? 32 : 8); }), "lanes that returned are gone");
}

__global__ void barriers(int *out)
{
  __shared__ int s[96];
  extern __shared__ int dynamic[];
  const int t = (int)threadIdx.x;
  out[t] = __syncthreads_count(t % 3 == 0);
  out[96 + t] =
      (__syncthreads_and(t < 96) ? 1 : 0) + (__syncthreads_or(t == 95) ? 2 : 0) + (__syncthreads_or(t > 95) ? 4 : 0);
  s[t] = t * 7;
  dynamic[95 - t] = t;
  __syncthreads();
  out[192 + t] = s[95 - t] + dynamic[t];
  __syncthreads();
  if (t < 64) { /* two warps meet at a barrier of their own; the third never comes */
    s[t] = t;
    asm volatile("bar.sync 3, 64;" ::: "memory");
    out[288 + t] = s[63 - t];
  }
}

static void test_barriers()
{
  int *out = on_device<int>(400);
  barriers<<<1, 96, 96 * sizeof(int)>>>(out);
  const std::vector<int> g = from_device(out, 288 + 64);
  check(every(96, [&](int t) { return g[t] == 32; }), "bar.red.popc");
  check(every(96, [&](int t) { return g[96 + t] == 3; }), "bar.red.and, bar.red.or");
  check(every(96, [&](int t) { return g[192 + t] == (95 - t) * 7 + 95 - t; }), "shared memory, static and dynamic");
  check(every(64, [&](int t) { return g[288 + t] == 63 - t; }), "a named barrier of two warps");
}

__constant__ int table[4] = {3, 5, 7, 11};
__device__ int counter, most = -5;
__device__ unsigned ticket;
__device__ float sums[2];

__global__ void atomics(int *bins, float *f, unsigned *ring)
{
  __shared__ int local[8];
  const int t = (int)threadIdx.x;
  if (t < 8) local[t] = 0;
  __syncthreads();
  atomicAdd(&local[t % 8], table[t % 4]);
  __syncthreads();
  if (t < 8) atomicAdd(&bins[t], local[t]);
  atomicMax(&most, t * 3 - 100);
  atomicAdd(f, 0.5f);
  atomicInc(ring, 9);
  int old = *(volatile int *)&counter, seen;
  do {
    seen = old;
    old = atomicCAS(&counter, seen, seen + 2);
  } while (old != seen);
}

static void test_atomics()
{
  int *bins = to_device(std::vector<int>(8, 1)), value;
  float *f = to_device(std::vector<float>(1, 1));
  unsigned *ring = to_device(std::vector<unsigned>(1, 3));
  atomics<<<3, 64>>>(bins, f, ring);
  const std::vector<int> g = from_device(bins, 8);
  const int t[] = {3, 5, 7, 11};
  check(every(8, [&](int b) { return g[b] == 1 + 3 * 8 * t[b % 4]; }), "atom.add, shared and global; constants");
  CUDA(cudaMemcpyFromSymbol(&value, most, sizeof value));
  check(value == 89, "atom.max");
  CUDA(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  check(value == 2 * 192, "atom.cas in a loop");
  check(from_device(f, 1)[0] == 97, "atom.add.f32");
  check(from_device(ring, 1)[0] == (3 + 192) % 10, "atom.inc");
}

/* The last block adds up what all have written: ordered by a fence and an atomic. */
__global__ void last_block(float *part, float *total, unsigned blocks)
{
  __shared__ bool last;
  const unsigned t = threadIdx.x;
  part[blockIdx.x * 64 + t] = (float)(blockIdx.x + t);
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicInc(&ticket, blocks - 1) == blocks - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (unsigned b = 0; b < blocks; b++) sum += part[b * 64 + t];
  total[t] = sum;
}

static void test_grids()
{
  float *part = on_device<float>(5 * 64), *total = on_device<float>(64);
  last_block<<<5, 64>>>(part, total, 5);
  const std::vector<float> g = from_device(total, 64);
  check(every(64, [&](int t) { return g[t] == 10 + 5 * t; }), "the last block sums up the others");
}

__global__ void prints(const char *unused, double x)
{
  (void)unused;
  if (threadIdx.x == 1) printf("# the device says %d %.3f %s %llx\n", (int)threadIdx.x, x, "words", 1ull << 40);
}

int main()
{
  begin();
  test_shuffles();
  test_votes();
  test_divergence();
  test_barriers();
  test_atomics();
  test_grids();
  prints<<<1, 32>>>(nullptr, 2.5);
  CUDA(cudaDeviceSynchronize());
  return finish();
}
