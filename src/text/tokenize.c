/* src/text/tokenize.c - documents -> token datasets, on all ranks. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/tokenize.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, SLOTS_MIN = 8, SLOTS_MAX = 64 };
static const double agree_seconds = 5; /* ranks meet so often: to stop together, and for progress */

/* A block of documents of one part. */
struct slot {
  lm_buffer text, ends; /* the documents back to back; where each ends (size_t) */
  bool ends_part;       /* then the record says which, and what was read of it */
  lm_part_record record;
  lm_spool_part part[LM_SPLITS];
  uint64_t text_bytes[LM_SPLITS];
  lm_status status;
  lm_error err;
};

struct tokenizer {
  const lm_comm *comm;
  const lm_vocab *vocab;
  uint64_t val_below;  /* a document whose hash is below this goes to validation */
  uint32_t begin, end; /* ids that open and close a document; begin may be LM_NO_ID */
  int width;
  lm_documents *documents;
  lm_parts *parts;
  lm_spool *spool;
  lm_encoder **encoders; /* [threads] */
  lm_ids *ids;           /* [threads]: scratch */
  int threads;
  struct slot *slots[2]; /* [n_slots]: one set is read while the other is encoded */
  size_t n_slots, used[2];
  bool inside, ended;             /* of a part that is read; all parts of this rank are */
  lm_part_id id;                  /* that part */
  lm_documents_counts before;     /* what was counted before it */
  uint64_t text_bytes[LM_SPLITS]; /* of the part that is written */
  lm_part_id first_bad;           /* where the first skipped record of this rank is */
  uint64_t bad, bytes;            /* over all ranks and runs, as of the last meeting */
  uint64_t found_bad, found_bytes;
  double began;
  bool useless; /* what is finished: the same input and options cannot succeed */
};

/* ---- one block ---- */

/* Where the ids of a document go. */
typedef struct stored {
  lm_spool_part *part;
  int width;
  uint64_t length; /* of the document */
} stored;

/* Ids -> as stored. */
static lm_status narrow(void *context, const lm_ids *ids, lm_error *err)
{
  stored *to = context;
  lm_buffer *out = &to->part->ids;
  size_t n = ids->size, bytes = n * (size_t)to->width;
  LM_TRY(lm_buffer_reserve(out, bytes, err));
  char *at = out->data + out->size;
  if (to->width == 2) {
    uint16_t *narrow_to = (uint16_t *)(void *)at; /* aligned: the buffer holds nothing but ids */
    for (size_t i = 0; i < n; i++) narrow_to[i] = (uint16_t)ids->data[i];
  } else if (n > 0) {
    memcpy(at, ids->data, bytes);
  }
  out->size += bytes;
  to->length += n;
  return LM_OK;
}

static lm_status push(lm_ids *ids, uint32_t id, lm_error *err)
{
  LM_TRY(lm_grow(&ids->data, &ids->capacity, ids->size + 1, sizeof *ids->data, err));
  ids->data[ids->size++] = id;
  return LM_OK;
}

static lm_status encode_document(const struct tokenizer *t, const char *text, size_t n, lm_spool_part *part, int thread,
                                 lm_error *err)
{
  lm_ids *ids = &t->ids[thread];
  stored to = {.part = part, .width = t->width};
  ids->size = 0;
  if (t->begin != LM_NO_ID) LM_TRY(push(ids, t->begin, err));
  LM_TRY(lm_encode_stream(t->encoders[thread], text, n, false, ids, narrow, &to, err));
  LM_TRY(push(ids, t->end, err));
  LM_TRY(narrow(&to, ids, err));
  return lm_buffer_append(&part->lengths, &to.length, sizeof to.length, err);
}

static void empty_buffer(lm_buffer *b)
{
  b->size = 0;
  if (b->capacity > 4 * BLOCK_BYTES) lm_buffer_free(b); /* a huge document came by: its memory does not stay */
}

