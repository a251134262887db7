/* tests/reader/test_learn_merges.c - merges against a recount of everything in every round. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/rng.h"
#include "tests/tap.h"
#include "text/learn_merges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 64, MAX_LENGTH = 24, MAX_MERGES = 120 };

/* A corpus small enough to be counted afresh in every round. */
typedef struct corpus {
  int n_words, length[MAX_WORDS];
  uint32_t ids[MAX_WORDS][MAX_LENGTH];
  uint64_t times[MAX_WORDS];
  char spelled[256 + MAX_MERGES][MAX_LENGTH + 1]; /* the text of each id; no word has a NUL */
  int n_ids;
} corpus;

static corpus *random_corpus(uint32_t seed)
{
  corpus *c = calloc(1, sizeof *c);
  uint32_t w[4], letters;
  lm_random_words(seed, LM_STREAM_SAMPLE, 0, 0, w);
  letters = 1 + w[0] % 4;
  c->n_words = 1 + (int)(w[1] % (MAX_WORDS / 2));
  for (int i = 0; i < c->n_words; i++) {
    lm_random_words(seed, LM_STREAM_SAMPLE, 1, (uint64_t)i, w);
    c->length[i] = 1 + (int)(w[0] % MAX_LENGTH);
    c->times[i] = 1 + w[1] % 3;
    for (int k = 0; k < c->length[i]; k++) {
      lm_random_words(seed, LM_STREAM_SAMPLE, 2 + (uint64_t)k, (uint64_t)i, w);
      c->ids[i][k] = 'a' + w[0] % letters;
    }
  }
  for (c->n_ids = 0; c->n_ids < 256; c->n_ids++) c->spelled[c->n_ids][0] = (char)c->n_ids;
  return c;
}

enum { JOINED = 2 * MAX_LENGTH + 1 };

static void join(const corpus *c, uint32_t x, uint32_t y, char joined[JOINED])
{
  snprintf(joined, JOINED, "%s%s", c->spelled[x], c->spelled[y]);
}

static bool is_spelled(const corpus *c, uint32_t x, uint32_t y)
{
  char joined[JOINED];
  join(c, x, y, joined);
  for (int i = 1; i < c->n_ids; i++)
    if (strcmp(c->spelled[i], joined) == 0) return true;
  return false;
}

static uint64_t count_pair(const corpus *c, uint32_t x, uint32_t y)
{
  uint64_t n = 0;
  for (int i = 0; i < c->n_words; i++)
    for (int k = 0; k + 1 < c->length[i]; k++)
      if (c->ids[i][k] == x && c->ids[i][k + 1] == y) n += c->times[i];
  return n;
}

/* The rule in the words of learn_merges.h: count, then the smaller left id, then the smaller right id. */
static bool best_pair(const corpus *c, uint32_t best[2])
{
  uint64_t most = 0;
  for (int i = 0; i < c->n_words; i++)
    for (int k = 0; k + 1 < c->length[i]; k++) {
      uint32_t x = c->ids[i][k], y = c->ids[i][k + 1];
      uint64_t n = count_pair(c, x, y);
      if (n < most || (n == most && (x > best[0] || (x == best[0] && y >= best[1])))) continue;
      most = n;
      best[0] = x;
      best[1] = y;
    }
  return most > 0;
}

static void merge_pair(corpus *c, const uint32_t pair[2])
{
  for (int i = 0; i < c->n_words; i++) {
    int n = 0;
    for (int k = 0; k < c->length[i]; k++, n++) {
      bool here = k + 1 < c->length[i] && c->ids[i][k] == pair[0] && c->ids[i][k + 1] == pair[1];
      c->ids[i][n] = here ? (uint32_t)c->n_ids : c->ids[i][k];
      k += here;
    }
    c->length[i] = n;
  }
  char joined[JOINED];
  join(c, pair[0], pair[1], joined);
  memcpy(c->spelled[c->n_ids++], joined, MAX_LENGTH + 1); /* no token is longer than a word */
}

