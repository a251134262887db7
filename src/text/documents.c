/* src/text/documents.c - files -> documents, in a stable order. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/documents.h"

#include "text/decompress.h"
#include "text/file_list.h"
#include "text/json_line.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Read so much at a time: a window holds the longest record and one such piece. */
enum { PIECE = 1 << 20 };

struct lm_documents {
  lm_documents_config cfg;
  lm_file_list files;
  size_t file; /* the one that is open; the next one where `source` is NULL */
  lm_source *source;
  bool jsonl;
  bool ended;       /* no more of the open file than what is in the window */
  lm_buffer window; /* [at, size) is not given out yet; no separator begins in [at, searched) */
  size_t at, searched;
  lm_buffer mended; /* the document given last, where bad bytes of it were replaced */
  uint64_t record, position;
  lm_documents_place place;
  lm_documents_counts counts;
  lm_error first_bad;
};

const lm_documents_counts *lm_documents_count(const lm_documents *d)
{
  return &d->counts;
}

const char *lm_documents_first_bad(const lm_documents *d)
{
  return d->first_bad.text;
}

size_t lm_documents_files(const lm_documents *d)
{
  return d->files.count;
}

const char *lm_documents_file(const lm_documents *d, size_t i)
{
  LM_ASSERT(i < d->files.count);
  return d->files.paths[i];
}

lm_documents_place lm_documents_where(const lm_documents *d)
{
  return d->place;
}

void lm_documents_close(lm_documents *d)
{
  if (d == NULL) return;
  lm_source_close(d->source);
  lm_buffer_free(&d->window);
  lm_buffer_free(&d->mended);
  lm_file_list_free(&d->files);
  free(d);
}

lm_status lm_documents_open(lm_documents **out, const char *const *paths, size_t n_paths,
                            const lm_documents_config *cfg, lm_error *err)
{
  *out = NULL;
  if (cfg->text_key == NULL || cfg->text_key[0] == '\0')
    return lm_fail(err, LM_EINVAL, "the text key of JSON Lines is empty, a name was wanted");
  lm_documents *d = calloc(1, sizeof *d);
  if (d == NULL) return lm_fail(err, LM_ENOMEM, "no memory for a reader");
  d->cfg = *cfg;
  if (d->cfg.separator == NULL) d->cfg.separator = "";
  lm_status s = lm_file_list_expand(&d->files, paths, n_paths, err);
  if (s != LM_OK)
    lm_documents_close(d);
  else
    *out = d;
  return s;
}

/* ---- the window ---- */

static lm_status refill(lm_documents *d, lm_error *err)
{
  size_t n;
  if (d->at > 0) {
    d->window.size -= d->at;
    memmove(d->window.data, d->window.data + d->at, d->window.size);
    d->searched -= d->at;
    d->at = 0;
  }
  LM_TRY(lm_buffer_reserve(&d->window, PIECE, err));
  LM_TRY(lm_source_read(d->source, d->window.data + d->window.size, PIECE, &n, err));
  d->window.size += n;
  d->window.data[d->window.size] = '\0';
  d->position = lm_source_position(d->source);
  d->ended = n == 0;
  return LM_OK;
}

/* "x.JSONL.gz" -> true */
static bool is_jsonl(const char *path)
{
  static const char *const packed[] = {".gz", ".dz", ".zst", ".zstd"}, *const lines[] = {".jsonl", ".ndjson", ".json"};
  size_t n = strlen(path);
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
    size_t m = strlen(packed[i]);
    if (n > m && strcasecmp(path + n - m, packed[i]) == 0) {
      n -= m;
      break;
    }
  }
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    size_t m = strlen(lines[i]);
    if (n >= m && strncasecmp(path + n - m, lines[i], m) == 0) return true;
  }
  return false;
}

static lm_status open_next(lm_documents *d, lm_error *err)
{
  const char *path = d->files.paths[d->file];
  LM_TRY(lm_source_open(&d->source, path, err));
  d->jsonl = d->cfg.format == LM_FORMAT_AUTO ? is_jsonl(path) : d->cfg.format == LM_FORMAT_JSONL;
  d->window.size = d->at = d->searched = 0;
  d->ended = false;
  d->record = 0;
  while (d->window.size < 3 && !d->ended) LM_TRY(refill(d, err));
  if (d->window.size >= 3 && memcmp(d->window.data, "\xef\xbb\xbf", 3) == 0) d->at = d->searched = 3;
  return LM_OK;
}

static char *find(char *text, size_t n, const char *separator, size_t m)
{
  return m == 0 || n < m ? NULL : m == 1 ? memchr(text, separator[0], n) : memmem(text, n, separator, m);
}

/* The record that begins at `at`: it ends before a separator or at the end of the file. *text is NULL where the file
 * has no further one. */
