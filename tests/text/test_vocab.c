/* tests/text/test_vocab.c - vocabularies made by the test: loading, refusing, saving, encoding, decoding. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "tests/text/vocab_files.h"
#include "text/split.h"
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "test_vocab_file.tmp"

static bool same_ids(const lm_vocab *v, const char *text, const char *want)
{
  const char *got = ids_of(v, text, strlen(text), false);
  if (strcmp(got, want) != 0) fprintf(stderr, "# '%s': got %s, want %s\n", text, got, want);
  return strcmp(got, want) == 0;
}

/* ---- bytes ---- */

static void test_bytes(void)
{
  lm_vocab *v;
  lm_error err = {0};
  tap_ok(lm_vocab_load(&v, "bytes", LM_PATTERN_GPT2, &err) == LM_OK, "the vocabulary of bytes loads");
  tap_ok(lm_vocab_size(v) == 257 && lm_vocab_end_of_text(v) == 256, "256 bytes and the end of text");
  tap_ok(strcmp(ids_of(v, "a\0\xff", 3, false), "97 0 255") == 0, "an id is its byte");
  char text[3000];
  uint32_t state = 7;
  bool all = true;
  lm_encoder *e;
  tap_ok(lm_encoder_new(&e, v, &err) == LM_OK, "an encoder");
  for (int round = 0; round < 200; round++) {
    lm_ids ids = {0};
    size_t n = draw(&state, sizeof text);
    for (size_t i = 0; i < n; i++) text[i] = (char)draw(&state, 256);
    all &= lm_encode(e, text, n, false, &ids, &err) == LM_OK && ids.size == n && decodes_to(v, &ids, text, n);
    lm_ids_free(&ids);
  }
  tap_ok(all, "random bytes come back");
  lm_encoder_free(e);
  lm_vocab_free(v);
}

/* ---- tokenizer.json ---- */

/* `%s` are: added tokens, pre-tokenizer, more members of the model, merges, and more members of the root. */
static const char json_form[] =
    "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":null,\"pre_tokenizer\":%s,\"model\":{%s"
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"ab\":4,\"abc\":5,\"\xc4\xa0"
    "ab\":6,\"<|endoftext|>\":7},\"merges\":[%s]}%s}";
static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}";
static const char end_token[] = "{\"id\":7,\"content\":\"<|endoftext|>\",\"special\":true}";
static const char as_text[] = "\"a b\",\"ab c\",\"\xc4\xa0 ab\"";
static const char as_pairs[] = "[\"a\",\"b\"],[\"ab\",\"c\"],[\"\xc4\xa0\",\"ab\"]";

static lm_status load_json(lm_vocab **v, const char *added, const char *pre, const char *model, const char *merges,
                           const char *more, lm_error *err)
{
  char text[4096];
  int n = snprintf(text, sizeof text, json_form, added, pre, model, merges, more);
  write_file(FILE_NAME, text, (size_t)n);
  lm_status s = lm_vocab_load(v, FILE_NAME, LM_PATTERN_GPT2, err);
  remove_file(FILE_NAME);
  return s;
}

static void test_json(void)
{
  lm_vocab *text, *pairs = NULL;
  lm_error err = {0};
  tap_ok(load_json(&text, end_token, byte_level, "", as_text, "", &err) == LM_OK, "merges as text load: %s", err.text);
  tap_ok(load_json(&pairs, end_token, byte_level, "", as_pairs, "", &err) == LM_OK, "merges as pairs: %s", err.text);
  tap_ok(lm_vocab_size(text) == 8 && lm_vocab_end_of_text(text) == 7, "size and end of text");
  /* " abc": by rank, "ab" is made first, then "abc", so that " ab" cannot be. */
  tap_ok(same_ids(text, "abc abc ab", "5 3 5 6"), "the lowest rank goes first");
  tap_ok(same_ids(pairs, "abc abc ab", "5 3 5 6"), "and the same from pairs");
  tap_ok(lm_vocab_fingerprint(text) == lm_vocab_fingerprint(pairs), "both have the same fingerprint");
  tap_ok(strcmp(ids_of(text, "ab<|endoftext|>c", 16, true), "4 7 2") == 0, "special tokens where asked for");
  tap_ok(strncmp(ids_of(text, "ab<", 3, false), "error: byte 0x3c", 16) == 0, "a byte without token is named");
  size_t n;
  const char *bytes = lm_vocab_bytes(text, 6, &n);
  tap_ok(n == 3 && memcmp(bytes, " ab", 3) == 0, "the byte alphabet is undone");
  lm_vocab_free(text);
  lm_vocab_free(pairs);

  /* The same merges in another order give other ids: then the fingerprint differs, though the tokens are the same. */
  tap_ok(load_json(&text, end_token, byte_level, "", as_text, "", &err) == LM_OK &&
             load_json(&pairs, end_token, byte_level, "", "\"a b\",\"\xc4\xa0 ab\",\"ab c\"", "", &err) == LM_OK,
         "another order of merges loads");
  tap_ok(same_ids(pairs, "abc abc", "5 6 2"), "and merges in that order");
  tap_ok(lm_vocab_fingerprint(text) != lm_vocab_fingerprint(pairs), "and has another fingerprint");
  lm_vocab_free(text);
  lm_vocab_free(pairs);
}