static lm_status encode_slot(const struct tokenizer *t, struct slot *s, int thread, lm_error *err)
{
  const size_t *ends = (const size_t *)(const void *)s->ends.data;
  size_t begin = 0;
  for (size_t k = 0; k < s->ends.size / sizeof *ends; begin = ends[k++]) {
    const char *text = s->text.data + begin;
    size_t n = ends[k] - begin;
    int split = t->val_below > 0 && lm_hash(text, n) < t->val_below ? LM_SPLIT_VAL : LM_SPLIT_TRAIN;
    LM_TRY(encode_document(t, text, n, &s->part[split], thread, err));
    s->text_bytes[split] += n;
  }
  empty_buffer(&s->text);
  return LM_OK;
}

static void empty_slot(struct slot *s)
{
  empty_buffer(&s->text);
  empty_buffer(&s->ends);
  for (int i = 0; i < LM_SPLITS; i++) {
    empty_buffer(&s->part[i].ids);
    empty_buffer(&s->part[i].lengths);
    s->text_bytes[i] = 0;
  }
}

/* ---- one round: a set of blocks is read while the one before is encoded ---- */

static void count_part(struct tokenizer *t, lm_documents_counts *out)
{
  const lm_documents_counts *now = lm_documents_count(t->documents), *before = &t->before;
  *out = (lm_documents_counts){.documents = now->documents - before->documents,
                               .empty = now->empty - before->empty,
                               .bad = now->bad - before->bad,
                               .bytes = now->bytes - before->bytes,
                               .lone_surrogates = now->lone_surrogates - before->lone_surrogates,
                               .invalid_utf8 = now->invalid_utf8 - before->invalid_utf8};
  if (now->bad > 0 && before->bad == 0) t->first_bad = t->id;
}

/* A block of the part that is being read, the rest of it if that is less. */
static lm_status read_block(struct tokenizer *t, struct slot *s, lm_error *err)
{
  const char *text;
  size_t n;
  s->ends_part = false;
  if (!t->inside) {
    t->before = *lm_documents_count(t->documents);
    LM_TRY(lm_parts_next(t->parts, &t->id, &t->inside, err));
    t->ended = !t->inside;
  }
  while (t->inside && s->text.size < BLOCK_BYTES) {
    LM_TRY(lm_documents_next(t->documents, &text, &n, err));
    if (text == NULL) {
      s->ends_part = true;
      s->record = (lm_part_record){.id = t->id, .last = lm_documents_ended(t->documents)};
      count_part(t, &s->record.counts);
      t->inside = false;
      return LM_OK;
    }
    LM_TRY(lm_buffer_append(&s->text, text, n, err));
    LM_TRY(lm_buffer_append(&s->ends, &s->text.size, sizeof s->text.size, err));
  }
  return LM_OK;
}

/* A set of blocks; fewer where huge documents would make it hold too much. */
static lm_status read_set(struct tokenizer *t, int set, lm_error *err)
{
  size_t held = 0;
  for (t->used[set] = 0; t->used[set] < t->n_slots && held < t->n_slots * BLOCK_BYTES && !t->ended;) {
    struct slot *s = &t->slots[set][t->used[set]];
    empty_slot(s);
    LM_TRY(read_block(t, s, err));
    held += s->text.size;
    if (!t->ended) t->used[set]++;
  }
  return LM_OK;
}

/* What was encoded goes to the spool, in the order of reading. */
static lm_status keep_set(struct tokenizer *t, int set, lm_error *err)
{
  for (size_t k = 0; k < t->used[set]; k++) {
    struct slot *s = &t->slots[set][k];
    if (s->status != LM_OK) {
      if (err != NULL) *err = s->err;
      return s->status;
    }
    if (s->ends.size > 0) LM_TRY(lm_spool_add(t->spool, s->part, err));
    for (int i = 0; i < LM_SPLITS; i++) empty_buffer(&s->part[i].ids);
    for (int i = 0; i < LM_SPLITS; i++) t->text_bytes[i] += s->text_bytes[i];
    if (!s->ends_part) continue;
    memcpy(s->record.text_bytes, t->text_bytes, sizeof t->text_bytes);
    memset(t->text_bytes, 0, sizeof t->text_bytes);
    LM_TRY(lm_spool_finish_part(t->spool, &s->record, err));
    if (lm_fault(LM_FAULT_DIE, lm_spool_finished(t->spool))) lm_fault_die();
  }
  return LM_OK;
}

