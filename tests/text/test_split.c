/* tests/text/test_split.c - the split patterns against pieces read off their regular expressions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "text/split.h"
#include "text/split_regex.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces are separated by '|' in `want`; no text here contains one. */
static bool splits(lm_pattern p, const char *text, const char *want)
{
  char got[256];
  size_t n = strlen(text), at = 0;
  for (size_t i = 0; i < n;) {
    size_t k = lm_split_next(p, text + i, n - i);
    if (at > 0) got[at++] = '|';
    memcpy(got + at, text + i, k);
    at += k;
    i += k;
  }
  got[at] = '\0';
  if (strcmp(got, want) != 0) fprintf(stderr, "# %s: got  %s\n# want %s\n", lm_pattern_name(p), got, want);
  return strcmp(got, want) == 0;
}

static void test_gpt2(void)
{
  lm_pattern p = LM_PATTERN_GPT2;
  tap_ok(splits(p, "Hello world", "Hello| world"), "words");
  tap_ok(splits(p, "a   b  ", "a|  | b|  "), "a run of spaces leaves its last to the word, and stays whole at the end");
  tap_ok(splits(p, "a\n\nb", "a|\n|\n|b"), "line ends: the last of a run stands alone");
  tap_ok(splits(p, "I'm 'store we'LL don\xe2\x80\x99t", "I|'m| '|store| we|'|LL| don|\xe2\x80\x99|t"), "contractions");
  tap_ok(splits(p, "'store", "'s|tore"), "a contraction does not look at what follows it");
  tap_ok(splits(p, "x2+y 12345!? _a", "x|2|+|y| 12345|!?| _|a"), "numbers and punctuation");
  tap_ok(splits(p, "cafe\xcc\x81s", "cafe|\xcc\x81|s"), "a combining mark is no letter");
  tap_ok(splits(p,
                "a \xc2\x85"
                "b",
                "a| |\xc2\x85|b"),
         "U+0085 is white space");
  tap_ok(splits(p,
                "a \xe2\x80\x8b"
                "b\x1c",
                "a| \xe2\x80\x8b|b|\x1c"),
         "U+200B and U+001C are not");
  tap_ok(splits(p, " \xe6\x97\xa5\xe6\x9c\xac\xc2\xb2", " \xe6\x97\xa5\xe6\x9c\xac|\xc2\xb2"),
         "ideographs, a superscript");
}

static void test_cl100k(void)
{
  lm_pattern p = LM_PATTERN_CL100K;
  tap_ok(splits(p, "a  b  ", "a| | b|  "), "spaces");
  tap_ok(splits(p, "a \n b\n\n\nc", "a| \n| b|\n\n\n|c"), "a line end closes the run of white space before it");
  tap_ok(splits(p, "WE'LL 'RE don'T", "WE|'LL| '|RE| don|'T"), "contractions in any case");
  tap_ok(splits(p, "'\xc5\xbf", "'\xc5\xbf"), "the long s folds to s");
  tap_ok(splits(p, "1234567 89", "123|456|7| |89"), "numbers in threes, no space in front");
  tap_ok(splits(p, "f(x)!\n\nb\t\tc", "f|(x|)!\n\n|b|\t|\tc"),
         "one character may lead a word; line ends follow punctuation");
}

static void test_o200k(void)
{
  lm_pattern p = LM_PATTERN_O200K;
  tap_ok(splits(p, "HelloWorld ABCdef XYZ", "Hello|World| ABCdef| XYZ"), "case splits words");
  tap_ok(splits(p, "don't WE'RE x's", "don't| WE'RE| x's"), "contractions belong to their word");
  tap_ok(splits(p, "//\n/a 1234", "//\n/|a| |123|4"), "slashes follow punctuation");
  tap_ok(splits(p,
                "\xe6\x97\xa5"
                "ABC",
                "\xe6\x97\xa5|ABC"),
         "given back up to the last letter without case");
  tap_ok(splits(p,
                "\xcc\x81"
                "ABC",
                "\xcc\x81|ABC"),
         "a mark in front is given back too");
  tap_ok(splits(p, "e\xcc\x81t\xcc\x81", "e\xcc\x81t\xcc\x81"), "marks stay inside words");
}