/* As Qwen 2 has it: NFC, the split, bytes; added tokens are looked for before. e 0, the bytes of a combining acute 1 2,
 * of the letter 3 4, together 5. */
static lm_status load_normalizer(lm_vocab **v, const char *normalizer, const char *normalized, lm_error *err)
{
  static const char form[] =
      "{\"added_tokens\":[{\"id\":6,\"content\":\"<|endoftext|>\",\"special\":true,\"normalized\":%s}],"
      "\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
      "{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
      "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\","
      "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}"
      "]},"
      "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":"
      "false},"
      "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false},"
      "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\","
      "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{\"e\":0,\"\xc3\x8c\":1,"
      "\"\xc4\xa3\":2,\"\xc3\x83\":3,\"\xc2\xa9\":4,\"\xc3\x83\xc2\xa9\":5},\"merges\":[\"\xc3\x83 \xc2\xa9\"]}}";
  char text[4096];
  int n = snprintf(text, sizeof text, form, normalized, normalizer);
  write_file(FILE_NAME, text, (size_t)n);
  lm_status s = lm_vocab_load(v, FILE_NAME, LM_PATTERN_GPT2, err);
  remove_file(FILE_NAME);
  return s;
}

static void test_normalizer(void)
{
  static const char nfc[] = "{\"type\":\"NFC\"}",
                    in_sequence[] = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}";
  lm_error err = {0};
  lm_vocab *plain = NULL, *v = NULL, *again = NULL;
  tap_ok(load_normalizer(&plain, "null", "false", &err) == LM_OK && load_normalizer(&v, nfc, "false", &err) == LM_OK,
         "with and without NFC%s", err.text);
  tap_ok(same_ids(plain, "e\xcc\x81\xc3\xa9", "0 1 2 5"), "without, text stays as it is");
  tap_ok(same_ids(v, "e\xcc\x81\xc3\xa9", "5 5"), "with it, both spellings are one");
  tap_ok(strcmp(ids_of(v, "e<|endoftext|>\xcc\x81", 16, true), "0 6 1 2") == 0,
         "nothing composes across a special token");
  tap_ok(lm_vocab_fingerprint(v) != lm_vocab_fingerprint(plain), "which is another vocabulary");
  tap_ok(lm_vocab_save(v, FILE_NAME, &err) == LM_OK &&
             lm_vocab_load(&again, FILE_NAME, LM_PATTERN_GPT2, &err) == LM_OK &&
             lm_vocab_fingerprint(again) == lm_vocab_fingerprint(v) && same_ids(again, "e\xcc\x81", "5"),
         "and is written so%s", err.text);
  remove_file(FILE_NAME);
  lm_vocab_free(again);
  lm_vocab_free(v);
  tap_ok(load_normalizer(&v, in_sequence, "false", &err) == LM_OK && same_ids(v, "e\xcc\x81", "5"),
         "NFC alone in a sequence");
  lm_vocab_free(v);
  tap_ok(load_normalizer(&v, nfc, "true", &err) == LM_EINVAL && v == NULL && strstr(err.text, "normalized") != NULL,
         "%s", err.text);
  lm_vocab_free(plain);
}