static lm_status round_local(struct tokenizer *t, int set, lm_error *err)
{
  lm_status read = LM_OK;
  lm_error read_err = {.rank = -1};
#pragma omp parallel for schedule(dynamic, 1) num_threads(t->threads)
  for (size_t k = 0; k <= t->used[set]; k++) {
    struct slot *s = k > 0 ? &t->slots[set][k - 1] : NULL;
    if (s != NULL)
      s->status = encode_slot(t, s, omp_get_thread_num(), &s->err);
    else
      read = read_set(t, 1 - set, &read_err);
  }
  LM_TRY(keep_set(t, set, err));
  if (read != LM_OK && err != NULL) *err = read_err;
  return read;
}

/* ---- progress ---- */

/* A file that is read must not be replaced, be it named or found in a folder. */
static lm_status check_not_output(const char *file, const struct stat *st, const lm_tokenize_config *cfg, lm_error *err)
{
  const char *outputs[LM_SPLITS] = {cfg->out, cfg->val_out};
  for (int i = 0; i < LM_SPLITS; i++) {
    struct stat out;
    if (outputs[i] == NULL || stat(outputs[i], &out) != 0) continue;
    if (out.st_dev == st->st_dev && out.st_ino == st->st_ino)
      return lm_fail(err, LM_EINVAL, "%s: is an input and would be overwritten by %s", file, outputs[i]);
  }
  return LM_OK;
}

static lm_status check_outputs(const struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  for (size_t i = 0; i < lm_documents_files(t->documents) && t->comm->rank == 0; i++) {
    struct stat st;
    const char *file = lm_documents_file(t->documents, i);
    if (stat(file, &st) == 0 && S_ISREG(st.st_mode)) LM_TRY(check_not_output(file, &st, cfg, err));
  }
  return LM_OK;
}

static void tell_progress(const struct tokenizer *t, double done, double all)
{
  double seconds = lm_clock() - t->began, mib = (double)(t->bytes - t->found_bytes) / (1 << 20);
  double found = all > 0 && t->bytes > 0 ? done * (double)t->found_bytes / (double)t->bytes : 0;
  if (all > 0 && done > found)
    lm_info("tokenize: %5.1f %%, %.0f MiB of text, %.1f MiB/s, %.0f s left", 100 * done / all, mib, mib / seconds,
            seconds * (all - done) / (done - found));
  else
    lm_info("tokenize: %.0f MiB of text, %.1f MiB/s", mib, mib / seconds);
}

/* What all ranks have done, and whether all are at the end. Collective. */
static lm_status meet(struct tokenizer *t, const lm_tokenize_config *cfg, bool *over, lm_error *err)
{
  double done, all;
  lm_parts_progress(t->parts, &done, &all);
  const lm_documents_counts *c = lm_documents_count(t->documents);
  bool at_end = t->ended && t->used[0] == 0 && t->used[1] == 0;
  uint64_t sums[5] = {c->bad, c->bytes, !at_end, (uint64_t)done, (uint64_t)all};
  lm_allreduce_sum_u64(t->comm, sums, 5);
  t->bad = t->found_bad + sums[0];
  t->bytes = t->found_bytes + sums[1];
  *over = sums[2] == 0;
  if (cfg->documents.skip_bad && t->bad > (uint64_t)cfg->documents.max_bad)
    return lm_fail(err, LM_EINVAL, "%" PRIu64 " broken records on all ranks, more than the %lld that may be skipped",
                   t->bad, (long long)cfg->documents.max_bad);
  if (!*over) tell_progress(t, (double)sums[3], (double)sums[4]);
  return LM_OK;
}

