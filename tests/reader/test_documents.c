/* tests/reader/test_documents.c - files of every kind -> documents; broken ones -> a sentence. */
/* SPDX-License-Identifier: BSD-3-Clause */
#define ZLIB_CONST 1

#include "base/rng.h"
#include "tests/tap.h"
#include "text/documents.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char scratch[PATH_MAX];
static const lm_documents_config plain = {.text_key = "text", .separator = ""};

/* Everything a stream gives, with '|' before each document, and how it ended. */
typedef struct reading {
  lm_buffer text;
  lm_documents_counts counts;
  lm_status status;
  lm_error err;
  char first_bad[960];
} reading;

static reading read_paths(const char *const *paths, size_t n, const lm_documents_config *cfg)
{
  reading r = {.text = {0}};
  lm_documents *d = NULL;
  const char *text = "";
  size_t size;
  r.status = lm_documents_open(&d, paths, n, cfg, &r.err);
  while (r.status == LM_OK && text != NULL) {
    r.status = lm_documents_next(d, &text, &size, &r.err);
    if (r.status != LM_OK || text == NULL) break;
    r.status = lm_buffer_append(&r.text, "|", 1, &r.err);
    if (r.status == LM_OK) r.status = lm_buffer_append(&r.text, text, size, &r.err);
  }
  if (d != NULL) r.counts = *lm_documents_count(d);
  if (d != NULL) snprintf(r.first_bad, sizeof r.first_bad, "%s", lm_documents_first_bad(d));
  lm_documents_close(d);
  return r;
}

static const char *in_scratch(const char *name)
{
  static char path[PATH_MAX + 256];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

static const char *put(const char *name, const void *bytes, size_t n)
{
  const char *path = in_scratch(name);
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) abort();
  return path;
}

static reading read_bytes(const char *name, const void *bytes, size_t n, const lm_documents_config *cfg)
{
  const char *path = put(name, bytes, n);
  return read_paths(&path, 1, cfg);
}

static void gives(const char *name, const void *bytes, size_t n, const lm_documents_config *cfg, const char *want,
                  size_t want_n, const char *words)
{
  reading r = read_bytes(name, bytes, n, cfg);
  tap_ok(r.status == LM_OK && r.text.size == want_n && memcmp(r.text.size > 0 ? r.text.data : "", want, want_n) == 0,
         "%s: %s (%s)", name, words, r.err.text);
  lm_buffer_free(&r.text);
}
#define GIVES(name, bytes, cfg, want, words) gives(name, bytes, sizeof bytes - 1, cfg, want, sizeof want - 1, words)

static void refuses(const char *name, const void *bytes, size_t n, const lm_documents_config *cfg, const char *sentence,
                    const char *words)
{
  reading r = read_bytes(name, bytes, n, cfg);
  tap_ok(r.status == LM_EINVAL && strstr(r.err.text, sentence) != NULL && strstr(r.err.text, name) != NULL,
         "%s: %s (%s)", name, words, r.err.text);
  lm_buffer_free(&r.text);
}
#define REFUSES(name, bytes, cfg, sentence, words) refuses(name, bytes, sizeof bytes - 1, cfg, sentence, words)

/* ---- packing ---- */

/* extra: a field in the header, as dictd's .dz has one. */
static void gzip_onto(lm_buffer *out, const void *bytes, size_t n, bool extra)
{
  lm_error err;
  z_stream z = {.next_in = bytes, .avail_in = (uInt)n};
  Bytef field[] = "RA\x02\0ab";
  gz_header header = {.extra = field, .extra_len = 6, .os = 3};
  if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
  if (extra && deflateSetHeader(&z, &header) != Z_OK) abort();
  size_t room = deflateBound(&z, n) + 64;
  if (lm_buffer_reserve(out, room, &err) != LM_OK) abort();
  z.next_out = (Bytef *)out->data + out->size;
  z.avail_out = (uInt)room;
  if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
  out->size += room - z.avail_out;
  deflateEnd(&z);
}