static void test_bytes(void)
{
  tap_ok(splits(LM_PATTERN_GPT2, "a\xff\xe9 b\xc0\x80", "a|\xff\xe9| b|\xc0\x80"), "bytes that are not UTF-8 are kept");
  size_t length;
  tap_ok(lm_utf8_class((const uint8_t *)"\xed\xa0\xbd", 3, &length) == 0 && length == 1, "surrogates are not UTF-8");
  tap_ok(lm_utf8_class((const uint8_t *)"\xf4\x90\x80\x80", 4, &length) == 0 && length == 1, "nor is U+110000");
  tap_ok(lm_utf8_class((const uint8_t *)"\xe6\x97", 2, &length) == 0 && length == 1, "nor what is cut off");
  bool moves = true;
  unsigned state = 1;
  for (int round = 0; round < 20000 && moves; round++) {
    char text[12];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)((state = state * 1664525u + 1013904223u) >> 24);
    for (int p = LM_PATTERN_GPT2; p <= LM_PATTERN_QWEN2; p++)
      for (size_t i = 0; i < sizeof text && moves;) {
        size_t k = lm_split_next((lm_pattern)p, text + i, sizeof text - i);
        moves = k >= 1 && k <= sizeof text - i;
        i += k;
      }
  }
  tap_ok(moves, "random bytes: every piece has a byte and ends in the text");
}