static lm_status work_local(struct tokenizer *t, int *set, lm_error *err)
{
  double until = lm_clock() + agree_seconds;
  do {
    if (t->ended && t->used[*set] == 0) {
      t->used[1 - *set] = 0;
      return LM_OK;
    }
    LM_TRY(round_local(t, *set, err));
    t->used[*set] = 0;
    *set = 1 - *set;
  } while (lm_clock() < until);
  return LM_OK;
}

/* ---- the whole ---- */

static lm_status find_borders(struct tokenizer *t, const char *begin, lm_error *err)
{
  t->begin = LM_NO_ID;
  t->end = lm_vocab_end_of_text(t->vocab);
  if (t->end == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "the vocabulary has no end-of-text token, which has to close every document");
  if (begin == NULL || begin[0] == '\0') return LM_OK;
  return lm_vocab_begin_of_text(t->vocab, begin, &t->begin, err);
}

static lm_status new_local(struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  LM_TRY(lm_documents_open(&t->documents, cfg->paths, cfg->n_paths, &cfg->documents, err));
  LM_TRY(check_outputs(t, cfg, err));
  for (int i = 0; i < 2; i++) LM_TRY(lm_alloc(&t->slots[i], t->n_slots, sizeof **t->slots, "blocks of text", err));
  LM_TRY(lm_alloc(&t->ids, (size_t)t->threads, sizeof *t->ids, "ids of the threads", err));
  LM_TRY(lm_alloc(&t->encoders, (size_t)t->threads, sizeof(void *), "encoders of the threads", err));
  for (int i = 0; i < t->threads; i++) LM_TRY(lm_encoder_new(&t->encoders[i], t->vocab, err));
  return find_borders(t, cfg->begin, err);
}

static bool is_last(const void *record)
{
  return ((const lm_part_record *)record)->last != 0;
}

static bool is_clean(const lm_part_record *r)
{
  return r->counts.bad == 0;
}

/* All that decides the bytes of a part. */
static uint64_t fingerprint(const struct tokenizer *t)
{
  const uint64_t numbers[] = {lm_parts_fingerprint(t->parts),
                              lm_vocab_fingerprint(t->vocab),
                              t->val_below,
                              t->begin,
                              t->end,
                              (uint64_t)t->width};
  return lm_hash(numbers, sizeof numbers);
}

/* Plan, and find what an earlier run finished. Collective. */
static lm_status begin(struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  size_t n;
  LM_TRY(lm_agree(t->comm, new_local(t, cfg, err), err));
  LM_TRY(lm_parts_plan(&t->parts, t->comm, t->documents, &cfg->documents, cfg->part_bytes, err));
  LM_TRY(lm_spool_open(&t->spool, t->comm, cfg->out, fingerprint(t), lm_parts_repeatable(t->parts), t->width, err));
  if (!cfg->documents.skip_bad) lm_spool_filter(t->spool, is_clean);
  const lm_part_record *found = lm_spool_found(t->spool, &n);
  for (size_t k = 0; k < n; k++) {
    t->found_bytes += found[k].counts.bytes;
    t->found_bad += found[k].counts.bad;
  }
  t->bytes = t->found_bytes;
  lm_parts_skip(t->parts, found, n, sizeof *found, is_last);
  if (n > 0)
    lm_info("tokenize: goes on where an earlier run ended: %zu parts, %.1f MiB of text, are done", n,
            (double)t->found_bytes / (1 << 20));
  return LM_OK;
}

static void free_slot(struct slot *s)
{
  lm_buffer_free(&s->text);
  lm_buffer_free(&s->ends);
  for (int i = 0; i < LM_SPLITS; i++) {
    lm_buffer_free(&s->part[i].ids);
    lm_buffer_free(&s->part[i].lengths);
  }
}

static void clear(struct tokenizer *t, bool keep)
{
  for (int i = 0; i < t->threads; i++) {
    if (t->encoders != NULL) lm_encoder_free(t->encoders[i]);
    if (t->ids != NULL) lm_ids_free(&t->ids[i]);
  }
  for (int i = 0; i < 2; i++) {
    for (size_t k = 0; k < t->n_slots && t->slots[i] != NULL; k++) free_slot(&t->slots[i][k]);
    free(t->slots[i]);
  }
  free(t->encoders);
  free(t->ids);
  if (t->spool != NULL) lm_spool_close(t->spool, t->comm, keep);
  lm_parts_free(t->parts);
  lm_documents_close(t->documents);
}