static void zstd_onto(lm_buffer *out, const void *bytes, size_t n)
{
  lm_error err;
  size_t room = ZSTD_compressBound(n);
  if (lm_buffer_reserve(out, room, &err) != LM_OK) abort();
  out->size += ZSTD_compress(out->data + out->size, room, bytes, n, 3);
}

static void add(lm_buffer *out, const char *bytes, size_t n)
{
  lm_error err;
  if (lm_buffer_append(out, bytes, n, &err) != LM_OK) abort();
}

/* ---- what is checked ---- */

static void check_text(void)
{
  lm_documents_config blank_line = plain, newline = plain, first = plain;
  blank_line.separator = "\n\n";
  newline.separator = "\n";
  first.separator = "\n\n", first.first_bytes = 4;
  GIVES("bom.txt", "\xef\xbb\xbfline one\r\nline two\r\n", &plain, "|line one\r\nline two\r\n", "BOM dropped, CR kept");
  GIVES("bom2.txt",
        "a\xef\xbb\xbf"
        "b",
        &plain,
        "|a\xef\xbb\xbf"
        "b",
        "a BOM elsewhere is kept");
  GIVES("nul.txt", "a\0b\xff\xc0\x80", &plain, "|a\0b\xff\xc0\x80", "NUL and bytes that are not UTF-8 are kept");
  GIVES("split.txt", "one\n\ntwo\n\n\nthree\n\n", &blank_line, "|one|two|\nthree", "split from the left");
  GIVES("lines.txt", "a\n\nb", &newline, "|a|b", "a separator of one byte");
  GIVES("first.txt", "one\n\ntwo\n\nthree", &first, "|one|two", "the document that reaches first_bytes is the last");
  reading r = read_bytes("none.txt", "", 0, &plain);
  tap_ok(r.status == LM_OK && r.text.size == 0 && r.counts.empty == 1 && r.counts.documents == 0,
         "an empty file is counted");
  r = read_bytes("gaps.txt", "\n\na\n\n\n\nb\n\n", 10, &blank_line);
  tap_ok(r.status == LM_OK && r.counts.empty == 2 && r.counts.documents == 2 && r.counts.bytes == 2,
         "empty documents are dropped and counted");
  lm_buffer_free(&r.text);
}

/* Three pieces of reading (1 MiB) full of separators, shifted so that every byte of one falls on each border. */
static void check_borders(void)
{
  enum { RECORDS = 3 * (1 << 17), RECORD = 8 };
  lm_documents_config cfg = plain;
  cfg.separator = "<END>";
  bool ok = true;
  char *bytes = malloc(RECORDS * RECORD + RECORD);
  for (size_t shift = 0; shift < RECORD; shift++) {
    memset(bytes, 'x', shift);
    for (size_t i = 0; i < RECORDS; i++) memcpy(bytes + shift + i * RECORD, "abc<END>", RECORD);
    reading r = read_bytes("border.txt", bytes, shift + RECORDS * RECORD, &cfg);
    ok = ok && r.status == LM_OK && r.counts.documents == RECORDS && r.counts.bytes == RECORDS * 3 + shift;
    lm_buffer_free(&r.text);
  }
  free(bytes);
  tap_ok(ok, "a separator across two pieces of reading");
}

static const char three[] = "{\"text\":\"alpha\"}\n{\"content\":\"beta\"}\n{\"text\":\"third\"}\n";