static void test_whole_first(void)
{
  lm_vocab *merge, *whole = NULL;
  lm_error err = {0};
  static const char merges[] = "\"a b\",\"\xc4\xa0 ab\"", three[] = "\"a b\",\"b c\",\"ab c\",\"\xc4\xa0 ab\"";
  tap_ok(load_json(&merge, end_token, byte_level, "", merges, "", &err) == LM_OK &&
             load_json(&whole, end_token, byte_level, "\"ignore_merges\":true,", merges, "", &err) == LM_OK,
         "with and without ignore_merges");
  tap_ok(same_ids(merge, "abc", "4 2"), "without it, a token that no merge makes is never reached");
  tap_ok(same_ids(whole, "abc", "5"), "with it, a piece that is a token is that token");
  tap_ok(same_ids(whole, " abc", "6 2"), "other pieces are merged");
  lm_vocab_free(merge);
  lm_vocab_free(whole);
  tap_ok(load_json(&merge, end_token, byte_level, "", three, "", &err) == LM_EINVAL &&
             strstr(err.text, "model.merges[1]") != NULL,
         "a merge into a token that does not exist is named: %s", err.text);
}

static void test_added(void)
{
  lm_vocab *v;
  lm_error err = {0};
  static const char added[] = "{\"id\":7,\"content\":\"<|endoftext|>\",\"special\":true},"
                              "{\"id\":8,\"content\":\"cab\",\"special\":false},"
                              "{\"id\":9,\"content\":\"cabba\",\"special\":true}";
  tap_ok(load_json(&v, added, byte_level, "", as_text, "", &err) == LM_OK, "added tokens load: %s", err.text);
  tap_ok(same_ids(v, "acabba", "0 8 1 0"), "what is not special is found in every text");
  tap_ok(strcmp(ids_of(v, "acabba", 6, true), "0 9") == 0, "of two the longer one is taken");
  tap_ok(strcmp(ids_of(v, "<|endoftext|><|endoftext|>ab", 28, true), "7 7 4") == 0, "one behind the other");
  lm_vocab_free(v);
}

/* A file with the expression b\w*: the merge of a and b is not done across a cut. */
static void check_own_split(const char *pre)
{
  lm_vocab *v, *again = NULL;
  lm_error err = {0};
  tap_ok(load_json(&v, end_token, pre, "", as_text, "", &err) == LM_OK && lm_vocab_pattern(v) == LM_PATTERN_OTHER,
         "an expression of its own is honoured: %s", err.text);
  tap_ok(same_ids(v, "abab", "0 1 4"), "a|bab: what lies before a match is a piece of its own");
  tap_ok(lm_vocab_save(v, FILE_NAME, &err) == LM_OK &&
             lm_vocab_load(&again, FILE_NAME, LM_PATTERN_GPT2, &err) == LM_OK &&
             lm_vocab_fingerprint(again) == lm_vocab_fingerprint(v),
         "and written: %s", err.text);
  lm_vocab_free(v);
  lm_vocab_free(again);
  remove_file(FILE_NAME);
}

static void test_split_in_json(void)
{
  lm_vocab *v;
  lm_error err = {0};
  char pre[1024], again[1024];
  static const char split[] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                              "\"%s\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                              "\"add_prefix_space\":false,\"use_regex\":false}]}";
  static const char *const escaped[] = {
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+",
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"
      "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"};
  for (int i = 0; i < 2; i++) {
    snprintf(pre, sizeof pre, split, escaped[i]);
    tap_ok(load_json(&v, end_token, pre, "", as_text, "", &err) == LM_OK, "a split pattern is known: %s", err.text);
    tap_ok(lm_vocab_pattern(v) == (i == 0 ? LM_PATTERN_GPT2 : LM_PATTERN_LLAMA3), "and told");
    lm_vocab_free(v);
  }
  snprintf(again, sizeof again, split, "(\\\\w");
  tap_ok(load_json(&v, end_token, again, "", as_text, "", &err) == LM_EINVAL && strstr(err.text, "(\\w") != NULL,
         "one that is no expression is refused with its words: %s", err.text);
  snprintf(again, sizeof again, split, "b\\\\w*");
  check_own_split(again);
}

