/* src/batch/sources.c - the datasets that a run draws its samples from. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/sources.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

/* value / 10^decimals */
struct decimal {
  uint64_t value;
  int decimals;
};

/* FILE:WEIGHT. What follows the last colon is a weight where it begins as a number does. */
static const char *find_weight(const char *word)
{
  const char *colon = strrchr(word, ':');
  if (colon == NULL || colon == word) return NULL;
  return isdigit((unsigned char)colon[1]) || (colon[1] != '\0' && strchr("+-.", colon[1]) != NULL) ? colon + 1 : NULL;
}

static bool parse_decimal(const char *text, struct decimal *out)
{
  bool point = false, digits = false;
  *out = (struct decimal){0};
  for (; *text != '\0'; text++) {
    if (*text == '.' && !point) {
      point = true;
      continue;
    }
    if (!isdigit((unsigned char)*text) || out->value > LM_MOST_WEIGHT) return false;
    out->value = 10 * out->value + (uint64_t)(*text - '0');
    out->decimals += point;
    digits = true;
  }
  return digits;
}

/* Whole numbers of the same ratios. @return false: they do not fit */
static bool to_whole(const struct decimal *weights, lm_source *items, size_t n)
{
  int decimals = 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++)
    if (weights[i].decimals > decimals) decimals = weights[i].decimals;
  for (size_t i = 0; i < n; i++) {
    uint64_t value = weights[i].value;
    for (int d = value > 0 ? weights[i].decimals : decimals; d < decimals && value <= LM_MOST_WEIGHT; d++) value *= 10;
    if (value > LM_MOST_WEIGHT || sum > LM_MOST_WEIGHT - value) return false;
    items[i].weight = value;
    sum += value;
  }
  return true;
}

static lm_status parse_weights(const lm_list *list, struct decimal *weights, lm_error *err)
{
  const char *with = NULL, *without = NULL;
  uint64_t largest = 0;
  for (size_t i = 0; i < list->count; i++) {
    const char *text = find_weight(list->items[i]);
    if (text == NULL) {
      without = list->items[i];
      continue;
    }
    with = list->items[i];
    if (!parse_decimal(text, &weights[i]))
      return lm_fail(err, LM_EINVAL,
                     "data.train: the weight in '%s' is not a decimal number such as 3 or 0.25, at least 0, of at most "
                     "16 digits",
                     list->items[i]);
    if (weights[i].value > largest) largest = weights[i].value;
  }
  if (with != NULL && without != NULL)
    return lm_fail(err, LM_EINVAL, "data.train: '%s' has a weight, '%s' has none; want one for all or for none", with,
                   without);
  if (with != NULL && largest == 0) return lm_fail(err, LM_EINVAL, "data.train: no weight is above 0");
  return LM_OK;
}

static lm_status set_weights(lm_sources *s, const lm_list *list, lm_error *err)
{
  struct decimal *weights;
  LM_TRY(lm_alloc(&weights, s->n, sizeof *weights, "the weights of data.train", err));
  lm_status status = parse_weights(list, weights, err);
  if (status == LM_OK && find_weight(list->items[0]) == NULL)
    for (size_t i = 0; i < s->n; i++) s->items[i].weight = s->items[i].windows;
  else if (status == LM_OK && !to_whole(weights, s->items, s->n))
    status = lm_fail(err, LM_EINVAL,
                     "data.train: the weights' digits differ too much: as whole numbers, with all "
                     "decimals kept, their sum is above 2^53");
  free(weights);
  return status;
}

/* ---- datasets ---- */

static lm_status open_source(lm_source *out, const char *word, int T, lm_error *err)
{
  const char *weight = find_weight(word);
  char *path = strndup(word, weight != NULL ? (size_t)(weight - word) - 1 : strlen(word));
  if (path == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the name of a dataset");
  lm_status s = lm_dataset_open(&out->data, path, err);
  free(path);
  LM_TRY(s);
  out->windows = lm_dataset_windows(out->data, T);
  if (out->windows > 0) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: has %" PRIu64 " tokens; one sample of context %d needs at least %d + 1 = %lld",
                 lm_dataset_path(out->data), lm_dataset_info(out->data)->tokens, T, T, (long long)T + 1);
}

/* Against those before it: the same vocabulary, other data. */
static lm_status compare_with(const lm_source *a, const lm_source *b, lm_error *err)
{
  const lm_token_info *x = lm_dataset_info(a->data), *y = lm_dataset_info(b->data);
  if (x->vocab_fingerprint != y->vocab_fingerprint)
    return lm_fail(err, LM_EINVAL,
                   "%s was made with another vocabulary (fingerprint %016" PRIx64 ") than %s (%016" PRIx64 ")",
                   lm_dataset_path(b->data), y->vocab_fingerprint, lm_dataset_path(a->data), x->vocab_fingerprint);
  if (x->checksum == y->checksum)
    return lm_fail(err, LM_EINVAL,
                   "%s and %s hold the same data (checksum %016" PRIx64 "); want it once, with a larger weight",
                   lm_dataset_path(a->data), lm_dataset_path(b->data), x->checksum);
  return LM_OK;
}

static lm_status open_all(lm_sources *out, const lm_list *list, int T, lm_error *err)
{
  if (list->count == 0) return lm_fail(err, LM_EINVAL, "data.train names no dataset: mpilm tokenize makes one");
  LM_TRY(lm_alloc(&out->items, list->count, sizeof *out->items, "the datasets of data.train", err));
  for (size_t i = 0; i < list->count; i++) {
    out->n++;
    LM_TRY(open_source(&out->items[i], list->items[i], T, err));
    for (size_t k = 0; k < i; k++) LM_TRY(compare_with(&out->items[k], &out->items[i], err));
  }
  return set_weights(out, list, err);
}

lm_status lm_sources_open(lm_sources *out, const lm_list *list, int T, lm_error *err)
{
  *out = (lm_sources){0};
  lm_status s = open_all(out, list, T, err);
  if (s != LM_OK) lm_sources_close(out);
  return s;
}

void lm_sources_close(lm_sources *s)
{
  for (size_t i = 0; i < s->n; i++) lm_dataset_close(s->items[i].data);
  free(s->items);
  *s = (lm_sources){0};
}

const lm_token_info *lm_sources_vocab(const lm_sources *s)
{
  return lm_dataset_info(s->items[0].data);
}

uint64_t lm_sources_checksum(const lm_sources *s)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < s->n; i++) sum += lm_dataset_info(s->items[i].data)->checksum;
  return sum;
}

/* ---- mixture ---- */

lm_status lm_sources_mix(const lm_sources *s, lm_mixture *m, uint64_t position, lm_error *err)
{
  uint64_t *numbers;
  LM_TRY(lm_alloc(&numbers, 2 * s->n, sizeof *numbers, "the mixture of sources", err));
  for (size_t i = 0; i < s->n; i++) {
    numbers[i] = lm_dataset_info(s->items[i].data)->checksum;
    numbers[s->n + i] = s->items[i].weight;
  }
  lm_status status = lm_mixture_change(m, position, numbers, numbers + s->n, s->n, err);
  free(numbers);
  return status;
}

const lm_source *lm_sources_find(const lm_sources *s, const lm_mixture *m, size_t column)
{
  for (size_t i = 0; i < s->n; i++)
    if (lm_dataset_info(s->items[i].data)->checksum == m->checksum[column]) return &s->items[i];
  return NULL;
}