static void check_jsonl(void)
{
  lm_documents_config skip = plain, content = plain, none = plain;
  skip.skip_bad = true, skip.max_bad = 1;
  content.text_key = "content", content.skip_bad = true, content.max_bad = 10;
  none.skip_bad = true, none.max_bad = 0;
  REFUSES("key.jsonl", three, &plain, "key.jsonl:2: has no key \"text\"; its keys are \"content\"", "a missing key");
  GIVES("key.jsonl", three, &skip, "|alpha|third", "a missing key, skipped");
  GIVES("key.ndjson", three, &content, "|beta", "another key");
  REFUSES("key.jsonl", three, &none, "more than 0 broken records", "no budget");
  REFUSES("key.jsonl", "{\"text\":1}\n\n{\"text\":2}\n{\"text\":\"x\"}\n", &skip,
          "more than 1 broken records, the last: ", "the budget is used up");
  reading r = read_bytes("key.jsonl", three, sizeof three - 1, &skip);
  tap_ok(r.counts.bad == 1 && strstr(r.first_bad, "key.jsonl:2: ") != NULL, "skipped lines are counted: %s",
         r.first_bad);
  lm_buffer_free(&r.text);
  static const char gaps[] = "{\"text\":\"\"}\n\n{\"text\":\"ok\"}\n  \t \r\n";
  r = read_bytes("gaps.jsonl", gaps, sizeof gaps - 1, &plain);
  tap_ok(r.status == LM_OK && r.counts.empty == 1 && r.counts.documents == 1 && memcmp(r.text.data, "|ok", 3) == 0,
         "blank lines are nothing, an empty first document is dropped and counted");
  lm_buffer_free(&r.text);
  r = read_bytes("lone.jsonl", "{\"text\":\"a\\ud83db\"}", 19, &plain);
  tap_ok(r.status == LM_OK && r.counts.lone_surrogates == 1 &&
             memcmp(r.text.data,
                    "|a\xef\xbf\xbd"
                    "b",
                    6) == 0,
         "half a surrogate pair");
  lm_buffer_free(&r.text);
  REFUSES("cut.jsonl", "{\"text\":\"alpha\"}\n{\"text\":\"beta\n{\"text\":\"third\"}\n", &plain,
          "cut.jsonl:2: byte 14 ", "a broken line");
  REFUSES("cut.jsonl", "\n\n{\"text\":\"beta", &plain, "cut.jsonl:3: ", "blank lines are counted as lines");
  GIVES("cut.jsonl", "{\"text\":\"alpha\"}\n{\"text\":\"beta\n{\"text\":\"third\"}\n", &skip, "|alpha|third",
        "nothing is glued");
  GIVES("bom.jsonl", "\xef\xbb\xbf{\"text\":\"first\"}\n{\"text\":\"second\"}\n", &plain, "|first|second", "a BOM");
  REFUSES("array.json", "[\n {\n  \"text\": \"a\"\n },\n", &plain, "expects one object per line", "a JSON array");
  REFUSES("two.jsonl", "{\"text\":\"a\"}{\"text\":\"b\"}\n", &plain, "expects one object per line",
          "two objects on a line");
}

/* The replaced forms are those of Unicode 15, tables 3-8 to 3-11, and of any decoder that follows them. */
static void check_utf8(void)
{
  lm_documents_config replace = plain, reject = plain, skip = plain;
  replace.invalid_utf8 = LM_INVALID_REPLACE;
  reject.invalid_utf8 = skip.invalid_utf8 = LM_INVALID_REJECT;
  skip.skip_bad = true, skip.max_bad = 1;
#define R "\xef\xbf\xbd"
  static const struct {
    const char *bytes, *replaced;
    uint64_t bad;
  } cases[] = {
      {"caf\xe9", "caf" R, 1},
      {"a\xf0\x9f\x98"
       "b",
       "a" R "b", 1},
      {"\xed\xa0\xbd", R R R, 3},
      {"\xc0\x80", R R, 2},
      {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
       "A",
       R R R R R R R R "A", 8},
      {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
       "A",
       R R R R R R R R "A", 8},
      {"\xf4\x91\x92\x93\xff"
       "A\x80\xbf"
       "B",
       R R R R R "A" R R "B", 7},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
       "A",
       R R R R "A", 4},
      {"eight plain bytes, then \xe2\x82", "eight plain bytes, then " R, 1},
      {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf \xee\x80\x80 \xed\x9f\xbf", NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *want = cases[i].replaced != NULL ? cases[i].replaced : cases[i].bytes;
    size_t n = strlen(cases[i].bytes);
    reading kept = read_bytes("utf8.txt", cases[i].bytes, n, &plain);
    reading r = read_bytes("utf8.txt", cases[i].bytes, n, &replace);
    tap_ok(kept.status == LM_OK && kept.text.size == n + 1 && memcmp(kept.text.data + 1, cases[i].bytes, n) == 0 &&
               kept.counts.invalid_utf8 == cases[i].bad && r.text.size == strlen(want) + 1 &&
               memcmp(r.text.data + 1, want, strlen(want)) == 0 && r.counts.invalid_utf8 == cases[i].bad,
           "case %zu: kept, replaced, counted", i);
    lm_buffer_free(&kept.text);
    lm_buffer_free(&r.text);
  }
#undef R
  REFUSES("utf8.txt", "caf\xe9!", &reject, "utf8.txt:1: byte 4 of the document (0xe9) is not UTF-8", "rejected");
  GIVES("utf8.jsonl", "{\"text\":\"a\xff\"}\n{\"text\":\"b\"}", &skip, "|b", "rejected and skipped");
  GIVES("utf8.jsonl", "{\"text\":\"a\xff\\n\"}\n{\"text\":\"b\"}", &replace, "|a\xef\xbf\xbd\n|b",
        "replaced in a line");
}

