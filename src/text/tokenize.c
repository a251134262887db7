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
static const double progress_seconds = 5;

/* A block of documents that this rank encodes. */
struct slot {
  lm_buffer text, ends; /* the documents back to back; where each ends (size_t) */
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
  lm_spool *spool;
  lm_encoder **encoders; /* [threads] */
  lm_ids *ids;           /* [threads]: scratch */
  int threads;
  struct slot *slots; /* [n_slots] */
  size_t n_slots, used;
  uint64_t *held; /* [size]: text that each rank holds in this round, the same on all ranks */
  bool ended;
  uint64_t rounds;
  uint64_t text_bytes[LM_SPLITS];
  uint64_t *file_begins; /* [files + 1]: bytes of the files before each, for progress */
  double began, told;
};

/* ---- one block ---- */

/* A whole document, as ids -> as stored. */
static lm_status narrow(const lm_ids *ids, int width, lm_spool_part *part, lm_error *err)
{
  size_t n = ids->size;
  uint64_t length = n;
  LM_TRY(lm_buffer_append(&part->lengths, &length, sizeof length, err));
  LM_TRY(lm_buffer_reserve(&part->ids, n * (size_t)width, err));
  char *to = part->ids.data + part->ids.size;
  if (width == 2) {
    uint16_t *narrow_to = (uint16_t *)(void *)to; /* aligned: the buffer holds nothing but ids */
    for (size_t i = 0; i < n; i++) narrow_to[i] = (uint16_t)ids->data[i];
  } else {
    memcpy(to, ids->data, n * sizeof *ids->data);
  }
  part->ids.size += n * (size_t)width;
  return LM_OK;
}

static lm_status push(lm_ids *ids, uint32_t id, lm_error *err)
{
  LM_TRY(lm_grow(&ids->data, &ids->capacity, ids->size + 1, sizeof *ids->data, err));
  ids->data[ids->size++] = id;
  return LM_OK;
}

static lm_status encode_slot(const struct tokenizer *t, struct slot *s, int thread, lm_error *err)
{
  const size_t *ends = (const size_t *)(const void *)s->ends.data;
  lm_ids *ids = &t->ids[thread];
  size_t begin = 0;
  for (size_t k = 0; k < s->ends.size / sizeof *ends; begin = ends[k++]) {
    const char *text = s->text.data + begin;
    size_t n = ends[k] - begin;
    int split = t->val_below > 0 && lm_hash(text, n) < t->val_below ? LM_SPLIT_VAL : LM_SPLIT_TRAIN;
    ids->size = 0;
    if (t->begin != LM_NO_ID) LM_TRY(push(ids, t->begin, err));
    LM_TRY(lm_encode(t->encoders[thread], text, n, false, ids, err));
    LM_TRY(push(ids, t->end, err));
    LM_TRY(narrow(ids, t->width, &s->part[split], err));
    s->text_bytes[split] += n;
  }
  return LM_OK;
}

static void empty_buffer(lm_buffer *b)
{
  b->size = 0;
  if (b->capacity > 4 * BLOCK_BYTES) lm_buffer_free(b); /* a huge document came by: its memory does not stay */
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

/* ---- one round: each rank reads the same stretch of the input and encodes its blocks of it ---- */

/* Read one block; keep it where `mine`, else only pass over it. */
static lm_status read_block(struct tokenizer *t, struct slot *mine, uint64_t *bytes, lm_error *err)
{
  *bytes = 0;
  while (*bytes < BLOCK_BYTES) {
    const char *text;
    size_t n;
    LM_TRY(lm_documents_next(t->documents, &text, &n, err));
    if (text == NULL) {
      t->ended = true;
      break;
    }
    *bytes += n;
    if (mine == NULL) continue;
    LM_TRY(lm_buffer_append(&mine->text, text, n, err));
    LM_TRY(lm_buffer_append(&mine->ends, &mine->text.size, sizeof mine->text.size, err));
  }
  return LM_OK;
}

/* A round is n_slots blocks a rank; fewer where huge documents would make one rank hold too much. */
static lm_status read_round(struct tokenizer *t, lm_error *err)
{
  uint64_t most = 0, limit = (uint64_t)t->n_slots * 2 * BLOCK_BYTES;
  memset(t->held, 0, (size_t)t->comm->size * sizeof *t->held);
  for (t->used = 0; t->used < t->n_slots && most < limit && !t->ended; t->used++) {
    struct slot *s = &t->slots[t->used];
    empty_slot(s);
    for (int owner = 0; owner < t->comm->size && !t->ended; owner++) {
      uint64_t bytes;
      LM_TRY(read_block(t, owner == t->comm->rank ? s : NULL, &bytes, err));
      t->held[owner] += bytes;
      most = t->held[owner] > most ? t->held[owner] : most;
    }
  }
  return LM_OK;
}

static lm_status encode_round(struct tokenizer *t, lm_error *err)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(t->threads)
  for (size_t k = 0; k < t->used; k++)
    t->slots[k].status = encode_slot(t, &t->slots[k], omp_get_thread_num(), &t->slots[k].err);
  for (size_t k = 0; k < t->used; k++) {
    struct slot *s = &t->slots[k];
    if (s->status != LM_OK) {
      if (err != NULL) *err = s->err;
      return s->status;
    }
    LM_TRY(lm_spool_add(t->spool, s->part, err));
    for (int i = 0; i < LM_SPLITS; i++) t->text_bytes[i] += s->text_bytes[i];
  }
  return LM_OK;
}

