/* tests/text/test_known_ids.c - ids that others computed: tiktoken's for 849 texts, and cases from the field. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "tests/text/vocab_files.h"

#include "base/file.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GPT2, CL100K, O200K, BPE, N_VOCABS };

static const struct {
  const char *file, *key; /* under tokenizers/, and in the golden files */
} sources[N_VOCABS] = {{"gpt2.tiktoken", "gpt2"},
                       {"cl100k_base.tiktoken", "cl100k"},
                       {"o200k_base.tiktoken", "o200k"},
                       {"gpt2-vocab.bpe", "gpt2"}};

static lm_vocab *vocabs[N_VOCABS];
static lm_encoder *encoders[N_VOCABS];
static const char *shared;

static const char *shared_path(const char *folder, const char *name)
{
  static char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s/%s", shared, folder, name);
  return path;
}

static void load_all(void)
{
  lm_error err = {0};
  for (int i = 0; i < N_VOCABS; i++)
    tap_ok(lm_vocab_load(&vocabs[i], shared_path("tokenizers", sources[i].file), LM_PATTERN_AUTO, &err) == LM_OK &&
               lm_encoder_new(&encoders[i], vocabs[i], &err) == LM_OK,
           "%s loads %s", sources[i].file, err.text);
  tap_ok(lm_vocab_size(vocabs[GPT2]) == 50257 && lm_vocab_end_of_text(vocabs[GPT2]) == 50256,
         "GPT-2: size, end of text");
  tap_ok(lm_vocab_size(vocabs[CL100K]) == 100277 && lm_vocab_end_of_text(vocabs[CL100K]) == 100257, "cl100k");
  tap_ok(lm_vocab_size(vocabs[O200K]) == 200019 && lm_vocab_end_of_text(vocabs[O200K]) == 199999, "o200k");
  tap_ok(lm_vocab_fingerprint(vocabs[GPT2]) == lm_vocab_fingerprint(vocabs[BPE]), "GPT-2 from ranks and from merges");
}

/* FNV-1a over the ids as 4 bytes each, the lowest first. */
static uint64_t fnv1a(const lm_ids *ids)
{
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < ids->size; i++)
    for (int k = 0; k < 32; k += 8) h = (h ^ (ids->data[i] >> k & 255)) * 0x100000001b3u;
  return h;
}

static bool encode(int vocab, const char *text, size_t n, lm_ids *ids)
{
  lm_error err = {0};
  ids->size = 0;
  if (lm_encode(encoders[vocab], text, n, false, ids, &err) == LM_OK) return true;
  fprintf(stderr, "# %s\n", err.text);
  return false;
}

static size_t from_hex(const char *hex, char *out)
{
  size_t n = strlen(hex) / 2;
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    sscanf(hex + 2 * i, "%2x", &byte);
    out[i] = (char)byte;
  }
  return n;
}

/* ---- texts with known ids ---- */

static bool is_row(int vocab, const char *text, size_t n, const json_t *want)
{
  lm_ids ids = {0};
  bool good =
      encode(vocab, text, n, &ids) && ids.size == json_array_size(want) && decodes_to(vocabs[vocab], &ids, text, n);
  for (size_t i = 0; good && i < ids.size; i++)
    good = json_integer_value(json_array_get(want, i)) == (json_int_t)ids.data[i];
  lm_ids_free(&ids);
  return good;
}

static void test_rows(void)
{
  lm_buffer text = {0};
  lm_error err = {0};
  size_t rows = 0, good[N_VOCABS] = {0};
  tap_ok(lm_file_read(shared_path("golden", "tokens.jsonl"), &text, &err) == LM_OK, "the rows are read %s", err.text);
  for (char *line = text.data, *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1, rows++) {
    json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
    const char *hex = json_string_value(json_object_get(row, "hex"));
    char *bytes = malloc(strlen(hex) / 2 + 1);
    size_t n = from_hex(hex, bytes);
    for (int i = 0; i < N_VOCABS; i++) {
      bool same = is_row(i, bytes, n, json_object_get(row, sources[i].key));
      good[i] += same;
      if (!same) fprintf(stderr, "# %s: row %zu, %s\n", sources[i].file, rows + 1, hex);
    }
    free(bytes);
    json_decref(row);
  }
  tap_ok(rows == 849, "849 rows");
  for (int i = 0; i < N_VOCABS; i++) tap_ok(good[i] == rows, "%s: the ids of all rows, and back", sources[i].file);
  lm_buffer_free(&text);
}

