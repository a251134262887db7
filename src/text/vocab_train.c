/* src/text/vocab_train.c - documents -> a vocabulary of byte-level BPE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_train.h"

#include "base/clock.h"
#include "base/log.h"
#include "text/learn_merges.h"
#include "text/piece_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool includes_stdin(const char *const *paths, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (strcmp(paths[i], "-") == 0) return true;
  return false;
}

static lm_status count_documents(lm_piece_counts *c, lm_documents *d, lm_pattern pattern, int rank, int size,
                                 lm_error *err)
{
  const lm_documents_counts *read = lm_documents_count(d);
  double said = lm_clock();
  for (;;) {
    const char *text;
    size_t n;
    LM_TRY(lm_documents_next(d, &text, &n, err));
    if (text == NULL) return LM_OK;
    if ((read->documents - 1) % (uint64_t)size == (uint64_t)rank)
      LM_TRY(lm_piece_counts_add_text(c, pattern, text, n, err));
    if (lm_clock() - said > 5) {
      said = lm_clock();
      lm_info("vocab train: %.1f MB of text, %llu documents", (double)read->bytes / 1e6,
              (unsigned long long)read->documents);
    }
  }
}

static lm_status count_local(lm_piece_counts *c, const lm_comm *comm, const char *const *paths, size_t n_paths,
                             const lm_documents_config *cfg, int64_t size, lm_pattern pattern, lm_vocab_report *report,
                             lm_error *err)
{
  if (size < LM_VOCAB_SIZE_MIN || size > LM_VOCAB_SIZE_MAX)
    return lm_fail(err, LM_EINVAL,
                   "the size of the vocabulary is %lld, %d (256 bytes and the end of text) to %d was wanted",
                   (long long)size, LM_VOCAB_SIZE_MIN, LM_VOCAB_SIZE_MAX);
  bool alone = includes_stdin(paths, n_paths);
  if (alone && comm->rank != 0) return LM_OK;
  lm_documents *d;
  LM_TRY(lm_documents_open(&d, paths, n_paths, cfg, err));
  lm_status s = count_documents(c, d, pattern, comm->rank, alone ? 1 : comm->size, err);
  report->read = *lm_documents_count(d);
  snprintf(report->first_bad, sizeof report->first_bad, "%s", lm_documents_first_bad(d));
  lm_documents_close(d);
  if (s == LM_OK && report->read.documents == 0)
    s = lm_fail(err, LM_EINVAL, "no training text in %s%s: every document is empty", paths[0],
                n_paths > 1 ? " ..." : "");
  return s;
}

static lm_status learn_on_rank_0(const lm_piece_counts *c, const lm_comm *comm, size_t wanted, uint32_t (**merges)[2],
                                 size_t *n, lm_error *err)
{
  lm_status mine = comm->rank == 0 ? lm_learn_merges(c, wanted, merges, n, err) : LM_OK;
  LM_TRY(lm_agree(comm, mine, err));
  uint64_t shared = *n;
  lm_bcast(comm, &shared, sizeof shared, 0);
  *n = shared;
  if (comm->rank != 0) mine = lm_alloc(merges, *n, sizeof **merges, "the merges", err);
  LM_TRY(lm_agree(comm, mine, err));
  lm_bcast(comm, *merges, *n * sizeof **merges, 0);
  return LM_OK;
}

static lm_status train(lm_vocab **out, lm_piece_counts *c, uint32_t (**merges)[2], const lm_comm *comm, int64_t size,
                       lm_pattern pattern, lm_vocab_report *report, lm_error *err)
{
  double begin = lm_clock();
  size_t n = 0;
  LM_TRY(lm_piece_counts_reduce(c, comm, err));
  report->pieces = c->n;
  LM_TRY(learn_on_rank_0(c, comm, (size_t)size - LM_VOCAB_SIZE_MIN, merges, &n, err));
  report->merges = n;
  report->merge_seconds = lm_clock() - begin;
  lm_bcast(comm, report, sizeof *report, 0);
  return lm_agree(comm, lm_vocab_from_merges(out, (const uint32_t(*)[2]) * merges, n, pattern, err), err);
}

lm_status lm_vocab_train(lm_vocab **out, const lm_comm *comm, const char *const *paths, size_t n_paths,
                         const lm_documents_config *cfg, int64_t size, lm_pattern pattern, lm_vocab_report *report,
                         lm_error *err)
{
  lm_vocab_report unwanted;
  lm_piece_counts counts = {0};
  uint32_t(*merges)[2] = NULL;
  double begin = lm_clock();
  *out = NULL;
  if (report == NULL) report = &unwanted;
  *report = (lm_vocab_report){.pieces = 0};
  lm_status s = lm_agree(comm, count_local(&counts, comm, paths, n_paths, cfg, size, pattern, report, err), err);
  report->read_seconds = lm_clock() - begin;
  if (s == LM_OK) s = train(out, &counts, &merges, comm, size, pattern, report, err);
  lm_piece_counts_free(&counts);
  free(merges);
  if (s != LM_OK) {
    lm_vocab_free(*out);
    *out = NULL;
  }
  return s;
}