static lm_status check_same_vocab(const lm_comm *comm, const lm_vocab *vocab, lm_error *err)
{
  uint64_t mine = lm_vocab_fingerprint(vocab), first = mine;
  lm_bcast(comm, &first, sizeof first, 0);
  lm_status s = LM_OK;
  if (mine != first)
    s = lm_fail(err, LM_EINVAL,
                "this rank's vocabulary has fingerprint %016" PRIx64 ", that of rank 0 has %016" PRIx64
                ": all ranks must see the same file",
                mine, first);
  return lm_agree(comm, s, err);
}

static lm_status encode_all(struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  int set = 0;
  for (bool over = false; !over;) {
    LM_TRY(lm_agree(t->comm, work_local(t, &set, err), err));
    LM_TRY(meet(t, cfg, &over, err));
  }
  return LM_OK;
}

/* The words for the first skipped record of the input: its rank tells all. Collective. */
static lm_status share_first_bad(struct tokenizer *t, char out[512], lm_error *err)
{
  struct {
    lm_part_id id;
    uint64_t none;
  } mine = {.id = t->first_bad, .none = lm_documents_count(t->documents)->bad == 0}, *all = NULL;
  LM_TRY(lm_alloc_agreed(t->comm, &all, (size_t)t->comm->size, sizeof *all, "the skipped records", err));
  lm_allgather(t->comm, &mine, sizeof mine, all);
  int first = -1;
  for (int r = 0; r < t->comm->size; r++)
    if (all[r].none == 0 && (first < 0 || lm_part_order(&all[r], &all[first]) < 0)) first = r;
  free(all);
  out[0] = '\0';
  if (first < 0) return LM_OK;
  snprintf(out, 512, "%s", lm_documents_first_bad(t->documents));
  lm_bcast(t->comm, out, 512, first);
  return LM_OK;
}

static void name_sources(const lm_documents *d, char *out, size_t n)
{
  size_t used = 0, files = lm_documents_files(d);
  out[0] = '\0';
  for (size_t i = 0; i < files; i++) {
    const char *file = lm_documents_file(d, i);
    if (used + strlen(file) + 8 > n) {
      snprintf(out + used, n - used, "%s...", i == 0 ? "" : "\n");
      return;
    }
    used += (size_t)snprintf(out + used, n - used, "%s%s", i == 0 ? "" : "\n", file);
  }
}

/* The same on all ranks: the numbers are. */
static lm_status check_splits(const struct tokenizer *t, const lm_tokenize_config *cfg, const lm_tokenize_result *r,
                              lm_error *err)
{
  uint64_t train = r->info[LM_SPLIT_TRAIN].documents, val = r->info[LM_SPLIT_VAL].documents;
  if (train + val == 0)
    return lm_fail(
        err, LM_EINVAL, "%s%s: no document that is not empty in the input (%" PRIu64 " empty, %" PRIu64 " skipped)",
        cfg->n_paths > 0 ? cfg->paths[0] : "", cfg->n_paths > 1 ? " and others" : "", r->counts.empty, r->counts.bad);
  if (t->val_below == 0 || (train > 0 && val > 0)) return LM_OK;
  return lm_fail(err, LM_EINVAL,
                 "%s: of %" PRIu64 " documents %s is held out at a validation fraction of %g; want some on both sides",
                 cfg->val_out, train + val, val == 0 ? "none" : "every one", cfg->val_fraction);
}

static lm_status write_local(struct tokenizer *t, int split, const char *part, lm_token_info *info, lm_error *err)
{
  LM_TRY(lm_spool_write(t->spool, split, part, info, &info->checksum, err));
  if (lm_fault(LM_FAULT_DIE, lm_spool_finished(t->spool) + 1)) lm_fault_die();
  if (lm_fault(LM_FAULT_FAIL_WRITE, 1)) return lm_fail(err, LM_EIO, "%s: a write fails, as MPILM_FAULT asks", part);
  return LM_OK;
}