static void test_book(void)
{
  lm_buffer text = {0};
  lm_error err = {0};
  lm_ids ids = {0};
  json_t *known = json_load_file(shared_path("golden", "tinyshakespeare-tokens.json"), 0, NULL);
  tap_ok(known != NULL && lm_file_read(shared_path("data", "tinyshakespeare.txt"), &text, &err) == LM_OK, "a book");
  for (int i = 0; i < N_VOCABS; i++) {
    const json_t *want = json_object_get(known, sources[i].key);
    char hash[17];
    bool done = encode(i, text.data, text.size, &ids);
    snprintf(hash, sizeof hash, "%016" PRIx64, fnv1a(&ids));
    tap_ok(done && (json_int_t)ids.size == json_integer_value(json_object_get(want, "count")) &&
               strcmp(hash, json_string_value(json_object_get(want, "fnv1a64"))) == 0 &&
               decodes_to(vocabs[i], &ids, text.data, text.size),
           "%s: count and hash of a book, and back", sources[i].file);
  }
  json_decref(known);
  lm_ids_free(&ids);
  lm_buffer_free(&text);
}

static const struct {
  const char *name, *hex, *gpt2, *cl100k;
} table[] = {
    {"plain", "48656c6c6f20776f726c64", "15496 995", "9906 1917"},
    {"lead-sp", "2048656c6c6f20776f726c64", "18435 995", "22691 1917"},
    {"2sp", "61202062", "64 220 275", "64 220 293"},
    {"3sp", "6120202062", "64 220 220 275", "64 256 293"},
    {"tail-2sp", "612020", "64 220 220", "64 256"},
    {"nl-2sp", "610a202062", "64 198 220 275", "64 198 220 293"},
    {"sp-nl-sp", "61200a2062", "64 220 198 275", "64 720 293"},
    {"2nl", "610a0a62", "64 198 198 65", "64 271 65"},
    {"tab", "610962", "64 197 65", "64 2282"},
    {"crlf", "610d0a62", "64 201 198 65", "64 319 65"},
    {"cr", "610d62", "64 201 65", "64 201 65"},
    {"punct+2nl", "666f6f210a0a626172", "21943 0 198 198 5657", "8134 2268 2308"},
    {"indent", "646566206628293a0a2020202072657475726e2020780a", "4299 277 33529 198 220 220 220 1441 220 2124 198",
     "755 282 4019 262 471 220 865 198"},
    {"contr-lc", "49276d207765276c6c207468657927766520646f6e27742069742773206865276420796f75277265",
     "40 1101 356 1183 484 1053 836 470 340 338 339 1549 345 821",
     "40 2846 584 3358 814 3077 1541 956 433 596 568 4265 499 2351"},
    {"contr-UC", "49274d205745274c4c205448455927564520444f4e27542049542753204845274420594f55275245",
     "40 6 44 12887 6 3069 33302 6 6089 23917 6 51 7283 6 50 11179 6 35 7013 6 2200",
     "40 28703 20255 6 4178 63593 6 4592 45373 17773 8871 13575 11947 28805 15334 95253"},
    {"'RE", "275245", "6 2200", "95253"},
    {"curly", "646f6ee2809974206974e2809973", "9099 447 247 83 340 447 247 82", "15357 1431 433 753"},
    {"'store", "2773746f7265", "338 83 382", "596 83 461"},
    {"digits7", "31323334353637", "10163 2231 3134", "4513 10961 22"},
    {"digit-groups", "3132203334352036373839", "1065 39937 718 40401", "717 220 12901 220 17458 24"},
    {"single-digits", "312032203320342035", "16 362 513 604 642", "16 220 17 220 18 220 19 220 20"},
    {"pi", "332e3134313539", "18 13 1415 19707", "18 13 9335 2946"},
    {"sup/frac", "78c2b220c2bd", "87 31185 25208", "87 30556 220 27154"},
    {"NUL", "610062", "64 188 65", "64 188 65"},
    {"BOM", "efbbbf48656c6c6f", "171 119 123 15496", "3305 9906"},
    {"NBSP", "61c2a0c2a062", "64 1849 1849 65", "64 4194 4194 65"},
    {"sp+NEL", "6120c28562", "64 220 126 227 65", "64 220 126 227 65"},
    {"sp+ZWSP", "6120e2808b62", "64 20126 65", "64 30848 65"},
    {"ZWJ family", "f09f91a8e2808df09f91a9e2808df09f91a7e2808df09f91a6",
     "41840 101 447 235 41840 102 447 235 41840 100 447 235 41840 99",
     "9468 239 101 378 235 9468 239 102 378 235 9468 239 100 378 235 9468 239 99"},
    {"skin tone", "f09f918df09f8fbd", "41840 235 8582 237 121", "9468 239 235 9468 237 121"},
    {"NFC", "636166c3a9", "66 1878 2634", "936 59958"},
    {"NFD", "63616665cc81", "66 8635 136 223", "936 1897 54939"},
    {"Hindi", "e0a4b9e0a4bfe0a4a8e0a58de0a4a6e0a580", "11976 117 11976 123 11976 101 24231 235 11976 99 24231 222",
     "95048 43411 101 31584 99 44747"},
    {"CJK", "e697a5e69cace8aa9e", "33768 98 17312 105 45739 252", "9080 22656 45918 252"},
    {"Viet", "205669e1bb8774", "16049 157 119 229 83", "11655 26298 83"},
    {"U+FFFD", "efbfbd", "4210", "5809"},
    {"EOT text", "613c7c656e646f66746578747c3e62", "64 27 91 437 1659 5239 91 29 65", "64 27 91 8862 728 428 91 29 65"},
    {"1 space", "20", "220", "220"},
};

