/* src/text/vocab_train.c - documents -> a vocabulary of byte-level BPE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_train.h"

#include "base/clock.h"
#include "base/log.h"
#include "text/learn_merges.h"
#include "text/parts.h"
#include "text/piece_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lm_status check_size(int64_t size, lm_error *err)
{
  if (LM_VOCAB_SIZE_MIN <= size && size <= LM_VOCAB_SIZE_MAX) return LM_OK;
  return lm_fail(err, LM_EINVAL,
                 "the size of the vocabulary is %lld, %d (256 bytes and the end of text) to %d was wanted",
                 (long long)size, LM_VOCAB_SIZE_MIN, LM_VOCAB_SIZE_MAX);
}

/* What this rank reads of the input, until it is done or `until`. */
static lm_status count_some(lm_piece_counts *c, lm_documents *d, lm_parts *p, lm_pattern pattern, double until,
                            bool *inside, bool *over, lm_error *err)
{
  lm_part_id id;
  while (lm_clock() < until) {
    const char *text;
    size_t n;
    if (!*inside) LM_TRY(lm_parts_next(p, &id, inside, err));
    *over = !*inside;
    if (*over) return LM_OK;
    LM_TRY(lm_documents_next(d, &text, &n, err));
    *inside = text != NULL;
    if (text != NULL) LM_TRY(lm_piece_counts_add_text(c, pattern, text, n, err));
  }
  return LM_OK;
}

/* Ranks meet every few seconds: a failure of one ends all. Collective. */
static lm_status count_all(lm_piece_counts *c, const lm_comm *comm, lm_documents *d, lm_parts *p, lm_pattern pattern,
                           const lm_documents_config *cfg, lm_error *err)
{
  const lm_documents_counts *read = lm_documents_count(d);
  bool inside = false, over = false;
  for (uint64_t working = 1; working > 0;) {
    LM_TRY(lm_agree(comm, count_some(c, d, p, pattern, lm_clock() + 5, &inside, &over, err), err));
    uint64_t sums[4] = {!over, read->bytes, read->documents, read->bad};
    lm_allreduce_sum_u64(comm, sums, 4);
    working = sums[0];
    if (cfg->skip_bad && sums[3] > (uint64_t)cfg->max_bad)
      return lm_fail(err, LM_EINVAL, "%llu broken records on all ranks, more than the %lld that may be skipped",
                     (unsigned long long)sums[3], (long long)cfg->max_bad);
    if (working > 0)
      lm_info("vocab train: %.1f MB of text, %llu documents", (double)sums[1] / 1e6, (unsigned long long)sums[2]);
  }
  return LM_OK;
}

/* Counts of all ranks; the words for a skipped record are those of the first rank that has some. Collective. */
static void report_read(const lm_documents *d, const lm_comm *comm, lm_vocab_report *report)
{
  const lm_documents_counts *c = lm_documents_count(d);
  uint64_t sums[6] = {c->documents, c->empty, c->bad, c->bytes, c->lone_surrogates, c->invalid_utf8};
  double nobody = c->bad > 0 ? -comm->rank : -comm->size;
  lm_allreduce_sum_u64(comm, sums, 6);
  lm_allreduce_max_f64(comm, &nobody, 1);
  report->read = (lm_documents_counts){sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
  snprintf(report->first_bad, sizeof report->first_bad, "%s", lm_documents_first_bad(d));
  if (-(int)nobody < comm->size) lm_bcast(comm, report->first_bad, sizeof report->first_bad, -(int)nobody);
}

static lm_status count(lm_piece_counts *c, const lm_comm *comm, const char *const *paths, size_t n_paths,
                       const lm_documents_config *cfg, lm_pattern pattern, lm_vocab_report *report, lm_error *err)
{
  lm_documents *d;
  lm_parts *p = NULL;
  lm_status s = lm_agree(comm, lm_documents_open(&d, paths, n_paths, cfg, err), err);
  if (s == LM_OK) s = lm_parts_plan(&p, comm, d, cfg, 0, err);
  if (s == LM_OK) s = count_all(c, comm, d, p, pattern, cfg, err);
  if (s == LM_OK) report_read(d, comm, report);
  lm_parts_free(p);
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
  LM_TRY(lm_agree(comm, check_size(size, err), err));
  lm_status s = count(&counts, comm, paths, n_paths, cfg, pattern, report, err);
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