static void check_format(void)
{
  lm_documents_config text = plain, lines = plain;
  text.format = LM_FORMAT_TEXT, lines.format = LM_FORMAT_JSONL;
  GIVES("x.jsonl", "{\"text\":\"a\"}", &text, "|{\"text\":\"a\"}", "text because it was said");
  GIVES("x.txt", "{\"text\":\"a\"}", &lines, "|a", "lines because it was said");
  GIVES("X.JSONL", "{\"text\":\"a\"}", &plain, "|a", "capital letters");
  GIVES("jsonl", "{\"text\":\"a\"}", &plain, "|{\"text\":\"a\"}", "a name that only sounds like it");
}

static void check_gzip(void)
{
  static const char lines[] = "{\"text\":\"first\"}\n{\"text\":\"second\"}\n";
  lm_buffer b = {0};
  lm_documents_config skip = plain;
  skip.skip_bad = true, skip.max_bad = 1000;
  gzip_onto(&b, lines, 17, false);
  gzip_onto(&b, lines + 17, 18, true);
  gives("members.jsonl.gz", b.data, b.size, &plain, "|first|second", 13, "two members, one with an extra field");
  gives("members.txt", b.data, b.size, &plain, "|{\"text\":\"first\"}\n{\"text\":\"second\"}\n", 36, "told by content");
  add(&b, "\0\0\0\0\0", 5);
  gives("padded.jsonl.gz", b.data, b.size, &plain, "|first|second", 13, "zeros behind the last member");
  add(&b, "x", 1);
  refuses("behind.jsonl.gz", b.data, b.size, &skip, "data after the zeros", "something behind the zeros");
  b.size = 0;
  gzip_onto(&b, lines, 5, false);
  gzip_onto(&b, "", 0, false);
  gzip_onto(&b, lines + 5, 30, false);
  gives("inside.jsonl.gz", b.data, b.size, &plain, "|first|second", 13, "a member ends inside a line");
  add(&b, "rest", 4);
  refuses("rest.jsonl.gz", b.data, b.size, &skip, "damaged compressed data at byte",
          "something behind the last member");
  b.size -= 4;
  bool all = true;
  for (size_t cut = 1; cut < b.size; cut++) {
    reading r = read_bytes("short.jsonl.gz", b.data, cut, &skip);
    /* Cut between two members it is a whole file; the line it cuts is broken and is skipped. */
    bool between = r.status == LM_OK && r.counts.documents == 0 && r.counts.bad == 1;
    all = all && (between ||
                  (r.status == LM_EINVAL && strstr(r.err.text, "unexpected end of compressed data at byte") != NULL));
    lm_buffer_free(&r.text);
  }
  tap_ok(all, "cut off anywhere: never a success");
  refuses("empty.jsonl.gz", "", 0, &plain, "unexpected end of compressed data at byte 0", "nothing at all");
  refuses("not.jsonl.gz", "{\"text\":\"first\"}", 16, &plain, "neither gzip nor zstd", "plain under a false name");
  b.data[b.size - 6] ^= 1;
  refuses("crc.jsonl.gz", b.data, b.size, &skip, "damaged compressed data at byte", "a wrong checksum");
  lm_buffer_free(&b);
}