/* What cannot be honoured, and the word that the message must have. */
static void test_refused(void)
{
  static const struct {
    const char *added, *pre, *model, *merges, *more, *word;
  } rows[] = {
      {end_token, byte_level, "", as_text, ",\"normalizer\":{\"type\":\"NFC\"}", "duplicate"},
      {end_token, "null", "", as_text, "", "pre_tokenizer"},
      {end_token, "{\"type\":\"Whitespace\"}", "", as_text, "", "Whitespace"},
      {end_token, "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "", as_text, "", "add_prefix_space"},
      {end_token, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "", as_text, "",
       "use_regex"},
      {end_token, byte_level, "\"type\":\"WordPiece\",", as_text, "", "WordPiece"},
      {end_token, byte_level, "\"dropout\":0.1,", as_text, "", "dropout"},
      {end_token, byte_level, "\"byte_fallback\":true,", as_text, "", "byte_fallback"},
      {end_token, byte_level, "\"end_of_word_suffix\":\"</w>\",", as_text, "", "end_of_word_suffix"},
      {end_token, byte_level, "", "", "", "model.merges is empty"},
      {end_token, byte_level, "", "\"ab\"", "", "model.merges[0]"},
      {end_token, byte_level, "", "\"a b\",7", "", "model.merges[1]"},
      {end_token, byte_level, "", as_text, ",\"decoder\":{\"type\":\"WordPiece\"}", "decoder"},
      {end_token, byte_level, "", as_text, ",\"truncation\":{\"max_length\":5}", "truncation"},
      {end_token, byte_level, "", as_text, ",\"post_processor\":{\"type\":\"BertProcessing\"}", "BertProcessing"},
      {"{\"id\":7,\"content\":\"<|endoftext|>\",\"lstrip\":true}", byte_level, "", as_text, "", "lstrip"},
      {"{\"id\":6,\"content\":\"<|endoftext|>\"}", byte_level, "", as_text, "", "in model.vocab"},
      {"{\"id\":5,\"content\":\"x\"}", byte_level, "", as_text, "", "id 5 is given to two tokens"},
      {"{\"id\":-1,\"content\":\"x\"}", byte_level, "", as_text, "", "has no id in"},
      {"{\"id\":4000000000,\"content\":\"x\"}", byte_level, "", as_text, "", "has no id in"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    lm_error err = {0};
    lm_vocab *v;
    lm_status s = load_json(&v, rows[i].added, rows[i].pre, rows[i].model, rows[i].merges, rows[i].more, &err);
    tap_ok(s == LM_EINVAL && v == NULL && strstr(err.text, rows[i].word) != NULL && strstr(err.text, FILE_NAME) != NULL,
           "refused for '%s': %s", rows[i].word, err.text);
    lm_vocab_free(v);
  }
}

static void test_refused_files(void)
{
  static const struct {
    const char *text, *word;
  } rows[] = {
      {"", "is empty"},
      {"{\"model\":", ":1: is no JSON"},
      {"{}", "no model"},
      {"{\"normalizer\":{\"type\":\"NFKC\"}}", "a normalizer of type 'NFKC'"},
      {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}}",
       "a normalizer of type 'Sequence'"},
      {"IQ== 0\nIg== x\n", ":2"},
      {"IQ== 0\nIg== 0\n", ":2"},
      {"IQ== 0\nI*== 1\n", ":2"},
      {"IQ== 0\nIg==\n", ":2"},
      {"IQ== 0\nIQ== 1\n", "the same bytes"},
      {"IQ== 0\nIg== 99999999\n", ":2: id 99999999 is too large"},
      {"#version: 0.2\na b\nabc\n", ":3"},
      {"#version: 0.2\na b\nx yz\n", ":3"},
      {"#version: 0.2\na b\na b\n", "the same bytes"},
      {"hello world, this is text\n", ":1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    lm_error err = {0};
    lm_vocab *v;
    write_file(FILE_NAME, rows[i].text, strlen(rows[i].text));
    lm_status s = lm_vocab_load(&v, FILE_NAME, LM_PATTERN_GPT2, &err);
    tap_ok(s == LM_EINVAL && v == NULL && strstr(err.text, rows[i].word) != NULL, "refused: %s", err.text);
    lm_vocab_free(v);
  }
  lm_error err = {0};
  lm_vocab *v;
  remove_file(FILE_NAME);
  tap_ok(lm_vocab_load(&v, FILE_NAME, LM_PATTERN_GPT2, &err) == LM_EINVAL, "a file that is not there: %s", err.text);
}

/* ---- rank files and vocab.bpe ---- */

static void test_ranks(void)
{
  /* ! " # !" "# !"# and ""# : any two tokens whose joined bytes are a token merge, the lowest rank first. */
  static const char ranks[] = "IQ== 0\nIg== 1\nIw== 2\nISI= 3\nIiM= 4\nISIj 5\r\nIiIj 6\n";
  lm_vocab *v, *loaded = NULL;
  lm_error err = {0};
  write_file(FILE_NAME, ranks, sizeof ranks - 1);
  tap_ok(lm_vocab_load(&v, FILE_NAME, LM_PATTERN_AUTO, &err) == LM_EINVAL && strstr(err.text, "--pattern") != NULL,
         "an unknown set of ranks needs its pattern: %s", err.text);
  tap_ok(lm_vocab_load(&v, FILE_NAME, LM_PATTERN_CL100K, &err) == LM_OK, "a rank file loads: %s", err.text);
  tap_ok(lm_vocab_size(v) == 8 && lm_vocab_end_of_text(v) == 7, "the end of text follows the ranks");
  tap_ok(same_ids(v, "!\"#", "5") && same_ids(v, "!\"##", "5 2"), "whole pieces, and merges");
  tap_ok(same_ids(v, "\"\"##", "6 2"), "a pair that only its joined bytes make known");
  tap_ok(same_ids(v, "##\"#\"", "2 2 4 1"), "left over bytes");
  tap_ok(lm_vocab_save(v, FILE_NAME, &err) == LM_OK, "it is saved as tokenizer.json");
  tap_ok(lm_vocab_load(&loaded, FILE_NAME, LM_PATTERN_GPT2, &err) == LM_OK, "which loads: %s", err.text);
  tap_ok(lm_vocab_fingerprint(v) == lm_vocab_fingerprint(loaded), "with the same fingerprint");
  tap_ok(lm_vocab_pattern(loaded) == LM_PATTERN_LLAMA3 || lm_vocab_pattern(loaded) == LM_PATTERN_CL100K,
         "and the pattern of the same expression");
  tap_ok(same_ids(loaded, "!\"##", "5 2") && same_ids(loaded, "\"\"##", "6 2"), "and the same ids");
  remove_file(FILE_NAME);
  lm_vocab_free(v);
  lm_vocab_free(loaded);
}

static void test_bpe(void)
{
  static const char merges[] = "#version: 0.2\n\xc4\xa0 t\nh e\n\xc4\xa0t he\n";
  lm_vocab *v;
  lm_error err = {0};
  write_file(FILE_NAME, merges, sizeof merges - 1);
  tap_ok(lm_vocab_load(&v, FILE_NAME, LM_PATTERN_AUTO, &err) == LM_OK, "vocab.bpe loads: %s", err.text);
  tap_ok(lm_vocab_size(v) == 260 && lm_vocab_end_of_text(v) == 259, "bytes, merges, end of text");
  /* GPT-2: '!' is 0, a NUL is 188, a space is 220. */
  tap_ok(strcmp(ids_of(v, "!\0 the he  ", 10, false), "0 188 258 220 257 220") == 0, "ids in GPT-2's order");
  remove_file(FILE_NAME);
  lm_vocab_free(v);
}

/* ---- merging, against its definition ---- */

enum { N_MERGES = 150, N_IDS = 256 + N_MERGES, GIGANTIC = 48000 };

typedef struct plain_merges {
  uint16_t rank[N_IDS][N_IDS]; /* of a pair of tokens; UINT16_MAX where they do not merge */
  uint32_t joined[UINT16_MAX]; /* [rank] */
} plain_merges;

static plain_merges plain_rules;

static void forget_rules(void)
{
  memset(plain_rules.rank, 0xff, sizeof plain_rules.rank);
}

static void add_rule(size_t rank, uint32_t left, uint32_t right, uint32_t joined)
{
  plain_rules.rank[left][right] = (uint16_t)rank;
  plain_rules.joined[rank] = joined;
}

/* Merge the pair of the lowest rank, the leftmost of equals, until there is none: quadratic and plain. @return ids left
 */
static size_t merge_plainly(uint32_t *ids, size_t n)
{
  static uint16_t ranks[GIGANTIC];
  const plain_merges *p = &plain_rules;
  for (size_t i = 0; i + 1 < n; i++) ranks[i] = p->rank[ids[i]][ids[i + 1]];
  for (;; n--) {
    uint16_t best = UINT16_MAX;
    size_t where = 0;
    for (size_t i = 0; i + 1 < n; i++) best = ranks[i] < best ? ranks[i] : best;
    if (best == UINT16_MAX) return n;
    while (ranks[where] != best) where++;
    ids[where] = p->joined[best];
    memmove(ids + where + 1, ids + where + 2, (n - where - 2) * sizeof *ids);
    memmove(ranks + where, ranks + where + 1, (n - where - 2) * sizeof *ranks);
    if (where > 0) ranks[where - 1] = p->rank[ids[where - 1]][ids[where]];
    if (where + 2 < n) ranks[where] = p->rank[ids[where]][ids[where + 1]];
  }
}

/* Merges of random tokens over the letters a, b, c, no bytes twice. */
static lm_vocab *random_vocab(uint32_t *state)
{
  static uint32_t merges[N_MERGES][2];
  lm_vocab *v = NULL;
  lm_error err = {0};
  forget_rules();
  for (size_t n = 0; n < N_MERGES;) {
    for (int k = 0; k < 2; k++) {
      uint32_t pick = draw(state, (uint32_t)n + 3);
      merges[n][k] = pick < 3 ? 'a' + pick : 256 + pick - 3;
    }
    lm_vocab_free(v);
    if (lm_vocab_from_merges(&v, (const uint32_t(*)[2])merges, n + 1, LM_PATTERN_GPT2, &err) != LM_OK) continue;
    add_rule(n, merges[n][0], merges[n][1], (uint32_t)(256 + n));
    n++;
  }
  return v;
}

/* Letters from 'a' on; with `repeats`, most are the one 3 before, so that equal words meet. Their ids are `plain`. */
static void draw_letters(char *text, uint32_t *plain, uint32_t first, size_t n, uint32_t letters, bool repeats,
                         uint32_t *state)
{
  for (size_t i = 0; i < n; i++) {
    text[i] = repeats && i >= 3 && draw(state, 8) > 0 ? text[i - 3] : (char)('a' + draw(state, letters));
    plain[i] = first + (uint32_t)(text[i] - 'a');
  }
}

/* Are the ids of a text those of the definition? @param first  id of the letter a */
static bool merges_as_defined(lm_encoder *e, const lm_vocab *v, uint32_t first, size_t n, uint32_t letters,
                              bool repeats, uint32_t *state)
{
  static char text[GIGANTIC];
  static uint32_t plain[GIGANTIC];
  lm_ids ids = {0};
  lm_error err = {0};
  draw_letters(text, plain, first, n, letters, repeats, state);
  size_t left = merge_plainly(plain, n);
  bool same = true;
  for (int twice = 0; twice < 2; twice++) { /* the second time from the cache */
    ids.size = 0;
    same &= lm_encode(e, text, n, false, &ids, &err) == LM_OK && ids.size == left &&
            memcmp(ids.data, plain, left * sizeof *plain) == 0 && decodes_to(v, &ids, text, n);
  }
  lm_ids_free(&ids);
  return same;
}

static void test_merging(void)
{
  uint32_t state = 5;
  lm_error err = {0};
  lm_vocab *v = random_vocab(&state), *again = NULL;
  lm_encoder *e;
  bool same = true;
  tap_ok(v != NULL && lm_vocab_size(v) == 256 + N_MERGES + 1, "a vocabulary of random merges");
  tap_ok(lm_encoder_new(&e, v, &err) == LM_OK, "its encoder");
  for (int round = 0; round < 300; round++) /* below and above where the lists take over */
    same &= merges_as_defined(e, v, 'a', 1 + draw(&state, round % 2 == 0 ? 40 : 1199), 3, false, &state);
  tap_ok(same, "random words: the ids of the definition, and they decode to the text");
  for (uint32_t k = 0; k < 6; k++) /* these are merged in windows */
    tap_ok(merges_as_defined(e, v, 'a', GIGANTIC - draw(&state, GIGANTIC / 4), 1 + k % 3, k >= 3, &state),
           "a gigantic word of %u letters%s: the ids of the definition", 1 + k % 3, k >= 3 ? ", repeated" : "");
  tap_ok(lm_vocab_save(v, FILE_NAME, &err) == LM_OK &&
             lm_vocab_load(&again, FILE_NAME, LM_PATTERN_O200K, &err) == LM_OK,
         "saved and loaded: %s", err.text);
  tap_ok(lm_vocab_fingerprint(v) == lm_vocab_fingerprint(again) && lm_vocab_size(v) == lm_vocab_size(again) &&
             lm_vocab_end_of_text(v) == lm_vocab_end_of_text(again) && lm_vocab_pattern(again) == LM_PATTERN_GPT2,
         "the same vocabulary");
  tap_ok(same_ids(again, "abcabcabba", ids_of(v, "abcabcabba", 10, false)), "the same ids");
  remove_file(FILE_NAME);
  lm_encoder_free(e);
  lm_vocab_free(v);
  lm_vocab_free(again);
}

/* Merges of each letter with the next one, the last letters first: how a run of letters is merged is decided at its
 * end. "abcd" is ab cd, "abcde" is a bc de. */
static void test_decided_at_the_end(void)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  enum { LETTERS = sizeof letters - 1, RUNS = 30000 };
  static char text[RUNS * LETTERS];
  static uint32_t merges[LETTERS - 1][2], want[RUNS * LETTERS];
  uint32_t state = 7;
  size_t n = 0, left = 0;
  lm_vocab *v;
  lm_encoder *e;
  lm_error err = {0};
  lm_ids ids = {0};
  for (size_t i = 0; i + 1 < LETTERS; i++) {
    merges[LETTERS - 2 - i][0] = (uint8_t)letters[i];
    merges[LETTERS - 2 - i][1] = (uint8_t)letters[i + 1];
  }
  tap_ok(lm_vocab_from_merges(&v, (const uint32_t(*)[2])merges, LETTERS - 1, LM_PATTERN_GPT2, &err) == LM_OK &&
             lm_encoder_new(&e, v, &err) == LM_OK,
         "a vocabulary of neighbours in the alphabet");
  for (int run = 0; run < RUNS; run++) {
    uint32_t from = draw(&state, 8), to = LETTERS / 2 + draw(&state, LETTERS / 2);
    memcpy(text + n, letters + from, to - from);
    n += to - from;
    if ((to - from) % 2 == 1) want[left++] = (uint8_t)letters[from++];
    for (; from < to; from += 2) want[left++] = 256 + LETTERS - 2 - from;
  }
  tap_ok(lm_encode(e, text, n, false, &ids, &err) == LM_OK && ids.size == left &&
             memcmp(ids.data, want, left * sizeof *want) == 0,
         "runs that are decided at their end, %zu letters without a space", n);
  lm_ids_free(&ids);
  lm_encoder_free(e);
  lm_vocab_free(v);
}

