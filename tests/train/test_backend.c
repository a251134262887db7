/* tests/train/test_backend.c - which of the GPUs that a rank sees is its own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "train/backend.h"

#include <string.h>

static lm_error err;

static void own(int local_rank, int local_size, int visible, int want)
{
  int device;
  lm_status s = lm_backend_device(&device, local_rank, local_size, visible, &err);
  tap_ok(s == LM_OK && device == want, "rank %d of %d on a node, %d GPUs seen: GPU %d", local_rank, local_size, visible,
         want);
}

static void none(int local_size, int visible, const char *says)
{
  int device;
  tap_ok(lm_backend_device(&device, 0, local_size, visible, &err) == LM_EINVAL && strstr(err.text, says) != NULL,
         "%d ranks on a node that see %d GPUs are refused", local_size, visible);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  const lm_kernels *k;
  tap_begin(&comm, argc, argv);
  for (int i = 0; i < 4; i++) own(i, 4, 1, 0); /* one a task, chosen by the cluster */
  for (int i = 0; i < 4; i++) own(i, 4, 4, i);
  own(1, 2, 8, 1);
  own(0, 1, 8, 0);
  none(4, 2, "4 ranks, which see 2 GPUs");
  none(1, 0, "no visible GPU");
  tap_ok(lm_backend_start(&k, &comm, LM_BACKEND_CPU, &err) == LM_OK && k != NULL, "the CPU backend needs none");
  return tap_end();
}