/* 1000 lines that do not compress well, so that 20 bytes less cut inside the data. */
static void check_truncated(void)
{
  lm_buffer lines = {0}, b = {0};
  lm_error err;
  lm_documents_config skip = plain;
  skip.skip_bad = true, skip.max_bad = 1000;
  for (uint64_t i = 0; i < 1000; i++) {
    uint32_t w[4];
    lm_random_words(1, LM_STREAM_SAMPLE, i, 0, w);
    if (lm_buffer_printf(&lines, &err, "{\"text\":\"%08x%08x%08x\"}\n", w[0], w[1], w[2]) != LM_OK) abort();
  }
  gzip_onto(&b, lines.data, lines.size, false);
  reading r = read_bytes("whole.jsonl.gz", b.data, b.size, &plain);
  tap_ok(r.status == LM_OK && r.counts.documents == 1000 && r.counts.bytes == 24000, "1000 lines in gzip");
  lm_buffer_free(&r.text);
  char where[96];
  snprintf(where, sizeof where, "short.jsonl.gz: unexpected end of compressed data at byte %zu", b.size - 20);
  refuses("short.jsonl.gz", b.data, b.size - 20, &skip, where, "20 bytes less, and skipping does not help");
  lm_buffer_free(&b);
  lm_buffer_free(&lines);
}

static void check_zstd(void)
{
  static const char lines[] = "{\"text\":\"first\"}\n{\"text\":\"second\"}\n",
                    skippable[] = "\x50\x2a\x4d\x18\x04\0\0\0abcd";
  lm_buffer b = {0};
  zstd_onto(&b, lines, 20);
  add(&b, skippable, 12);
  zstd_onto(&b, lines + 20, 15);
  gives("frames.jsonl.zst", b.data, b.size, &plain, "|first|second", 13, "two frames and a skippable one");
  bool all = true;
  for (size_t cut = 1; cut < b.size; cut++) {
    reading r = read_bytes("short.jsonl.zst", b.data, cut, &plain);
    bool is_broken_line = strstr(r.err.text, ":2: ") != NULL; /* between two frames */
    all = all && r.status == LM_EINVAL &&
          (is_broken_line || strstr(r.err.text, "unexpected end of compressed data") != NULL);
    lm_buffer_free(&r.text);
  }
  tap_ok(all, "cut off anywhere: never a success");
  add(&b, "rest", 4);
  refuses("rest.jsonl.zst", b.data, b.size, &plain, "damaged compressed data at byte",
          "something behind the last frame");
  b.size = 0;
  add(&b, skippable, 12);
  zstd_onto(&b, lines, 35);
  gives("skippable.jsonl.zst", b.data, b.size, &plain, "|first|second", 13, "a skippable frame comes first");
  refuses("empty.txt.zst", "", 0, &plain, "unexpected end of compressed data at byte 0", "nothing at all");
  refuses("x.xz",
          "\xfd"
          "7zXZ\0\0\0",
          8, &plain, "is xz data", "another compression is named");
  lm_buffer_free(&b);
}