/* Every piece of text, whatever its neighbours and wherever its buffer ends, has the ids of the plain definition. */
static void test_random_text(void)
{
  static const char *const bits[] = {
      "a",  "b",    "ab",       "cab",          " ",        "  ", "\n", "'s", "'LL",  "12",
      "a1", "\xff", "\xc3\xa9", "\xe6\x97\xa5", "\xcc\x81", "C",  "!?", "\t", "\r\n", "abcabcabcabcabcabcabc"};
  uint32_t state = 11;
  lm_error err = {0};
  lm_vocab *v = random_vocab(&state);
  lm_encoder *e;
  bool back = true, same = true;
  tap_ok(lm_encoder_new(&e, v, &err) == LM_OK, "an encoder");
  for (int round = 0; round < 2000; round++) {
    char text[512];
    size_t n = 0;
    for (uint32_t k = draw(&state, 24); k > 0; k--) {
      const char *bit = bits[draw(&state, sizeof bits / sizeof bits[0])];
      memcpy(text + n, bit, strlen(bit));
      n += strlen(bit);
    }
    lm_ids ids = {0};
    char *exact = malloc(n + 1); /* so that a sanitizer sees a read behind the end */
    memcpy(exact, text, n);
    exact = realloc(exact, n > 0 ? n : 1);
    back &= lm_encode(e, exact, n, false, &ids, &err) == LM_OK && decodes_to(v, &ids, text, n);
    size_t at = 0;
    for (size_t i = 0, length; i < n; i += length) {
      uint32_t plain[512];
      length = lm_split_next(LM_PATTERN_GPT2, text + i, n - i);
      for (size_t k = 0; k < length; k++) plain[k] = (uint8_t)text[i + k];
      size_t left = merge_plainly(plain, length);
      same &= at + left <= ids.size && memcmp(ids.data + at, plain, left * sizeof *plain) == 0;
      at += left;
    }
    same &= at == ids.size;
    free(exact);
    lm_ids_free(&ids);
  }
  tap_ok(back, "random text comes back");
  tap_ok(same, "piece by piece it has the ids of the definition");
  lm_encoder_free(e);
  lm_vocab_free(v);
}

