/* src/train/evaluate.c - the mean loss of a model over a dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/evaluate.h"

#include "batch/sampler.h"
#include "train/stop.h"

static lm_status evaluate_local(const lm_comm *comm, lm_model *m, const lm_dataset *data, uint64_t windows, int micro,
                                int32_t *tokens, int32_t *targets, const lm_watched *watched, lm_loss *out,
                                lm_error *err)
{
  int T = (int)lm_model_config_of(m)->n_ctx;
  uint64_t first, count;
  lm_sample_slice(windows, comm->rank, comm->size, &first, &count);
  for (uint64_t done = 0; done < count && !lm_stop_requested();) {
    if (watched != NULL) lm_watchdog_phase(watched->watchdog, watched->step, "evaluation");
    int B = count - done < (uint64_t)micro ? (int)(count - done) : micro;
    for (int b = 0; b < B; b++)
      LM_TRY(lm_dataset_window(data, first + done + (uint64_t)b, T, tokens + (size_t)b * (size_t)T,
                               targets + (size_t)b * (size_t)T, err));
    lm_loss loss = lm_model_eval(m, tokens, targets, B, T);
    out->sum += loss.sum;
    out->count += loss.count;
    done += (uint64_t)B;
  }
  return LM_OK;
}

lm_status lm_evaluate(const lm_comm *comm, lm_model *m, const lm_dataset *data, uint64_t limit, int micro,
                      int32_t *tokens, int32_t *targets, const lm_watched *watched, lm_loss *out, lm_error *err)
{
  int T = (int)lm_model_config_of(m)->n_ctx;
  uint64_t targets_in_all = lm_dataset_info(data)->tokens - 1;
  uint64_t windows = (targets_in_all + (uint64_t)T - 1) / (uint64_t)T; /* the last one may be partial */
  if (limit > 0 && limit < windows) windows = limit;
  lm_loss mine = {0};
  lm_status s = evaluate_local(comm, m, data, windows, micro, tokens, targets, watched, &mine, err);
  LM_TRY(lm_agree(comm, s, err));
  double all[3] = {mine.sum, (double)mine.count, lm_stop_requested()};
  lm_allreduce_sum_f64(comm, all, 3);
  *out = all[2] > 0 ? (lm_loss){0} : (lm_loss){.sum = all[0], .count = (uint64_t)all[1]};
  return LM_OK;
}
