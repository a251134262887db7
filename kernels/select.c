/* kernels/select.c - which backend computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"
#include "kernels/cpu/cpu.h"

#if LM_HAVE_CUDA
#include "base/log.h"
#include "comm/comm.h"
#include "kernels/cuda/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int device;

void lm_cuda_use_device(int wanted)
{
  device = wanted;
}

static void stop(const char *why)
{
  lm_comm comm;
  int started = 0;
  lm_comm_self(&comm);
  MPI_Initialized(&started);
  if (started) {
    comm.mpi = MPI_COMM_WORLD;
    MPI_Comm_rank(comm.mpi, &comm.rank);
  }
  lm_abort(&comm, "%s", why);
}

/* Where the module is: where MPILM_CUDA_MODULE says; where it was built, beside the program or, for a test or a
 * benchmark, a folder or two above it; where `make install` puts it. */
static void find_module(char *path, size_t size)
{
  char self[PATH_MAX];
  const char *named = getenv("MPILM_CUDA_MODULE");
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (named != NULL) {
    snprintf(path, size, "%s", named);
    return;
  }
  self[n > 0 ? n : 0] = '\0';
  for (int up = 0; n > 0 && up < 3; up++) {
    snprintf(path, size, "%s/.libs/mpilm_cuda.so", dirname(self));
    if (access(path, R_OK) == 0) return;
  }
  snprintf(path, size, "%s/mpilm_cuda.so", LM_PKGLIBDIR);
}

/* Open the module once. It stays open: CUDA does not unload well. */
static lm_status open_module(const lm_cuda_table **out, lm_error *err)
{
  static const lm_cuda_table *module;
  char path[PATH_MAX + 64];
  if (module == NULL) {
    find_module(path, sizeof path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return lm_fail(err, LM_EINVAL, "the CUDA module cannot be opened: %s", dlerror());
    const lm_cuda_table *found = dlsym(handle, "lm_cuda_module");
    if (found == NULL || found->kernels_bytes != sizeof(lm_kernels) || found->table_bytes != sizeof(lm_cuda_table))
      return lm_fail(err, LM_EINVAL, "%s is not the CUDA module of this build of mpilm", path);
    module = found;
  }
  *out = module;
  return LM_OK;
}

static lm_cuda_host host = {.fail = lm_fail, .verbose = lm_verbose, .stop = stop};

lm_status lm_cuda_driver(lm_error *err)
{
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == NULL) return lm_fail(err, LM_EINVAL, "no NVIDIA driver: %s", dlerror());
  dlclose(driver);
  return LM_OK;
}

lm_status lm_cuda_devices(lm_cuda_device *list, int most, int *count, lm_error *err)
{
  const lm_cuda_table *module;
  *count = 0;
  LM_TRY(open_module(&module, err));
  return module->devices(&host, list, most, count, err);
}

static bool is_set(const char *variable)
{
  const char *value = getenv(variable);
  return value != NULL && strcmp(value, "0") != 0 && strcmp(value, "") != 0;
}

static lm_status start_cuda(const lm_kernels **out, lm_error *err)
{
  const lm_cuda_table *module;
  lm_cuda_device list[1];
  int count;
  host.tf32 = is_set("MPILM_CUDA_TF32");
  host.tune = is_set("MPILM_CUDA_TUNE");
  host.graph = getenv("MPILM_CUDA_GRAPH") == NULL || is_set("MPILM_CUDA_GRAPH");
  host.mma_sync = is_set("MPILM_CUDA_MMA_SYNC");
  host.plain = is_set("MPILM_CUDA_PLAIN");
  LM_TRY(open_module(&module, err));
  LM_TRY(module->devices(&host, list, 1, &count, err));
  if (device >= count)
    return lm_fail(err, LM_EINVAL, "GPU %d is asked for, and there are %d, counted from 0", device, count);
  return module->start(out, &host, device, err);
}

#else /* no trace of it */

lm_status lm_cuda_driver(lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "%s", "");
}

void lm_cuda_use_device(int wanted)
{
  (void)wanted;
}

lm_status lm_cuda_devices(lm_cuda_device *list, int most, int *count, lm_error *err)
{
  (void)list, (void)most;
  *count = 0;
  return lm_fail(err, LM_EINVAL, "this build of mpilm has no CUDA");
}

static lm_status start_cuda(const lm_kernels **out, lm_error *err)
{
  (void)out;
  return lm_fail(err, LM_EINVAL, "this build of mpilm has no CUDA");
}

#endif

lm_status lm_kernels_select(const lm_kernels **out, lm_backend which, lm_error *err)
{
  *out = NULL;
  if (which == LM_BACKEND_CUDA) {
    lm_status s = start_cuda(out, err);
    return s == LM_OK ? s : lm_fail_in(err, s, "--backend=cuda");
  }
  if (which == LM_BACKEND_REF) {
    *out = &lm_kernels_ref;
    return LM_OK;
  }
  return lm_cpu_start(out, err);
}