/* ---- merges in an order that no training gives: what a merge makes possible may have a lower rank than itself ---- */

enum { N_SHUFFLED = 700, SHUFFLED_TOKENS = 39 + 60 + 27 };

typedef struct shuffled {
  char tokens[SHUFFLED_TOKENS][8]; /* a, b, c, then words of them */
  uint32_t n_tokens;
  uint32_t merges[N_SHUFFLED][3]; /* left, right, joined */
  size_t n_merges;
} shuffled;

static uint32_t find_token(const shuffled *w, const char *text, size_t n)
{
  for (uint32_t id = 0; id < w->n_tokens; id++)
    if (strlen(w->tokens[id]) == n && memcmp(w->tokens[id], text, n) == 0) return id;
  return LM_NO_ID;
}

/* All words of up to 3 letters, some longer ones, and those of 3 letters twice; all ways to make them of two words, in
 * random order. */
static void make_shuffled(shuffled *w, uint32_t *state)
{
  for (uint32_t n = 1; n <= 6; n++)
    for (uint32_t k = 0, all = n == 1 ? 3 : n == 2 ? 9 : n == 4 || n == 5 ? 30 : 27; k < all; k++) {
      char word[8] = "";
      for (uint32_t i = 0, code = n == 4 || n == 5 ? draw(state, 243) : k; i < n; i++, code /= 3)
        word[i] = i >= 3 && n == 6 ? word[i - 3] : (char)('a' + code % 3);
      if (find_token(w, word, n) == LM_NO_ID) strcpy(w->tokens[w->n_tokens++], word);
    }
  for (uint32_t id = 0; id < w->n_tokens; id++)
    for (size_t n = strlen(w->tokens[id]), cut = 1; cut < n && w->n_merges < N_SHUFFLED; cut++) {
      uint32_t left = find_token(w, w->tokens[id], cut), right = find_token(w, w->tokens[id] + cut, n - cut);
      if (left == LM_NO_ID || right == LM_NO_ID) continue;
      uint32_t at = draw(state, (uint32_t)++w->n_merges), *to = w->merges[w->n_merges - 1];
      memmove(to, w->merges[at], sizeof w->merges[at]);
      memcpy(w->merges[at], (uint32_t[]){left, right, id}, sizeof w->merges[at]);
    }
}