static void test_table(void)
{
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    char bytes[256];
    size_t n = from_hex(table[i].hex, bytes);
    tap_ok(strcmp(ids_of(vocabs[GPT2], bytes, n, false), table[i].gpt2) == 0 &&
               strcmp(ids_of(vocabs[BPE], bytes, n, false), table[i].gpt2) == 0 &&
               strcmp(ids_of(vocabs[CL100K], bytes, n, false), table[i].cl100k) == 0,
           "%s", table[i].name);
  }
}

static void test_specials(void)
{
  static const char text[] = "a<|endoftext|>b", spaced[] = "x <|endoftext|> y";
  tap_ok(strcmp(ids_of(vocabs[GPT2], text, sizeof text - 1, true), "64 50256 65") == 0,
         "GPT-2: special where asked for");
  tap_ok(strcmp(ids_of(vocabs[CL100K], text, sizeof text - 1, true), "64 100257 65") == 0, "cl100k too");
  tap_ok(strcmp(ids_of(vocabs[GPT2], spaced, sizeof spaced - 1, true), "87 220 50256 331") == 0, "between spaces");
}

/* ---- random text ---- */

static const char *const picks[64] = {" ",
                                      "  ",
                                      "\n",
                                      "\r\n",
                                      "\t",
                                      "a",
                                      "B",
                                      "the",
                                      "ing",
                                      "\u00e9",
                                      "e\u0301",
                                      "'s",
                                      "'S",
                                      "'LL",
                                      "\u2019t",
                                      "1",
                                      "23",
                                      "456",
                                      "7890",
                                      "\u00b2",
                                      "\u0663",
                                      "\u00a0",
                                      "\xc2\x85",
                                      "\u3000",
                                      "\u200b",
                                      "\ufeff",
                                      "\u180e",
                                      "",
                                      "\x1c",
                                      "!",
                                      "?!",
                                      "--",
                                      "####",
                                      "_",
                                      "\"",
                                      "<|",
                                      "|>",
                                      "endoftext",
                                      "\u65e5\u672c",
                                      "\u0939",
                                      "\u093f",
                                      "\u0e17\u0e35\u0e48",
                                      "\u0645",
                                      "\U0001F600",
                                      "\U0001F44D\U0001F3FD",
                                      "\u200d",
                                      "\U0001F1EB\U0001F1F7",
                                      "\u2028",
                                      "\x0b",
                                      "\x0c",
                                      "\u00ad",
                                      "x",
                                      "Y",
                                      "Z9",
                                      ".",
                                      ",",
                                      ";",
                                      ":",
                                      "/",
                                      "\\",
                                      "{",
                                      "}",
                                      "=",
                                      "\u00df"};