/* Code points at the ends of ranges, and where the classes of UnicodeData.txt and PropList.txt are easily mistaken. */
static void test_classes(void)
{
  static const struct {
    uint32_t c;
    unsigned class;
  } known[] = {
      {0x3400, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* Lo, the first of a range */
      {0x4dbf, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* its last */
      {0x4e00, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* Lo */
      {0x9fff, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* Lo */
      {0xac00, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* Lo */
      {0xd7a3, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},  /* Lo */
      {0xd7a4, 0},                                                  /* not assigned */
      {0x323af, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER}, /* Lo, the last letter of Unicode 15.0 */
      {0x323b0, 0},                                                 /* not assigned */
      {0x1c5, LM_CLASS_LETTER | LM_CLASS_UPPER},                    /* Lt */
      {0x2b0, LM_CLASS_LETTER | LM_CLASS_UPPER | LM_CLASS_LOWER},   /* Lm */
      {0x301, LM_CLASS_UPPER | LM_CLASS_LOWER | LM_CLASS_UNSTABLE}, /* Mn, which combines */
      {0x2160, LM_CLASS_NUMBER},                                    /* Nl */
      {0xbd, LM_CLASS_NUMBER},                                      /* No */
      {0x85, LM_CLASS_SPACE},
      {0x2028, LM_CLASS_SPACE},
      {0x3000, LM_CLASS_SPACE},
      {0x180e, 0},
      {0x1c, 0},
      {0xfeff, 0},
      {0x10ffff, 0},
      {'\r', LM_CLASS_SPACE | LM_CLASS_NEWLINE},
      {'\v', LM_CLASS_SPACE},
      {'z', LM_CLASS_LETTER | LM_CLASS_LOWER},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    tap_ok(lm_unicode_class(known[i].c) == known[i].class, "the classes of U+%04X", known[i].c);
}

static void test_names(void)
{
  bool same = true;
  for (int i = LM_PATTERN_GPT2; i <= LM_PATTERN_QWEN2; i++) {
    lm_pattern found;
    same &= lm_pattern_of_regex(lm_pattern_regex((lm_pattern)i), &found) &&
            strcmp(lm_pattern_regex(found), lm_pattern_regex((lm_pattern)i)) == 0;
  }
  tap_ok(same, "the expression of a pattern leads back to it");
  lm_pattern found;
  tap_ok(!lm_pattern_of_regex("\\w+|\\s", &found), "an unknown expression has no pattern");
}

static void test_qwen2(void)
{
  tap_ok(splits(LM_PATTERN_QWEN2, "x 1234567 a", "x| |1|2|3|4|5|6|7| a"), "numbers one by one");
}

/* ---- PCRE2 as another reader of the same expressions ---- */

/* Characters near every border of the patterns; all of them older than the Unicode of any PCRE2 in use. */
static const char *const alphabet[] = {
    "a",
    "b",
    "s",
    "t",
    "r",
    "e",
    "v",
    "l",
    "L",
    "m",
    "D",
    "S",
    "'",
    "'s",
    "'LL",
    "'\xc5\xbf",
    " ",
    " ",
    "  ",
    "\n",
    "\r",
    "\t",
    "\v",
    "1",
    "2",
    "34",
    "567",
    "!",
    "?",
    "/",
    "//",
    "_",
    "-",
    "\x1c",
    "\x7f",
    "\xc2\x85" /* U+0085 */,
    "\xc2\xa0" /* U+00A0 */,
    "\xc2\xb2" /* U+00B2, No */,
    "\xc3\x89" /* U+00C9, Lu */,
    "\xc3\xa9" /* U+00E9, Ll */,
    "\xc7\x85" /* U+01C5, Lt */,
    "\xca\xb0" /* U+02B0, Lm */,
    "\xcc\x81" /* U+0301, Mn */,
    "\xd9\xa3" /* U+0663, Nd */,
    "\xe0\xa4\xb9" /* U+0939, Lo */,
    "\xe0\xa4\xbf" /* U+093F, Mc */,
    "\xe1\x9a\x80" /* U+1680, Zs */,
    "\xe1\xa0\x8e" /* U+180E, Cf */,
    "\xe2\x80\x8b" /* U+200B */,
    "\xe2\x80\x99" /* U+2019 */,
    "\xe2\x80\xa8" /* U+2028 */,
    "\xe2\x85\xa0" /* U+2160, Nl */,
    "\xe3\x80\x80" /* U+3000 */,
    "\xe6\x97\xa5" /* U+65E5, Lo */,
    "\xef\xbb\xbf" /* U+FEFF */,
    "\xf0\x9f\x98\x80" /* U+1F600 */,
    "\xf0\x90\x90\x80" /* U+10400, Lu */,
};
enum { N_ALPHABET = sizeof alphabet / sizeof alphabet[0] };

/* Do the hand-written pattern and its expression cut a text alike? */
static bool cut_alike(lm_pattern p, lm_regex_walk *w, const char *text, size_t n)
{
  lm_error err;
  lm_regex_walk_begin(w, text, n);
  for (size_t i = 0; i < n;) {
    size_t hand = lm_split_next(p, text + i, n - i), want;
    if (lm_regex_walk_next(w, i, &want, &err) != LM_OK || hand != want) {
      fprintf(stderr, "# %s: byte %zu: a piece of %zu bytes, want %zu, of '%s'\n", lm_pattern_name(p), i, hand, want,
              text);
      return false;
    }
    i += hand;
  }
  return true;
}

static void test_oracle(void)
{
  unsigned state = 12345;
  for (int p = LM_PATTERN_GPT2; p <= LM_PATTERN_QWEN2; p++) {
    lm_regex *r;
    lm_regex_walk *w;
    lm_error err = {0};
    if (lm_regex_new(&r, lm_pattern_regex((lm_pattern)p), &err) != LM_OK || lm_regex_walk_new(&w, r, &err) != LM_OK)
      abort();
    int same = 0;
    for (int round = 0; round < 20000; round++) {
      char text[256] = "";
      size_t n = 0;
      for (int k = 1 + round % 24; k > 0; k--) {
        state = state * 1664525u + 1013904223u;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", alphabet[(state >> 8) % N_ALPHABET]);
      }
      same += cut_alike((lm_pattern)p, w, text, n);
    }
    tap_ok(same == 20000, "%s: 20000 random texts are cut as PCRE2 cuts them", lm_pattern_name((lm_pattern)p));
    lm_regex_walk_free(w);
    lm_regex_free(r);
  }
}

static void test_regex_refused(void)
{
  static const struct {
    const char *regex, *word;
  } rows[] = {{"(a", "parenthes"}, {"[^\\S]", "\\S"}, {"\\h+", "\\h"}, {"[a-z&&[^b]]", "&&"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    lm_regex *r;
    lm_error err = {0};
    tap_ok(lm_regex_new(&r, rows[i].regex, &err) == LM_EINVAL && r == NULL && strstr(err.text, rows[i].word) != NULL,
           "'%s' is refused: %s", rows[i].regex, err.text);
  }
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_gpt2();
  test_cl100k();
  test_o200k();
  test_bytes();
  test_classes();
  test_names();
  test_qwen2();
  test_oracle();
  test_regex_refused();
  return tap_end();
}