static lm_vocab *load_shuffled(const shuffled *w)
{
  lm_buffer text = {0};
  lm_error err = {0};
  lm_vocab *v = NULL;
  lm_status s = lm_buffer_printf(&text, &err, "{\"pre_tokenizer\":%s,\"model\":{\"vocab\":{", byte_level);
  for (uint32_t id = 0; id < w->n_tokens && s == LM_OK; id++)
    s = lm_buffer_printf(&text, &err, "%s\"%s\":%u", id > 0 ? "," : "", w->tokens[id], id);
  if (s == LM_OK) s = lm_buffer_printf(&text, &err, "},\"merges\":[");
  for (size_t i = 0; i < w->n_merges && s == LM_OK; i++)
    s = lm_buffer_printf(&text, &err, "%s\"%s %s\"", i > 0 ? "," : "", w->tokens[w->merges[i][0]],
                         w->tokens[w->merges[i][1]]);
  if (s == LM_OK) s = lm_buffer_printf(&text, &err, "]}}");
  write_file(FILE_NAME, text.data, text.size);
  if (s == LM_OK) s = lm_vocab_load(&v, FILE_NAME, LM_PATTERN_GPT2, &err);
  if (s != LM_OK) fprintf(stderr, "# %s\n", err.text);
  remove_file(FILE_NAME);
  lm_buffer_free(&text);
  return v;
}