static lm_status next_record(lm_documents *d, const char *separator, char **text, size_t *n, lm_error *err)
{
  size_t m = strlen(separator);
  for (;;) {
    char *data = d->window.data;
    size_t size = d->window.size;
    char *hit = find(data + d->searched, size - d->searched, separator, m);
    if (hit != NULL || d->ended) {
      /* A file without a byte is still one (empty) document of text. */
      bool is_one = hit != NULL || d->at < size || (d->record == 0 && !d->jsonl);
      *text = is_one ? data + d->at : NULL;
      *n = (hit != NULL ? (size_t)(hit - data) : size) - d->at;
      d->at = d->searched = hit != NULL ? (size_t)(hit - data) + m : size;
      d->record += is_one;
      return LM_OK;
    }
    /* The last m - 1 bytes may begin a separator that the next piece completes. */
    size_t keep = m == 0 ? 0 : m - 1;
    if (size > d->at + keep && size - keep > d->searched) d->searched = size - keep;
    LM_TRY(refill(d, err));
  }
}

/* ---- records ---- */

static lm_status forgive(lm_documents *d, lm_status s, lm_error *err)
{
  if (s != LM_EINVAL) return s;
  const char *path = d->files.paths[d->file];
  s = lm_fail_in(err, s, "%s:%llu", strcmp(path, "-") == 0 ? "stdin" : path, (unsigned long long)d->record);
  if (!d->cfg.skip_bad) return s;
  if (d->counts.bad == 0 && err != NULL) d->first_bad = *err;
  d->counts.bad++;
  if (d->counts.bad <= (uint64_t)(d->cfg.max_bad < 0 ? 0 : d->cfg.max_bad)) return LM_OK;
  return lm_fail_in(err, s, "more than %lld broken records, the last", (long long)d->cfg.max_bad);
}

/* Why a record is no document: an error, or forgiven and none. */
static lm_status drop(lm_documents *d, lm_status s, lm_error *reason, lm_error *err)
{
  s = forgive(d, s, reason);
  if (s != LM_OK && err != NULL) *err = *reason;
  return s;
}

static lm_status text_of_line(lm_documents *d, char *line, size_t n, const char **text, size_t *size, bool *is_document,
                              lm_error *err)
{
  lm_error reason = {.rank = -1};
  *is_document = false;
  if (lm_json_line_is_blank(line, n)) return LM_OK;
  lm_status s = lm_json_line_text(line, n, d->cfg.text_key, text, size, &d->counts.lone_surrogates, &reason);
  *is_document = s == LM_OK;
  return s == LM_OK ? LM_OK : drop(d, s, &reason, err);
}

static lm_status check_utf8(lm_documents *d, const char **text, size_t *n, bool *is_document, lm_error *err)
{
  size_t at = lm_utf8_valid(*text, *n);
  if (at == *n) return LM_OK;
  lm_error reason = {.rank = -1};
  d->mended.size = 0;
  switch (d->cfg.invalid_utf8) {
  case LM_INVALID_KEEP: return lm_utf8_replace(*text, *n, NULL, &d->counts.invalid_utf8, err);
  case LM_INVALID_REPLACE:
    LM_TRY(lm_utf8_replace(*text, *n, &d->mended, &d->counts.invalid_utf8, err));
    *text = d->mended.data;
    *n = d->mended.size;
    return LM_OK;
  case LM_INVALID_REJECT: break;
  }
  *is_document = false;
  return drop(d, lm_utf8_reject(*text, at, &reason), &reason, err);
}

/* The next record of the open file that is a document, maybe an empty one; *text is NULL where the file is used up. */
static lm_status next_of_file(lm_documents *d, const char **text, size_t *n, lm_error *err)
{
  for (;;) {
    char *record;
    bool is_document = true;
    LM_TRY(next_record(d, d->jsonl ? "\n" : d->cfg.separator, &record, n, err));
    *text = record;
    if (record == NULL) return LM_OK;
    if (d->jsonl) LM_TRY(text_of_line(d, record, *n, text, n, &is_document, err));
    if (is_document) LM_TRY(check_utf8(d, text, n, &is_document, err));
    if (is_document) return LM_OK;
  }
}

lm_status lm_documents_next(lm_documents *d, const char **text, size_t *n, lm_error *err)
{
  *text = NULL;
  *n = 0;
  if (d->cfg.first_bytes > 0 && d->counts.bytes >= (uint64_t)d->cfg.first_bytes) return LM_OK;
  for (;;) {
    if (d->source == NULL) {
      if (d->file == d->files.count) return LM_OK;
      LM_TRY(open_next(d, err));
    }
    LM_TRY(next_of_file(d, text, n, err));
    if (*text == NULL) {
      lm_source_close(d->source);
      d->source = NULL;
      d->file++;
    } else if (*n == 0) {
      d->counts.empty++;
    } else {
      d->counts.documents++;
      d->counts.bytes += *n;
      d->place = (lm_documents_place){d->files.paths[d->file], d->file, d->record, d->position};
      return LM_OK;
    }
  }
}