static lm_status round_local(struct tokenizer *t, lm_error *err)
{
  LM_TRY(read_round(t, err));
  LM_TRY(encode_round(t, err));
  if (lm_fault(LM_FAULT_DIE, ++t->rounds)) lm_fault_die();
  return LM_OK;
}

/* Every rank reads for itself: a node that sees another file must not end in a mixture of both. */
static lm_status check_same_input(struct tokenizer *t, lm_error *err)
{
  struct seen {
    uint64_t documents, bytes, ended;
  } mine, first;
  const lm_documents_counts *c = lm_documents_count(t->documents);
  mine = first = (struct seen){c->documents, c->bytes, t->ended};
  lm_bcast(t->comm, &first, sizeof first, 0);
  lm_status s = LM_OK;
  if (memcmp(&mine, &first, sizeof mine) != 0)
    s = lm_fail(err, LM_EINVAL,
                "this rank read %" PRIu64 " documents of %" PRIu64 " bytes where rank 0 read %" PRIu64 " of %" PRIu64
                ": all ranks must see the same input files",
                mine.documents, mine.bytes, first.documents, first.bytes);
  return lm_agree(t->comm, s, err);
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

static lm_status measure_files(struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  size_t files = lm_documents_files(t->documents);
  LM_TRY(lm_alloc(&t->file_begins, files + 1, sizeof *t->file_begins, "the sizes of the input files", err));
  for (size_t i = 0; i < files; i++) {
    struct stat st;
    const char *file = lm_documents_file(t->documents, i);
    bool known = stat(file, &st) == 0 && S_ISREG(st.st_mode);
    if (known) LM_TRY(check_not_output(file, &st, cfg, err));
    t->file_begins[i + 1] = t->file_begins[i] + (known ? (uint64_t)st.st_size : 0);
  }
  return LM_OK;
}

static void tell_progress(struct tokenizer *t)
{
  double now = lm_clock();
  if (now - t->told < progress_seconds || t->ended) return;
  t->told = now;
  double seconds = now - t->began, mib = (double)lm_documents_count(t->documents)->bytes / (1 << 20);
  lm_documents_place at = lm_documents_where(t->documents);
  double all = (double)t->file_begins[lm_documents_files(t->documents)];
  double done = (double)t->file_begins[at.file] + (double)at.position;
  if (all > 0 && done > 0)
    lm_info("tokenize: %5.1f %%, %.0f MiB of text, %.1f MiB/s, %.0f s left", 100 * done / all, mib, mib / seconds,
            seconds * (all - done) / done);
  else
    lm_info("tokenize: %.0f MiB of text, %.1f MiB/s", mib, mib / seconds);
}

/* ---- the whole ---- */

static lm_status find_borders(struct tokenizer *t, const char *begin, lm_error *err)
{
  t->begin = LM_NO_ID;
  t->end = lm_vocab_end_of_text(t->vocab);
  if (t->end == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "the vocabulary has no end-of-text token, which has to close every document");
  if (begin == NULL || begin[0] == '\0') return LM_OK;
  lm_ids *ids = &t->ids[0];
  ids->size = 0;
  LM_TRY(lm_encode(t->encoders[0], begin, strlen(begin), true, ids, err));
  if (ids->size != 1 || !lm_vocab_is_special(t->vocab, ids->data[0]))
    return lm_fail(err, LM_EINVAL, "'%s' is no special token of the vocabulary; documents cannot begin with it", begin);
  t->begin = ids->data[0];
  return LM_OK;
}

static lm_status new_local(struct tokenizer *t, const lm_tokenize_config *cfg, lm_error *err)
{
  LM_TRY(lm_documents_open(&t->documents, cfg->paths, cfg->n_paths, &cfg->documents, err));
  LM_TRY(measure_files(t, cfg, err));
  if (lm_vocab_end_of_text(t->vocab) == LM_NO_ID)
    return lm_fail(err, LM_EINVAL,
                   "the vocabulary has no special token for the end of text, which closes every document");
  LM_TRY(lm_spool_new(&t->spool, cfg->out, t->width, err));
  LM_TRY(lm_alloc(&t->slots, t->n_slots, sizeof *t->slots, "blocks of text", err));
  LM_TRY(lm_alloc(&t->held, (size_t)t->comm->size, sizeof *t->held, "the sizes of rounds", err));
  LM_TRY(lm_alloc(&t->ids, (size_t)t->threads, sizeof *t->ids, "ids of the threads", err));
  LM_TRY(lm_alloc(&t->encoders, (size_t)t->threads, sizeof(void *), "encoders of the threads", err));
  for (int i = 0; i < t->threads; i++) LM_TRY(lm_encoder_new(&t->encoders[i], t->vocab, err));
  return find_borders(t, cfg->begin, err);
}

static void clear(struct tokenizer *t)
{
  for (int i = 0; i < t->threads; i++) {
    if (t->encoders != NULL) lm_encoder_free(t->encoders[i]);
    if (t->ids != NULL) lm_ids_free(&t->ids[i]);
  }
  for (size_t k = 0; k < t->n_slots && t->slots != NULL; k++) {
    lm_buffer_free(&t->slots[k].text);
    lm_buffer_free(&t->slots[k].ends);
    for (int i = 0; i < LM_SPLITS; i++) {
      lm_buffer_free(&t->slots[k].part[i].ids);
      lm_buffer_free(&t->slots[k].part[i].lengths);
    }
  }
  free(t->encoders);
  free(t->ids);
  free(t->slots);
  free(t->held);
  free(t->file_begins);
  lm_spool_free(t->spool);
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

static lm_status encode_all(struct tokenizer *t, lm_error *err)
{
  while (!t->ended) {
    LM_TRY(lm_agree(t->comm, round_local(t, err), err));
    LM_TRY(check_same_input(t, err));
    tell_progress(t);
  }
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
  if (lm_fault(LM_FAULT_DIE, t->rounds + 1)) lm_fault_die();
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
  uint64_t tokens[LM_SPLITS], documents[LM_SPLITS];
  LM_TRY(lm_agree(t->comm, new_local(t, cfg, err), err));
  LM_TRY(encode_all(t, err));
  LM_TRY(lm_spool_place(t->spool, t->comm, tokens, documents, err));
  lm_allreduce_sum_u64(t->comm, t->text_bytes, LM_SPLITS);
  r->counts = *lm_documents_count(t->documents);
  snprintf(r->first_bad, sizeof r->first_bad, "%s", lm_documents_first_bad(t->documents));
  for (int i = 0; i < LM_SPLITS; i++) {
    r->text_bytes[i] = t->text_bytes[i];
    r->info[i] = (lm_token_info){.tokens = tokens[i],
                                 .documents = documents[i],
                                 .vocab_size = lm_vocab_size(t->vocab),
                                 .end_of_text = t->end,
                                 .begins_documents = t->begin != LM_NO_ID,
                                 .begin_of_text = t->begin != LM_NO_ID ? t->begin : 0,
                                 .vocab_fingerprint = lm_vocab_fingerprint(t->vocab)};
    name_sources(t->documents, r->info[i].sources, sizeof r->info[i].sources);
  }
  LM_TRY(check_splits(t, cfg, r, err));
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
  t.told = t.began;
  lm_status s = run(&t, cfg, result, err);
  result->seconds = lm_clock() - t.began;
  clear(&t);
  return s;
}