static void check_folders(void)
{
  static const char *const names[] = {"d/b.txt", "d/a/z.txt", "d/a/B.txt", "d/.hidden", "d/c.jsonl"};
  mkdir(in_scratch("d"), 0777), mkdir(in_scratch("d/a"), 0777), mkdir(in_scratch("hollow"), 0777);
  for (int i = 0; i < 4; i++) put(names[i], names[i], strlen(names[i]));
  put(names[4], "{\"text\":\"line\"}", 15);
  const char *folder = in_scratch("d");
  reading r = read_paths(&folder, 1, &plain);
  static const char want[] = "|d/a/B.txt|d/a/z.txt|d/b.txt|line";
  tap_ok(r.status == LM_OK && r.text.size == sizeof want - 1 && memcmp(r.text.data, want, sizeof want - 1) == 0,
         "a folder: its files, sorted, with its folders");
  lm_buffer_free(&r.text);
  for (int k = 0; k < 2; k++) { /* the order of a shell would be that of its locale */
    const char *pattern = in_scratch(k == 0 ? "d/a/[Bz].t?t" : "d/*");
    r = read_paths(&pattern, 1, &plain);
    const char *found = k == 0 ? "|d/a/B.txt|d/a/z.txt" : want;
    tap_ok(r.status == LM_OK && r.text.size == strlen(found) && memcmp(r.text.data, found, strlen(found)) == 0,
           "a pattern: what matches, sorted: %s", found);
    lm_buffer_free(&r.text);
  }
  put("d[1].txt", "itself", 6);
  const char *named = in_scratch("d[1].txt");
  r = read_paths(&named, 1, &plain);
  tap_ok(r.status == LM_OK && r.text.size == 7, "a file of that very name stands for itself");
  lm_buffer_free(&r.text);
  lm_error err;
  lm_documents *d;
  const char *nothing = in_scratch("d/*.nothing");
  tap_ok(lm_documents_open(&d, &nothing, 1, &plain, &err) == LM_EINVAL && strstr(err.text, "no file has such a name"),
         "a pattern that nothing matches: %s", err.text);
  const char *hollow = in_scratch("hollow");
  tap_ok(lm_documents_open(&d, &hollow, 1, &plain, &err) == LM_EINVAL && d == NULL, "an empty folder: %s", err.text);
  const char *missing = in_scratch("missing.txt");
  tap_ok(lm_documents_open(&d, &missing, 1, &plain, &err) == LM_EINVAL && strstr(err.text, "missing.txt") != NULL,
         "a missing file is known at once: %s", err.text);
  tap_ok(lm_documents_open(&d, NULL, 0, &plain, &err) == LM_EINVAL, "no files: %s", err.text);
  if (symlink("..", in_scratch("d/a/up")) != 0) abort();
  folder = in_scratch("d");
  tap_ok(lm_documents_open(&d, &folder, 1, &plain, &err) == LM_EINVAL && strstr(err.text, "inside itself") != NULL,
         "a folder inside itself: %s", err.text);
}

static void check_place(void)
{
  char paths[2][PATH_MAX];
  snprintf(paths[0], PATH_MAX, "%s", put("p1.jsonl", "\n{\"text\":\"a\"}\n", 14));
  snprintf(paths[1], PATH_MAX, "%s", put("p2.txt", "x;;y", 4));
  const char *const both[] = {paths[0], paths[1]};
  lm_documents_config cfg = plain;
  cfg.separator = ";;";
  lm_documents *d = NULL;
  lm_error err;
  const char *text;
  size_t n;
  lm_status s = lm_documents_open(&d, both, 2, &cfg, &err);
  if (s == LM_OK) s = lm_documents_next(d, &text, &n, &err);
  tap_ok(s == LM_OK && lm_documents_where(d).record == 2 && lm_documents_where(d).file == 0,
         "line 2 of the first file");
  for (int i = 0; i < 2 && s == LM_OK; i++) s = lm_documents_next(d, &text, &n, &err);
  lm_documents_place place = lm_documents_where(d);
  tap_ok(s == LM_OK && place.record == 2 && place.file == 1 && strcmp(place.path, paths[1]) == 0 && place.position == 4,
         "document 2 of the second file");
  lm_documents_close(d);
}

/* What a pipe gives, a byte at a time or not, is what a file gives. */
static void check_stdin(void)
{
  lm_buffer b = {0};
  lm_documents_config lines = plain;
  lines.format = LM_FORMAT_JSONL;
  gzip_onto(&b, "{\"text\":\"first\"}\n{\"text\"", 24, false);
  put("stdin.gz", b.data, b.size);
  int fd = open(in_scratch("stdin.gz"), O_RDONLY), pipes[2];
  const char *path = "-";
  if (fd < 0 || pipe(pipes) != 0 || write(pipes[1], "{\"text\":\"a\"}\n[", 14) != 14) abort();
  close(pipes[1]);
  dup2(fd, STDIN_FILENO);
  reading r = read_paths(&path, 1, &lines);
  tap_ok(r.status == LM_EINVAL && strstr(r.err.text, "stdin:2: ") != NULL, "gzip on stdin: %s", r.err.text);
  lm_buffer_free(&r.text);
  dup2(pipes[0], STDIN_FILENO);
  lines.skip_bad = true, lines.max_bad = 1;
  r = read_paths(&path, 1, &lines);
  tap_ok(r.status == LM_OK && r.counts.documents == 1 && r.counts.bad == 1, "a pipe on stdin");
  lm_buffer_free(&r.text);
  lm_buffer_free(&b);
  close(fd);
}

