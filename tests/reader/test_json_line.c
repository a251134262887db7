/* tests/reader/test_json_line.c - one line of JSON Lines, against what RFC 8259 says and what jansson reads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "tests/tap.h"
#include "text/json_line.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of exactly n bytes: a read behind the line's end is seen by the sanitizer. */
typedef struct line {
  char *bytes;
  const char *text;
  size_t size;
  uint64_t lone;
  lm_error err;
  lm_status status;
} line;

static line read_line(const char *bytes, size_t n, const char *key)
{
  line l = {.bytes = malloc(n > 0 ? n : 1)};
  memcpy(l.bytes, bytes, n);
  l.status = lm_json_line_text(l.bytes, n, key, &l.text, &l.size, &l.lone, &l.err);
  return l;
}

static void good(const char *bytes, const char *want, size_t n, uint64_t lone)
{
  line l = read_line(bytes, strlen(bytes), "text");
  tap_ok(l.status == LM_OK && l.size == n && memcmp(l.text, want, n) == 0 && l.lone == lone, "%.60s: %s", bytes,
         l.err.text);
  free(l.bytes);
}
#define GOOD(bytes, want)            good(bytes, want, sizeof want - 1, 0)
#define GOOD_LONE(bytes, want, lone) good(bytes, want, sizeof want - 1, lone)

static void bad(const char *bytes, const char *words)
{
  line l = read_line(bytes, strlen(bytes), "text");
  tap_ok(l.status == LM_EINVAL && strstr(l.err.text, words) != NULL, "%.60s: %s", bytes, l.err.text);
  free(l.bytes);
}