static void test_picks(void)
{
  static const struct {
    uint32_t seed;
    size_t bytes, n[2];
    uint64_t hash[2]; /* GPT-2, cl100k */
  } known[] = {
      {1, 11973, {8151, 6822}, {0x478efd62d99c8174, 0xbccecf1808f23c48}},
      {2, 11966, {8106, 6789}, {0x636085f4bd3c6616, 0xde2a58b075bb3a13}},
      {3, 11992, {8120, 6785}, {0xeaf299874bf6abbd, 0x330ae3e55e644b3e}},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    lm_buffer text = {0};
    lm_ids ids = {0};
    lm_error err = {0};
    uint32_t state = known[i].seed;
    lm_status s = LM_OK;
    for (int k = 0; k < 5000 && s == LM_OK; k++) {
      state = (state * 1103515245 + 12345) & 0x7fffffff;
      const char *pick = picks[(state >> 8) % 64];
      s = lm_buffer_append(&text, pick, *pick == '\0' ? 1 : strlen(pick), &err);
    }
    tap_ok(s == LM_OK && text.size == known[i].bytes, "the random text of seed %u", known[i].seed);
    for (int v = GPT2; v <= CL100K; v++)
      tap_ok(encode(v, text.data, text.size, &ids) && ids.size == known[i].n[v] && fnv1a(&ids) == known[i].hash[v],
             "%s: its count and hash", sources[v].key);
    lm_ids_free(&ids);
    lm_buffer_free(&text);
  }
}

/* ---- one gigantic piece ---- */

/* Encode n times the unit, then `tail`. @return ids; their first and last in ends */
static size_t encode_run(int vocab, const char *unit, size_t n, const char *tail, uint32_t ends[2])
{
  lm_buffer text = {0};
  lm_ids ids = {0};
  lm_status s = LM_OK;
  for (size_t i = 0; i < n && s == LM_OK; i++) s = lm_buffer_append(&text, unit, strlen(unit), NULL);
  if (s == LM_OK) s = lm_buffer_append(&text, tail, strlen(tail), NULL);
  size_t count = s == LM_OK && encode(vocab, text.data, text.size, &ids) ? ids.size : 0;
  if (count > 0 && !decodes_to(vocabs[vocab], &ids, text.data, text.size)) count = 0;
  ends[0] = count > 0 ? ids.data[0] : LM_NO_ID;
  ends[1] = count > 0 ? ids.data[count - 1] : LM_NO_ID;
  lm_ids_free(&ids);
  lm_buffer_free(&text);
  return count;
}

static void test_runs(void)
{
  static const struct {
    const char *unit;
    size_t n, gpt2, cl100k;
  } runs[] = {{"a", 4001, 1001, 501}, {"_", 4000, 63, 63}, {"0", 4000, 250, 1334}, {"\u65e5", 1000, 2000, 1000}};
  uint32_t ends[2];
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    tap_ok(encode_run(GPT2, runs[i].unit, runs[i].n, "", ends) == runs[i].gpt2, "GPT-2: %zu x %s", runs[i].n,
           runs[i].unit);
    tap_ok(encode_run(CL100K, runs[i].unit, runs[i].n, "", ends) == runs[i].cl100k, "cl100k");
  }
  encode_run(GPT2, "a", 4001, "", ends);
  tap_ok(ends[0] == 24794 && ends[1] == 64, "GPT-2: four by four, and the last alone");
  encode_run(CL100K, "a", 4001, "", ends);
  tap_ok(ends[0] == 70540 && ends[1] == 64, "cl100k: eight by eight, and the last alone");
  tap_ok(encode_run(GPT2, "^", 1000000, "", ends) == 250000 && ends[0] == 39397 && ends[1] == 39397, "1e6 x ^");
}

static double cpu_seconds(void)
{
  return (double)clock() / CLOCKS_PER_SEC;
}

/* Four times the text must not take much more than four times as long; were it quadratic, it would take sixteen times.
 */
