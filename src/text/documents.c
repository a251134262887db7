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
  size_t file;     /* the one that is open; the next one where `source` is NULL */
  size_t file_end; /* no file from this one on is read */
  lm_source *source;
  bool jsonl;
  bool ended;                       /* no more of the open file than what is in the window */
  lm_buffer window;                 /* [at, size) is not given out yet; no separator begins in [at, searched) */
  size_t at, searched, margin;      /* so many bytes before `at` are kept: a separator's less one */
  uint64_t origin;                  /* of the window in the unpacked file */
  uint64_t part, part_bytes, limit; /* the part that is read ends with a separator at or behind byte `limit` */
  uint64_t border;                  /* the separator that ended a part, or in front of which it begins */
  bool part_over;
  bool numbered; /* `record` counts from the start of the file; else from the byte that follows */
  uint64_t record_base;
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
  d->file_end = d->files.count;
  d->limit = UINT64_MAX;
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
  size_t drop = d->at > d->margin ? d->at - d->margin : 0;
  if (drop > 0) {
    d->window.size -= drop;
    memmove(d->window.data, d->window.data + drop, d->window.size);
    d->searched -= drop;
    d->at -= drop;
    d->origin += drop;
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

static const char *separator_of(const lm_documents *d)
{
  return d->jsonl ? "\n" : d->cfg.separator;
}

static bool holds_lines(const lm_documents *d, const char *path)
{
  return d->cfg.format == LM_FORMAT_AUTO ? is_jsonl(path) : d->cfg.format == LM_FORMAT_JSONL;
}

bool lm_documents_has_records(const lm_documents *d, size_t file)
{
  return holds_lines(d, lm_documents_file(d, file)) || d->cfg.separator[0] != '\0';
}

static lm_status open_next(lm_documents *d, lm_error *err)
{
  const char *path = d->files.paths[d->file];
  LM_TRY(lm_source_open(&d->source, path, err));
  d->jsonl = holds_lines(d, path);
  d->window.size = d->at = d->searched = 0;
  d->margin = separator_of(d)[0] != '\0' ? strlen(separator_of(d)) - 1 : 0;
  d->origin = d->border = d->record = 0;
  d->ended = false;
  d->numbered = true;
  while (d->window.size < 3 && !d->ended) LM_TRY(refill(d, err));
  if (d->window.size >= 3 && memcmp(d->window.data, "\xef\xbb\xbf", 3) == 0) d->at = d->searched = 3;
  return LM_OK;
}

static char *find(char *text, size_t n, const char *separator, size_t m)
{
  return m == 0 || n < m ? NULL : m == 1 ? memchr(text, separator[0], n) : memmem(text, n, separator, m);
}

/* Does no other separator overlap the one at window byte i? Then a reader that comes from anywhere takes it for one. */
static bool stands_alone(const lm_documents *d, size_t i, const char *separator, size_t m)
{
  size_t before = i < m - 1 ? i : m - 1;
  return m == 1 || find(d->window.data + i - before, before + m - 1, separator, m) == NULL;
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
      bool is_one = hit != NULL || d->at < size || (d->record == 0 && d->numbered && !d->jsonl);
      *text = is_one ? data + d->at : NULL;
      *n = (hit != NULL ? (size_t)(hit - data) : size) - d->at;
      d->at = d->searched = hit != NULL ? (size_t)(hit - data) + m : size;
      d->record += is_one;
      if (hit != NULL && d->origin + (uint64_t)(hit - data) >= d->limit &&
          stands_alone(d, (size_t)(hit - data), separator, m)) {
        d->border = d->origin + (uint64_t)(hit - data);
        d->part_over = true;
      }
      return LM_OK;
    }
    /* The last m - 1 bytes may begin a separator that the next piece completes. */
    size_t keep = m == 0 ? 0 : m - 1;
    if (size > d->at + keep && size - keep > d->searched) d->searched = size - keep;
    LM_TRY(refill(d, err));
  }
}

/* ---- parts ---- */

/* Let the window begin at byte `want` of the unpacked file, or a little before it, unless the file ends earlier. */
static lm_status skip(lm_documents *d, uint64_t want, lm_error *err)
{
  if (d->origin + d->window.size < want && lm_source_is_plain(d->source)) {
    LM_TRY(lm_source_seek(d->source, want, err));
    d->window.size = d->at = d->searched = 0;
    d->origin = want;
    d->ended = false;
  }
  while (d->origin + d->window.size <= want && !d->ended) {
    d->at = d->searched = d->window.size;
    LM_TRY(refill(d, err));
  }
  size_t there = want > d->origin ? (size_t)(want - d->origin) : 0;
  d->at = d->searched = there < d->window.size ? there : d->window.size;
  return LM_OK;
}