static void check_values(void)
{
  GOOD("{\"text\":\"alpha\"}", "alpha");
  GOOD(" { \"a\" : [1, -2.5e+3, {\"text\": \"no\"}, [], {}] , \"text\" : \"b\" }\r", "b");
  GOOD("{\"text\":\"caf\\u00e9 \\ud83d\\ude00\"}", "caf\xc3\xa9 \xf0\x9f\x98\x80");
  GOOD("{\"text\":\"\\ud800\\udc00\\udbff\\udfff\\ud7ff\\ue000\\uffff\"}",
       "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf");
  GOOD("{\"text\":\"a\\u0000b\\u007f\\u0080\\u07FF\\u0800\"}", "a\0b\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80");
  GOOD("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
  GOOD("{\"text\":\"\"}", "");
  GOOD("{\"\":0,\"te\\u0078t\":\"key\"}", "key");
  GOOD("{\"text\":\"first\",\"text\":\"last\"}", "last");
  GOOD("{\"x\":NaN,\"y\":-Infinity,\"z\":Infinity,\"text\":\"python\"}", "python");
  GOOD("{\"text\":\"caf\xe9 \xed\xa0\xbd\"}", "caf\xe9 \xed\xa0\xbd");
  GOOD("{\"text\":\"seven..\x7f\x80\xff e i g h t\"}", "seven..\x7f\x80\xff e i g h t");
  GOOD_LONE("{\"text\":\"a\\ud83db\"}",
            "a\xef\xbf\xbd"
            "b",
            1);
  GOOD_LONE("{\"text\":\"\\udc00\\udc00\"}", "\xef\xbf\xbd\xef\xbf\xbd", 2);
  GOOD_LONE("{\"text\":\"\\ude00\\ud83d\"}", "\xef\xbf\xbd\xef\xbf\xbd", 2);
  GOOD_LONE("{\"text\":\"\\ud83d\\ud83d\\ude00\\ud83d\\u0041\"}",
            "\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd"
            "A",
            2);
}

static void check_refusals(void)
{
  bad("{\"content\":\"beta\", \"id\":1}", "has no key \"text\"; its keys are \"content\", \"id\"");
  bad("{}", "its keys are none");
  bad("{\"text\":null}", "is not a string");
  bad("{\"text\":\"a\",\"text\":[\"b\"]}", "is not a string");
  bad("{\"text\":\"beta", "byte 14 of the line: the line ends inside");
  bad("{\"text\":\"beta\\", "byte 15 of the line: the line ends inside a string");
  bad("{\"text\":\"beta\"", "one object per line");
  bad("[", "byte 1 of the line: '{' was wanted; JSON Lines expects one object per line");
  bad("{", "one object per line");
  bad("\"text\"", "one object per line");
  bad("{\"text\":\"a\"}{\"text\":\"b\"}",
      "byte 13 of the line: more follows the object; JSON Lines expects one object per line");
  bad("{\"text\":\"a\"},", "one object per line");
  bad("{\"text\":\"a\tb\"}", "byte 11 of the line: a raw control character");
  bad("{\"text\":\"eight by\x1ftes at a time\"}", "byte 18 of the line: a raw control character");
  bad("{\"text\":\"\\x41\"}", "unknown escape");
  bad("{\"text\":\"\\u12g4\"}", "four hexadecimal digits");
  bad("{\"text\":\"\\u12\"}", "four hexadecimal digits");
  bad("{\"text\":\"a\",}", "a key in quotes");
  bad("{\"a\":01,\"text\":\"a\"}", "',' or '}'");
  bad("{\"a\":+1,\"text\":\"a\"}", "a value was wanted");
  bad("{\"a\":1.,\"text\":\"a\"}", "a digit was wanted");
  bad("{\"a\":[1,],\"text\":\"a\"}", "a value was wanted");
  bad("{\"a\":[1}],\"text\":\"a\"}", "',' or ']'");
  bad("{'text':'a'}", "a key in quotes");
  bad("{\"text\" \"a\"}", "':' was wanted");
  line l = read_line("\0{\"text\":\"a\"}", 13, "text");
  tap_ok(l.status == LM_EINVAL, "a NUL outside strings: %s", l.err.text);
  free(l.bytes);
  tap_ok(lm_json_line_is_blank(" \t\r", 3) && lm_json_line_is_blank("", 0) && !lm_json_line_is_blank("\v", 1),
         "which lines are blank");
}

/* As deep as the line is long, with memory for the depth alone. */
static void check_depth(void)
{
  enum { DEPTH = 100000 };
  lm_buffer b = {0};
  lm_error err = {0};
  lm_status s = lm_buffer_append(&b, "{\"a\":", 5, &err);
  for (int i = 0; i < DEPTH && s == LM_OK; i++) s = lm_buffer_append(&b, "[", 1, &err);
  for (int i = 0; i < DEPTH && s == LM_OK; i++) s = lm_buffer_append(&b, "]", 1, &err);
  if (s == LM_OK) s = lm_buffer_append(&b, ",\"text\":\"deep\"}", 15, &err);
  line l = read_line(b.data, b.size, "text");
  tap_ok(s == LM_OK && l.status == LM_OK && l.size == 4, "%d arrays around nothing", DEPTH);
  free(l.bytes);
  lm_buffer_free(&b);
}

/* Ours takes more: NaN, halves of pairs, bytes that are not UTF-8, numbers of any size, NUL in keys. */
static bool only_jansson_refuses(const char *bytes, size_t n, const line *l, const json_error_t *e)
{
  static const char *const words[] = {"NUL byte", "too big", "overflow", "Unicode", "unable to decode"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strstr(e->text, words[i]) != NULL) return true;
  return l->lone > 0 || memmem(bytes, n, "NaN", 3) != NULL || memmem(bytes, n, "Infinity", 8) != NULL;
}

static bool agrees(const char *bytes, size_t n)
{
  json_error_t e;
  json_t *theirs = json_loadb(bytes, n, JSON_ALLOW_NUL, &e);
  json_t *text = json_object_get(theirs, "text");
  line l = read_line(bytes, n, "text");
  bool ok;
  if (l.status != LM_OK)
    ok = !json_is_string(text);
  else if (json_is_string(text))
    ok = json_string_length(text) == l.size && memcmp(json_string_value(text), l.text, l.size) == 0;
  else
    ok = theirs == NULL && only_jansson_refuses(bytes, n, &l, &e);
  if (!ok) fprintf(stderr, "# differs: %.*s (%s | %s)\n", (int)n, bytes, l.err.text, e.text);
  free(l.bytes);
  json_decref(theirs);
  return ok;
}

static const char *const seeds[] = {
    "{\"text\":\"alpha\\u00e9 \\ud83d\\ude00\"}",
    "{\"a\":[1,-2.5e3,{\"b\":null},[]],\"text\":\"x\\n\\\"\",\"c\":{\"d\":true}}",
    "{ \"text\" : \"caf\xc3\xa9\" , \"n\" : NaN, \"t\\u0065xt\": \"y\" }",
    "{\"x\":false,\"y\":\"\\\\\\/\\b\\f\\r\\t\",\"text\":\"long enough for eight at a time \\u0041\"}",
};

static void check_mutations(void)
{
  static const char alphabet[] = "\"\\{}[]:,0123456789eE+-.utrfalsn bdDcC/\t\n\x01\x80\xff\xc3x";
  enum { ROUNDS = 60000 };
  size_t differ = 0;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    char bytes[256];
    const char *seed = seeds[i % 4];
    size_t n = strlen(seed);
    memcpy(bytes, seed, n);
    for (uint32_t k = 0; k <= i / 4 % 4; k++) {
      uint32_t w[4];
      lm_random_words(7, LM_STREAM_SAMPLE, i, k, w);
      char c = alphabet[w[1] % (sizeof alphabet - 1)]; /* no NUL: jansson passes over it */
      size_t at = w[2] % n, from = w[3] % n;
      switch (w[0] >> 8 & 3) {
      case 0: bytes[at] = c; break;
      case 1: n = at + 1; break;
      case 2: memmove(bytes + at, bytes + from, n - (at > from ? at : from)); break;
      default:
        memmove(bytes + at + 1, bytes + at, n - at);
        bytes[at] = c;
        n++;
      }
    }
    differ += !agrees(bytes, n);
  }
  tap_ok(differ == 0, "%d damaged lines: accepted, refused and read as by jansson", ROUNDS);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  check_values();
  check_refusals();
  check_depth();
  check_mutations();
  return tap_end();
}
