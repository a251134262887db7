/* tests/text/test_nfc.c - normalisation: cases by hand, and all of Unicode's own NormalizationTest.txt where it is. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "text/nfc.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lm_nfc scratch;

/* Of n bytes; with the quick check that stands before it wherever it is used. */
static bool becomes(const char *from, size_t n, const char *to, size_t n_to)
{
  lm_buffer out = {0};
  lm_error err;
  bool same = lm_nfc_append(&scratch, from, n, &out, &err) == LM_OK && out.size == n_to &&
              (n_to == 0 || memcmp(out.data, to, n_to) == 0) &&
              (!lm_nfc_quick(from, n) || (n == n_to && out.size == n));
  lm_buffer_free(&out);
  return same;
}

static bool text_becomes(const char *from, const char *to)
{
  return becomes(from, strlen(from), to, strlen(to));
}

static void by_hand(void)
{
  tap_ok(text_becomes("", "") &&
             text_becomes("plain ASCII of more than eight bytes", "plain ASCII of more than eight bytes"),
         "ASCII stays");
  tap_ok(text_becomes("cafe\xcc\x81", "caf\xc3\xa9"), "e and an acute accent are one letter");
  tap_ok(text_becomes("12345678e\xcc\x81", "12345678\xc3\xa9"), "also behind eight bytes of ASCII");
  tap_ok(text_becomes("caf\xc3\xa9", "caf\xc3\xa9"), "one letter stays");
  tap_ok(text_becomes("q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87"), "marks are put in order");
  tap_ok(text_becomes("a\xcc\x95\xcc\x80\xcc\x96", "\xc3\xa0\xcc\x96\xcc\x95"),
         "a letter takes a mark that no equal one hides");
  tap_ok(text_becomes("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"),
         "three letters are one syllable of Hangul");
  tap_ok(text_becomes("\xe2\x84\xab", "\xc3\x85"), "the Angstrom sign is the letter");
  tap_ok(text_becomes("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"), "what is excluded from composition stays apart");
  tap_ok(text_becomes("e\xff\xcc\x81", "e\xff\xcc\x81") && text_becomes("\xff\xcc\x81", "\xff\xcc\x81") &&
             text_becomes("e\xcc", "e\xcc"),
         "bytes that are not UTF-8 stay, and nothing composes across them");
  tap_ok(text_becomes("\xcc\x81 e\xcc\x81", "\xcc\x81 \xc3\xa9"), "a mark in front of all stays");
}

/* A million marks, of two classes in turn: sorted in n log n. */
static void many_marks(void)
{
  enum { PAIRS = 500000 };
  char *from = malloc(4 * PAIRS), *to = malloc(4 * PAIRS);
  if (from == NULL || to == NULL) abort();
  for (size_t i = 0; i < PAIRS; i++) {
    memcpy(from + 4 * i, "\xcc\x81\xcc\xa3", 4); /* classes 230, 220 */
    memcpy(to + 2 * i, "\xcc\xa3", 2);
    memcpy(to + 2 * (PAIRS + i), "\xcc\x81", 2);
  }
  tap_ok(becomes(from, 4 * (size_t)PAIRS, to, 4 * (size_t)PAIRS), "a million marks are sorted");
  free(from);
  free(to);
}

/* ---- Unicode's own cases ---- */

static size_t put(char *out, unsigned long c)
{
  if (c < 0x80) return out[0] = (char)c, 1;
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t k = n; k-- > 1; c >>= 6) out[k] = (char)(0x80 | (c & 63));
  out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
  return n;
}

/* "1E0A 0323;": the text, and behind the semicolon. */
static char *column(char *at, char out[256], size_t *n)
{
  for (*n = 0; *at != ';' && *at != '\0';) *n += put(out + *n, strtoul(at, &at, 16));
  return at + (*at == ';');
}

static bool line_holds(char *line, unsigned long *first)
{
  char c[5][256];
  size_t n[5];
  *first = strtoul(line, NULL, 16);
  for (int i = 0; i < 5; i++) line = column(line, c[i], &n[i]);
  bool holds = true;
  for (int i = 0; i < 3; i++) holds = holds && becomes(c[i], n[i], c[1], n[1]);
  for (int i = 3; i < 5; i++) holds = holds && becomes(c[i], n[i], c[3], n[3]);
  return holds;
}

static void published(void)
{
  static const char command[] = "cat /usr/share/unicode/NormalizationTest.txt 2>/dev/null || "
                                "bzip2 -dc /usr/share/unicode/NormalizationTest.txt.bz2 2>/dev/null";
  static bool listed[0x110000];
  char line[4096], utf8[4];
  int lines = 0, bad = 0, part = 0, moved = 0;
  FILE *f = popen(command, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    unsigned long first;
    if (lines == 0 && line[0] == '#' && strstr(line, "NormalizationTest-") != NULL &&
        strstr(line, lm_unicode_version) == NULL)
      break; /* of another Unicode than the tables */
    if (line[0] == '@') part = line[5] - '0';
    if (strchr("0123456789ABCDEF", line[0]) == NULL) continue;
    lines++;
    bad += !line_holds(line, &first);
    if (part == 1) listed[first] = true;
  }
  if (f != NULL) pclose(f);
  if (lines < 10000) {
    tap_ok(true, "Unicode's own cases # SKIP no NormalizationTest.txt of Unicode %s (unicode-data, bzip2)",
           lm_unicode_version);
    return;
  }
  tap_ok(bad == 0, "%d of %d lines of NormalizationTest.txt fail", bad, lines);
  for (unsigned long c = 1; c < 0x110000; c++) {
    if (listed[c] || (c >= 0xd800 && c < 0xe000)) continue;
    size_t n = put(utf8, c);
    moved += !becomes(utf8, n, utf8, n);
  }
  tap_ok(moved == 0, "every other character stays as it is (%d do not)", moved);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  by_hand();
  many_marks();
  published();
  lm_nfc_free(&scratch);
  return tap_end();
}
