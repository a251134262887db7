/* kernels/cuda/module.h - what the program and its CUDA module know of each other. Needs no CUDA to be included. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_MODULE_H
#define LM_KERNELS_CUDA_MODULE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA libraries cost 0.4 s and 200 MB at every start, and a program linked to them does not start where they are
 * missing. So the backend is a module, mpilm_cuda.so, that kernels/select.c opens when a GPU is asked for. It exports
 * one name, lm_cuda_module, and uses nothing of the program but what the program hands over in lm_cuda_host. */

/** What the module needs of the program. */
typedef struct lm_cuda_host {
  lm_status (*fail)(lm_error *err, lm_status s, const char *format, ...) LM_PRINTF(3, 4); /* lm_fail() */
  void (*verbose)(const char *format, ...) LM_PRINTF(1, 2);                               /* lm_verbose() */
  /* End the job: work that was queued failed, and the ranks can no longer agree on it. Does not return. */
  void (*stop)(const char *why);
  bool tf32;     /* f32 products may round their factors to 11 bits: eight times as fast */
  bool tune;     /* time the algorithms of each product and take the fastest, which may be another one in another run */
  bool mma_sync; /* attention by mma.sync also on a device that has wgmma */
  bool plain;    /* GELU as a pass of its own, in no product */
  bool graph;    /* what repeats becomes a graph */
} lm_cuda_host;

/** What the program needs of the module. */
typedef struct lm_cuda_table {
  /* That of lm_kernels and of this table when the module was compiled: another build's module is refused. */
  size_t kernels_bytes, table_bytes;

  /** The devices that this process sees, at most `most` of them; *count is how many there are.
   *  LM_EINVAL with the driver's words where it has none. */
  lm_status (*devices)(const lm_cuda_host *host, lm_cuda_device *list, int most, int *count, lm_error *err);

  /** Start on a device, 0 <= device < count: its context, the stream of computation, cuBLASLt and its workspace.
   *  host is kept.  LM_EINVAL with the driver's words; *out is NULL then. */
  lm_status (*start)(const lm_kernels **out, const lm_cuda_host *host, int device, lm_error *err);
} lm_cuda_table;

__attribute__((visibility("default"))) extern const lm_cuda_table lm_cuda_module;

#ifdef __cplusplus
}
#endif
#endif
