/* tests/data/test_alone.c - one rank alone cannot take part in tokenizing: all ranks return its failure. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/data/token_data.h"
#include "text/tokenize.h"

enum { WIDTH = 2 };

static lm_comm comm;
static char folder[64], out[96], text[96];

static lm_status open_close(const char *near, lm_error *err)
{
  lm_spool *s;
  LM_TRY(lm_spool_open(&s, &comm, near, 1, false, WIDTH, err));
  lm_spool_close(s, &comm, false);
  return LM_OK;
}

static lm_status open_once(void *context, lm_error *err)
{
  return open_close(context, err);
}

/* A part of one document of two tokens, of each rank. */
static lm_status fill(lm_spool *s, lm_error *err)
{
  uint64_t length = 2;
  uint16_t ids[] = {1, 2};
  const lm_spool_part part[LM_SPLITS] = {
      {.ids = {(char *)ids, sizeof ids, 0}, .lengths = {(char *)&length, sizeof length, 0}}};
  lm_part_record record = {.id = {(uint64_t)comm.rank, 0}, .last = 1};
  LM_TRY(lm_spool_add(s, part, err));
  return lm_spool_finish_part(s, &record, err);
}

static lm_status place_once(void *context, lm_error *err)
{
  lm_spool *s;
  lm_part_record sum;
  LM_TRY(lm_spool_open(&s, &comm, context, 1, false, WIDTH, err));
  lm_status status = lm_agree(&comm, fill(s, err), err);
  if (status == LM_OK) status = lm_spool_place(s, &comm, &sum, err);
  LM_ASSERT(status != LM_OK || sum.tokens[LM_SPLIT_TRAIN] == 2 * (uint64_t)comm.size);
  lm_spool_close(s, &comm, false);
  return status;
}

static lm_status tokenize_once(void *vocab, lm_error *err)
{
  const char *path = text;
  lm_tokenize_result r;
  const lm_tokenize_config cfg = {
      .paths = &path, .n_paths = 1, .out = out, .part_bytes = 8, .documents = {.text_key = "text"}};
  lm_error ignored;
  lm_status s = lm_tokenize(&comm, vocab, &cfg, &r, err);
  LM_ASSERT(s != LM_OK || r.info[LM_SPLIT_TRAIN].documents == 4);
  if (s != LM_OK && open_close(out, &ignored) != LM_OK) abort(); /* throw away what was finished */
  return s;
}

int main(int argc, char **argv)
{
  tap_begin(&comm, argc, argv);
  lm_error err = {0};
  lm_vocab *vocab;
  char nowhere[96];
  scratch_folder(&comm, folder);
  snprintf(out, sizeof out, "%s/out.h5", folder);
  snprintf(text, sizeof text, "%s/text.jsonl", folder);
  snprintf(nowhere, sizeof nowhere, "%s/none/out.h5", folder);
  static const char lines[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n{\"text\":\"d\"}\n";
  if (comm.rank == 0 && lm_file_replace(text, lines, sizeof lines - 1, &err) != LM_OK) abort();
  if (lm_vocab_load(&vocab, "bytes", LM_PATTERN_GPT2, &err) != LM_OK) abort();
  lm_barrier(&comm);
  for (int bad = 0; bad < comm.size; bad++) {
    tap_alone(lm_spool_open, bad, open_close(comm.rank == bad ? nowhere : out, &err), LM_EINVAL, &err, "none/.out.h5");
    tap_alone_no_memory(lm_spool_open, &comm, bad, open_once, out);
    tap_alone_no_memory(lm_spool_place, &comm, bad, place_once, out);
    tap_alone_no_memory(lm_tokenize, &comm, bad, tokenize_once, vocab);
  }
  lm_vocab_free(vocab);
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(out), unlink(text);
  tap_ok(comm.rank != 0 || rmdir(folder) == 0, "no file is left behind");
  return tap_end();
}