/* Go behind the first separator that stands alone at or behind byte `from`; to the end of the file where none is. */
static lm_status enter(lm_documents *d, uint64_t from, lm_error *err)
{
  const char *separator = separator_of(d);
  size_t m = strlen(separator);
  LM_TRY(skip(d, from > m - 1 ? from - (m - 1) : 0, err));
  for (uint64_t next = from;;) {
    size_t i = next > d->origin ? (size_t)(next - d->origin) : 0;
    char *data = d->window.data, *hit = i < d->window.size ? find(data + i, d->window.size - i, separator, m) : NULL;
    if (hit != NULL) {
      size_t where = (size_t)(hit - data);
      d->at = d->searched = where;
      next = d->origin + where + 1;
      if (!stands_alone(d, where, separator, m)) continue;
      d->border = d->origin + where;
      d->at = d->searched = where + m;
      break;
    }
    if (d->window.size >= m && d->origin + d->window.size - (m - 1) > next) next = d->origin + d->window.size - (m - 1);
    d->at = d->searched = next > d->origin + d->window.size ? d->window.size : (size_t)(next - d->origin);
    if (d->ended) {
      d->border = UINT64_MAX;
      d->at = d->searched = d->window.size;
      break;
    }
    LM_TRY(refill(d, err));
  }
  d->numbered = false;
  d->record = 0;
  d->record_base = d->origin + d->at;
  return LM_OK;
}

static void close_file(lm_documents *d)
{
  lm_source_close(d->source);
  d->source = NULL;
  d->file++;
}

lm_status lm_documents_part(lm_documents *d, size_t first, size_t count, uint64_t part, uint64_t part_bytes,
                            lm_error *err)
{
  LM_ASSERT(count >= 1 && first + count <= d->files.count);
  bool is_cut = count == 1 && part_bytes > 0 && lm_documents_has_records(d, first);
  bool goes_on =
      is_cut && d->source != NULL && d->file == first && d->part_over && d->part_bytes == part_bytes && part > d->part;
  LM_ASSERT(is_cut || part == 0);
  uint64_t from = part * part_bytes;
  if (!goes_on) {
    if (d->source != NULL) close_file(d);
    d->file = first;
    d->file_end = first + count;
    LM_TRY(open_next(d, err));
  }
  d->part = part;
  d->part_bytes = part_bytes;
  d->limit = is_cut ? from + part_bytes : UINT64_MAX;
  if (part > 0 && !(goes_on && d->border >= from)) LM_TRY(enter(d, from, err));
  d->part_over = part > 0 && d->border >= d->limit;
  if (d->border == UINT64_MAX) close_file(d);
  return LM_OK;
}

bool lm_documents_ended(const lm_documents *d)
{
  return d->source == NULL && d->file == d->file_end;
}

/* ---- records ---- */

/* A reader that entered a file in the middle counts what is before only where a number is wanted: for an error. */
static lm_status number_record(lm_documents *d, lm_error *err)
{
  if (d->numbered) return LM_OK;
  lm_documents *before;
  const char *path = d->files.paths[d->file];
  LM_TRY(lm_documents_open(&before, &path, 1, &d->cfg, err));
  lm_status s = open_next(before, err);
  while (s == LM_OK && before->origin + before->at < d->record_base) {
    char *text;
    size_t n;
    s = next_record(before, separator_of(before), &text, &n, err);
    if (text == NULL) break;
  }
  d->record += before->record;
  d->numbered = true;
  lm_documents_close(before);
  return s;
}

static lm_status forgive(lm_documents *d, lm_status s, lm_error *err)
{
  if (s != LM_EINVAL) return s;
  LM_TRY(number_record(d, err));
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
    *text = NULL;
    if (d->part_over) return LM_OK;
    LM_TRY(next_record(d, separator_of(d), &record, n, err));
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
      if (d->file >= d->file_end) return LM_OK;
      LM_TRY(open_next(d, err));
    }
    LM_TRY(next_of_file(d, text, n, err));
    if (*text == NULL) {
      if (d->part_over) return LM_OK;
      close_file(d);
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