/* A line far longer than any buffer, between two short ones: three documents, little more memory than the line. */
static void check_long_line(void)
{
  enum { LONG = 64 << 20 };
  const char *path = in_scratch("long.jsonl");
  FILE *f = fopen(path, "wb");
  char block[1 << 16];
  memset(block, 'x', sizeof block);
  if (f == NULL) abort();
  fputs("{\"text\":\"short\"}\n{\"text\":\"", f);
  for (size_t i = 0; i < LONG / sizeof block; i++) fwrite(block, 1, sizeof block, f);
  fputs("\\n\"}\n{\"text\":\"end\"}", f);
  if (fclose(f) != 0) abort();
  lm_documents *d = NULL;
  lm_error err;
  const char *text = "";
  size_t n, sizes[4] = {0};
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  lm_status s = lm_documents_open(&d, &path, 1, &plain, &err);
  for (int i = 0; i < 4 && s == LM_OK && text != NULL; i++) {
    s = lm_documents_next(d, &text, &n, &err);
    sizes[i] = n;
  }
  getrusage(RUSAGE_SELF, &after);
  tap_ok(s == LM_OK && sizes[0] == 5 && sizes[1] == LONG + 1 && sizes[2] == 3 && text == NULL, "a line of 64 MiB");
  tap_ok((after.ru_maxrss - before.ru_maxrss) / 1024 < 4 * 64, "its memory: %ld MiB",
         (after.ru_maxrss - before.ru_maxrss) / 1024);
  lm_documents_close(d);
}

/* Any bytes: documents or a sentence, never a crash; and what comes out is never more than the input can hold. */
static void check_any_bytes(void)
{
  lm_buffer b = {0};
  static const char *const names[] = {"any.jsonl.gz", "any.jsonl", "any.txt", "any.zst"};
  lm_documents_config cfg = plain;
  cfg.skip_bad = true, cfg.max_bad = 1000, cfg.separator = "\n";
  size_t worse = 0;
  for (uint32_t i = 0; i < 2000; i++) {
    uint32_t w[4];
    b.size = 0;
    if (i % 4 == 3)
      zstd_onto(&b, three, sizeof three - 1);
    else if (i % 4 != 2)
      gzip_onto(&b, three, sizeof three - 1, i % 8 == 1);
    else
      add(&b, three, sizeof three - 1);
    for (uint32_t k = 0; k < 1 + i % 3; k++) {
      lm_random_words(3, LM_STREAM_SAMPLE, i, k, w);
      b.data[w[0] % b.size] = (char)(w[1] >> (w[2] & 16));
    }
    if (w[3] % 5 == 0) b.size = w[3] / 5 % b.size;
    reading r = read_bytes(names[i % 4], b.data, b.size, &cfg);
    worse += r.status != LM_OK && (r.status != LM_EINVAL || strstr(r.err.text, "any.") == NULL);
    lm_buffer_free(&r.text);
  }
  tap_ok(worse == 0, "2000 damaged files: documents or a sentence that names the file");
  lm_buffer_free(&b);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  const char *tmp = getenv("TMPDIR");
  snprintf(scratch, sizeof scratch, "%s/mpilm-reader.XXXXXX", tmp != NULL ? tmp : "/tmp");
  if (mkdtemp(scratch) == NULL) tap_skip_all("no folder for temporary files");
  check_text();
  check_borders();
  check_jsonl();
  check_utf8();
  check_format();
  check_gzip();
  check_truncated();
  check_zstd();
  check_folders();
  check_place();
  check_stdin();
  check_long_line();
  check_any_bytes();
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", scratch);
  if (system(command) != 0) fprintf(stderr, "# %s stays\n", scratch);
  return tap_end();
}