/* Lay out, fill and commit the datasets. Collective. */
static lm_status write_all(struct tokenizer *t, const lm_tokenize_config *cfg, lm_tokenize_result *r, lm_error *err)
{
  const char *path[LM_SPLITS] = {cfg->out, cfg->val_out};
  char part[LM_SPLITS][4096];
  int splits = t->val_below > 0 ? LM_SPLITS : 1, made = 0, done = 0;
  lm_status s = LM_OK;
  for (; made < splits && s == LM_OK; made += s == LM_OK)
    s = lm_token_file_create(t->comm, path[made], &r->info[made], part[made], err);
  for (int i = 0; i < splits && s == LM_OK; i++) {
    lm_token_info *info = &r->info[i];
    s = lm_agree(t->comm, write_local(t, i, part[i], info, err), err);
    lm_allreduce_sum_u64(t->comm, &info->checksum, 1);
  }
  for (; done < splits && s == LM_OK; done += s == LM_OK)
    s = lm_token_file_commit(t->comm, part[done], path[done], &r->info[done], err);
  for (int i = done; i < made && t->comm->rank == 0; i++) unlink(part[i]);
  return s;
}

static lm_status run(struct tokenizer *t, const lm_tokenize_config *cfg, lm_tokenize_result *r, lm_error *err)
{
  lm_part_record sum;
  LM_TRY(begin(t, cfg, err));
  LM_TRY(encode_all(t, cfg, err));
  LM_TRY(share_first_bad(t, r->first_bad, err));
  LM_TRY(lm_spool_place(t->spool, t->comm, &sum, err));
  r->counts = sum.counts;
  r->found_bytes = t->found_bytes;
  for (int i = 0; i < LM_SPLITS; i++) {
    r->text_bytes[i] = sum.text_bytes[i];
    r->info[i] = (lm_token_info){.tokens = sum.tokens[i],
                                 .documents = sum.documents[i],
                                 .vocab_size = lm_vocab_size(t->vocab),
                                 .end_of_text = t->end,
                                 .begins_documents = t->begin != LM_NO_ID,
                                 .begin_of_text = t->begin != LM_NO_ID ? t->begin : 0,
                                 .vocab_fingerprint = lm_vocab_fingerprint(t->vocab)};
    name_sources(t->documents, r->info[i].sources, sizeof r->info[i].sources);
  }
  lm_status s = check_splits(t, cfg, r, err);
  t->useless = s != LM_OK;
  LM_TRY(s);
  return write_all(t, cfg, r, err);
}

lm_status lm_tokenize(const lm_comm *comm, const lm_vocab *vocab, const lm_tokenize_config *cfg,
                      lm_tokenize_result *result, lm_error *err)
{
  *result = (lm_tokenize_result){0};
  LM_TRY(check_same_vocab(comm, vocab, err));
  struct tokenizer t = {.comm = comm, .vocab = vocab, .threads = omp_get_max_threads(), .began = lm_clock()};
  bool holds_out = cfg->val_out != NULL && cfg->val_out[0] != '\0';
  LM_ASSERT(!holds_out || (cfg->val_fraction > 0 && cfg->val_fraction < 1));
  if (holds_out) t.val_below = (uint64_t)(cfg->val_fraction * 0x1p64) | (cfg->val_fraction < 0x1p-64);
  t.width = lm_token_width(lm_vocab_size(vocab));
  t.n_slots = 2 * (size_t)t.threads;
  if (t.n_slots < SLOTS_MIN) t.n_slots = SLOTS_MIN;
  if (t.n_slots > SLOTS_MAX) t.n_slots = SLOTS_MAX;
  lm_status s = run(&t, cfg, result, err);
  result->seconds = lm_clock() - t.began;
  clear(&t, s != LM_OK && !t.useless);
  return s;
}