static void test_shuffled(void)
{
  enum { ROUNDS = 60 };
  uint32_t state = 3;
  bool same = true, gigantic = true, has_no_end = true;
  for (int round = 0; round < ROUNDS; round++) {
    shuffled w = {0};
    lm_encoder *e;
    lm_error err = {0};
    make_shuffled(&w, &state);
    lm_vocab *v = load_shuffled(&w);
    if (v == NULL || lm_encoder_new(&e, v, &err) != LM_OK) {
      same = false;
      break;
    }
    forget_rules();
    for (size_t i = 0; i < w.n_merges; i++) add_rule(i, w.merges[i][0], w.merges[i][1], w.merges[i][2]);
    has_no_end &= lm_vocab_end_of_text(v) == LM_NO_ID;
    for (int k = 0; k < 10; k++) /* long enough for lists; few letters, so that equal tokens meet */
      same &= merges_as_defined(e, v, 0, 150 + draw(&state, 250), 1 + draw(&state, 3), true, &state);
    if (round < 3) gigantic &= merges_as_defined(e, v, 0, GIGANTIC - 8000, 2, true, &state);
    lm_encoder_free(e);
    lm_vocab_free(v);
  }
  tap_ok(same, "merges in random order: the ids of the definition, in long pieces too");
  tap_ok(gigantic, "and in gigantic ones");
  tap_ok(has_no_end, "a vocabulary without special tokens has no end of text");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_bytes();
  test_json();
  test_normalizer();
  test_whole_first();
  test_added();
  test_split_in_json();
  test_refused();
  test_refused_files();
  test_ranks();
  test_bpe();
  test_merging();
  test_decided_at_the_end();
  test_random_text();
  test_shuffled();
  return tap_end();
}