static void test_linear(void)
{
  static char random[(1 << 16) + 1]; /* letters that come back too late for any cache */
  uint32_t seed = 1;
  for (size_t i = 0; i + 1 < sizeof random; i++) {
    seed = seed * 1664525u + 1013904223u;
    random[i] = (char)('a' + (seed >> 16) % 26);
  }
  const struct {
    const char *unit, *tail, *name;
    size_t n;
  } runs[] = {{"a", "", "letters", 1 << 18},
              {"^", "", "punctuation", 1 << 18},
              {" ", "x", "spaces and a letter", 1 << 18},
              {"\u65e5", "", "ideographs", 80000},
              {"xq", "", "a word that does not merge", 1 << 17},
              {"A", "", "capitals", 1 << 18},
              {" \n", "x", "line ends", 1 << 17},
              {"\xff", "", "bytes", 1 << 18},
              {random, "", "random letters", 4}};
  uint32_t ends[2];
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
    for (int v = GPT2; v <= O200K; v++) {
      double start = cpu_seconds();
      encode_run(v, runs[i].unit, runs[i].n, runs[i].tail, ends);
      double one = cpu_seconds() - start;
      encode_run(v, runs[i].unit, 4 * runs[i].n, runs[i].tail, ends);
      double four = cpu_seconds() - start - one;
      tap_ok(ends[0] != LM_NO_ID && four < 8 * one + 0.1 && four < 5,
             "%s: %s: %.0f ms, then %.0f ms for 4 times as many", sources[v].key, runs[i].name, 1e3 * one, 1e3 * four);
    }
}

/* ---- every token ---- */

static bool is_utf8(const char *bytes, size_t n)
{
  for (size_t i = 0, length; i < n; i += length) {
    uint32_t c;
    length = (uint8_t)bytes[i] < 0x80 ? 1 : lm_utf8_long((const uint8_t *)bytes + i, n - i, &c);
    if (length == 0) return false;
  }
  return true;
}

static void test_every_token(void)
{
  /* How many of the tokens that are UTF-8 come back as themselves, by tiktoken; o200k splits 12 of them. */
  static const size_t known[N_VOCABS] = {49912, 99483, 198424, 49912};
  for (int v = 0; v < N_VOCABS; v++) {
    size_t good = 0, valid = 0;
    lm_ids ids = {0};
    for (uint32_t id = 0; id < lm_vocab_size(vocabs[v]); id++) {
      size_t n;
      const char *bytes = lm_vocab_bytes(vocabs[v], id, &n);
      if (bytes == NULL || lm_vocab_is_special(vocabs[v], id) || !is_utf8(bytes, n)) continue;
      valid++;
      good += encode(v, bytes, n, &ids) && ids.size == 1 && ids.data[0] == id;
    }
    lm_ids_free(&ids);
    tap_ok(good == known[v], "%s: %zu tokens of %zu come back as themselves", sources[v].file, good, valid);
  }
}

/* Bytes that are not UTF-8 are kept: the count and the bytes are all that can be said without a second opinion. */
static void test_bad_bytes(void)
{
  static const char *const texts[] = {"caf\xe9", "a\xf0\x9f\230b", "\xed\xa0\xbd", "\xc0\x80", "\xff \xfe's"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    for (int v = 0; v < N_VOCABS; v++) {
      lm_ids ids = {0};
      tap_ok(encode(v, texts[i], strlen(texts[i]), &ids) && decodes_to(vocabs[v], &ids, texts[i], strlen(texts[i])),
             "%s: broken text %zu comes back", sources[v].file, i);
      lm_ids_free(&ids);
    }
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  shared = getenv("MPILM_SHARED");
  if (shared == NULL || !lm_file_exists(shared_path("tokenizers", sources[BPE].file)))
    tap_skip_all("the vocabularies of GPT-2, cl100k and o200k are not here (MPILM_SHARED)");
  load_all();
  test_rows();
  test_book();
  test_table();
  test_specials();
  test_picks();
  test_runs();
  test_linear();
  test_every_token();
  test_bad_bytes();
  for (int i = 0; i < N_VOCABS; i++) {
    lm_encoder_free(encoders[i]);
    lm_vocab_free(vocabs[i]);
  }
  return tap_end();
}