static lm_status fill_counts(const corpus *c, lm_piece_counts *counts, bool backwards, lm_error *err)
{
  for (int i = 0; i < c->n_words; i++) {
    int at = backwards ? c->n_words - 1 - i : i;
    char word[MAX_LENGTH];
    for (int k = 0; k < c->length[at]; k++) word[k] = (char)c->ids[at][k];
    LM_TRY(lm_piece_counts_add(counts, word, (size_t)c->length[at], c->times[at], err));
  }
  return LM_OK;
}

static bool agrees(uint32_t seed, int *twice, size_t *merged)
{
  corpus *c = random_corpus(seed);
  lm_piece_counts counts = {0};
  lm_error err = {0};
  uint32_t(*merges)[2] = NULL, want[2];
  size_t n = 0, i = 0;
  lm_status s = fill_counts(c, &counts, seed % 2 == 1, &err);
  if (s == LM_OK) s = lm_learn_merges(&counts, MAX_MERGES, &merges, &n, &err);
  bool ok = s == LM_OK;
  for (; ok && i < MAX_MERGES && best_pair(c, want); i++) {
    ok = i < n && merges[i][0] == want[0] && merges[i][1] == want[1];
    *twice += is_spelled(c, want[0], want[1]);
    merge_pair(c, want);
  }
  ok = ok && i == n;
  *merged += n;
  free(merges);
  lm_piece_counts_free(&counts);
  free(c);
  return ok;
}

static void check_recount(void)
{
  enum { CORPORA = 400 };
  int wrong = 0, twice = 0;
  size_t merged = 0;
  for (uint32_t seed = 0; seed < CORPORA; seed++) wrong += !agrees(seed, &twice, &merged);
  tap_ok(wrong == 0 && merged > CORPORA, "%zu merges of %d random corpora, as a recount finds them", merged, CORPORA);
  tap_ok(twice == 0, "no two merges spell the same bytes");
}

static bool learns(const char *text, size_t n, size_t wanted, const uint32_t (*want)[2], size_t n_want)
{
  lm_piece_counts counts = {0};
  lm_error err = {0};
  uint32_t(*merges)[2] = NULL;
  size_t got = 0;
  lm_status s = n > 0 ? lm_piece_counts_add(&counts, text, n, 1, &err) : LM_OK;
  if (s == LM_OK) s = lm_learn_merges(&counts, wanted, &merges, &got, &err);
  bool ok = s == LM_OK && got == n_want && (n_want == 0 || want == NULL || memcmp(merges, want, n_want * 8) == 0);
  free(merges);
  lm_piece_counts_free(&counts);
  return ok;
}

/* "aaabdaaabac": (a, a) stands 4 times. Then (a, b) and (aa, a) stand twice: a is the smaller left id. Then (aa, ab).
 */
static void check_examples(void)
{
  static const uint32_t known[3][2] = {{97, 97}, {97, 98}, {256, 257}};
  static const uint32_t all[1][2] = {{97, 98}};
  static const uint32_t run[3][2] = {{97, 97}, {256, 97}, {256, 257}};
  tap_ok(learns("aaabdaaabac", 11, 3, known, 3), "a tie goes to the smaller left id");
  tap_ok(learns("ab", 2, 700, all, 1), "no merge is left after the last one");
  tap_ok(learns("aaaaa", 5, 700, run, 3), "a run is merged from the left");
  tap_ok(learns("a", 1, 700, NULL, 0) && learns("", 0, 700, NULL, 0), "nothing to merge");
}

/* One piece of a million bytes. If its time were quadratic it would be hours: the limit of the test is the check. */
static void check_long_pieces(void)
{
  enum { LONG = 1 << 20 };
  char *text = malloc(LONG);
  memset(text, 'a', LONG);
  tap_ok(learns(text, LONG, 20, NULL, 20), "2^20 times one letter: 20 doublings");
  tap_ok(learns(text, LONG, 1000, NULL, 20), "and then there is one token");
  for (uint32_t i = 0; i < LONG; i += 4) {
    uint32_t w[4];
    lm_random_words(5, LM_STREAM_SAMPLE, i, 0, w);
    for (int k = 0; k < 4; k++) text[i + (uint32_t)k] = (char)('a' + w[k] % 26);
  }
  tap_ok(learns(text, LONG, 5000, NULL, 5000), "2^20 random letters, 5000 merges");
  free(text);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  check_examples();
  check_recount();
  check_long_pieces();
  return tap_end();
}
