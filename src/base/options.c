/* src/base/options.c - the option table: one row an option. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/options.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct given {
  lm_origin origin;
  bool set;
  const char *where; /* owned: in o->strings */
};

struct lm_options {
  const lm_option *table;
  size_t count;
  char *target;
  struct given *given; /* [count] */
  void **owned;        /* strings and item arrays that fields point to */
  size_t n_owned;
  lm_list words; /* what the command line holds besides options */
};

/* ---- memory: whatever a field points to lives as long as the lm_options ---- */

static lm_status keep(lm_options *o, void *p, lm_error *err)
{
  void **owned = p == NULL ? NULL : realloc(o->owned, (o->n_owned + 1) * sizeof *owned);
  if (owned == NULL) {
    free(p);
    return lm_fail(err, LM_ENOMEM, "no memory for an option's text");
  }
  o->owned = owned;
  o->owned[o->n_owned++] = p;
  return LM_OK;
}

static lm_status keep_text(lm_options *o, const char *text, size_t n, const char **out, lm_error *err)
{
  char *copy = strndup(text, n);
  LM_TRY(keep(o, copy, err));
  *out = copy;
  return LM_OK;
}

/* ---- names ---- */

static int edit_distance(const char *a, const char *b)
{
  enum { MAX = 64 };
  int n = (int)strlen(a), m = (int)strlen(b), row[MAX + 1];
  if (n > MAX || m > MAX) return MAX;
  for (int j = 0; j <= m; j++) row[j] = j;
  for (int i = 1; i <= n; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int change = diagonal + (a[i - 1] != b[j - 1]), add = row[j - 1] + 1, drop = row[j] + 1;
      diagonal = row[j];
      row[j] = change < add ? (change < drop ? change : drop) : (add < drop ? add : drop);
    }
  }
  return row[m];
}

const char *lm_nearest_word(const char *word, const char *const *words, size_t count)
{
  const char *best = NULL;
  int best_distance = 2 + (int)strlen(word) / 4; /* further away it is another word, not a slip */
  for (size_t i = 0; i < count; i++) {
    int d = edit_distance(word, words[i]);
    if (d < best_distance) {
      best_distance = d;
      best = words[i];
    }
  }
  return best;
}

/* What there is to choose from: the keys of a section, or all sections, as "optim.*", and what has none. */
static void list_names(const lm_options *o, const char *name, size_t section, char list[640])
{
  size_t used = 0;
  const char *last = "";
  list[0] = '\0';
  for (size_t i = 0; i < o->count; i++) {
    const char *key = o->table[i].name, *dot = strchr(key, '.');
    size_t shown = strlen(key), skip = *name != '\0' ? section : 0;
    if (*name != '\0' && strncmp(key, name, section) != 0) continue;
    if (*name == '\0' && dot != NULL) {
      size_t stem = (size_t)(dot - key);
      shown = stem + 1;
      if (strncmp(key, last, stem) == 0 && last[stem] == '.') continue;
      last = key;
    }
    int m = snprintf(list + used, 640 - used, "%s%.*s%s", used ? ", " : "", (int)(shown - skip), key + skip,
                     shown < strlen(key) ? "*" : "");
    if (m < 0 || (size_t)m >= 640 - used) {
      strcpy(list + 640 - 4, "...");
      return;
    }
    used += (size_t)m;
  }
}

static lm_status fail_unknown(const lm_options *o, const char *name, const char *where, lm_error *err)
{
  const char *dot = strchr(name, '.');
  size_t section = dot == NULL ? 0 : (size_t)(dot - name) + 1;
  const char *words[512];
  size_t n = 0;
  bool known_section = false;
  for (size_t i = 0; i < o->count && n < 512; i++) {
    words[n++] = o->table[i].name;
    if (section > 0 && strncmp(o->table[i].name, name, section) == 0) known_section = true;
  }
  const char *near = lm_nearest_word(name, words, n);
  if (near == NULL && dot == NULL) /* the section was forgotten: lr for optim.lr */
    for (size_t i = 0; i < n && near == NULL; i++) {
      const char *key = strchr(words[i], '.');
      if (key != NULL && strcmp(key + 1, name) == 0) near = words[i];
    }
  if (near != NULL) return lm_fail(err, LM_EINVAL, "%s: unknown option '%s'; did you mean '%s'?", where, name, near);
  char list[640];
  list_names(o, known_section ? name : "", section, list);
  if (known_section)
    return lm_fail(err, LM_EINVAL, "%s: unknown option '%s'; section '%.*s' has: %s", where, name, (int)section - 1,
                   name, list);
  return lm_fail(err, LM_EINVAL, "%s: unknown option '%s'; there are: %s", where, name, list);
}

static lm_status find(const lm_options *o, const char *name, const char *where, size_t *out, lm_error *err)
{
  for (size_t i = 0; i < o->count; i++)
    if (strcmp(o->table[i].name, name) == 0) {
      *out = i;
      return LM_OK;
    }
  return fail_unknown(o, name, where, err);
}

/* ---- values ---- */

static lm_status fail_value(const lm_option *row, const char *value, const char *where, const char *wanted,
                            lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "%s: %s is '%s'; want %s%s%s%s%s", where, row->name, value, wanted,
                 row->range ? " in " : "", row->range ? row->range : "", row->unit ? " " : "",
                 row->unit ? row->unit : "");
}

static bool parse_bool(const char *v, bool *out)
{
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
  for (size_t i = 0; i < 8; i++)
    if (strcasecmp(v, words[i]) == 0) {
      *out = i % 2 == 1;
      return true;
    }
  return false;
}

/* A decimal number and nothing else: strtod alone takes hex, "inf", "nan", leading blanks. '_' may stand between
 * digits. The C locale is in force: the program never calls setlocale(). */
static bool parse_number(const char *v, double *out)
{
  char digits[64];
  size_t n = 0;
  for (const char *c = v; *c != '\0'; c++) {
    if (*c == '_') {
      if (c == v || !isdigit((unsigned char)c[-1]) || !isdigit((unsigned char)c[1])) return false;
      continue;
    }
    if (strchr("0123456789+-.eE", *c) == NULL || n + 1 >= sizeof digits) return false;
    digits[n++] = *c;
  }
  digits[n] = '\0';
  char *end;
  *out = strtod(digits, &end);
  return n > 0 && end == digits + n && isfinite(*out);
}

static bool parse_int(const char *v, int64_t *out)
{
  double d;
  if (!parse_number(v, &d) || d != floor(d) || fabs(d) > 9007199254740992.0) return false;
  if (strpbrk(v, ".") != NULL) return false; /* 10.0 is a fraction someone rounded: ask again */
  *out = (int64_t)d;
  return true;
}

static bool in_range(const char *range, double x)
{
  if (range == NULL) return true;
  char open = range[0], close = range[strlen(range) - 1], *end;
  double low = strtod(range + 1, &end), high = strtod(end + 1, NULL);
  return (open == '(' ? x > low : x >= low) && (close == ')' ? x < high : x <= high);
}

static bool parse_choice(const char *words, const char *v, int *out)
{
  size_t n = strlen(v);
  int i = 0;
  for (const char *w = words; n > 0; w++, i++) {
    const char *bar = strchr(w, '|');
    size_t len = bar ? (size_t)(bar - w) : strlen(w);
    if (len == n && strncmp(w, v, n) == 0) {
      *out = i;
      return true;
    }
    if (bar == NULL) break;
    w = bar;
  }
  return false;
}

static lm_status store(lm_options *o, const lm_option *row, const char *value, const char *where, lm_error *err)
{
  void *field = o->target + row->offset;
  int64_t whole;
  double real;
  switch (row->type) {
  case LM_OPT_BOOL:
    if (!parse_bool(value, field)) return fail_value(row, value, where, "true or false", err);
    return LM_OK;
  case LM_OPT_INT:
    if (!parse_int(value, &whole) || !in_range(row->range, (double)whole))
      return fail_value(row, value, where, "a whole number", err);
    *(int64_t *)field = whole;
    return LM_OK;
  case LM_OPT_FLOAT:
    if (!parse_number(value, &real) || !in_range(row->range, real))
      return fail_value(row, value, where, "a number", err);
    *(double *)field = real;
    return LM_OK;
  case LM_OPT_CHOICE:
    if (!parse_choice(row->range, value, field)) return fail_value(row, value, where, "a word", err);
    return LM_OK;
  case LM_OPT_STRING: return keep_text(o, value, strlen(value), field, err);
  case LM_OPT_LIST: break; /* lists come through store_list() */
  }
  return lm_fail(err, LM_EINVAL, "%s: %s is a list, '%s' is not", where, row->name, value);
}

static lm_status store_list(lm_options *o, const lm_option *row, const char *const *items, size_t count, bool append,
                            lm_error *err)
{
  lm_list *list = (lm_list *)(void *)(o->target + row->offset);
  size_t old = append ? list->count : 0;
  const char **all = calloc(old + count + 1, sizeof *all);
  LM_TRY(keep(o, all, err));
  for (size_t i = 0; i < old; i++) all[i] = list->items[i];
  for (size_t i = 0; i < count; i++) LM_TRY(keep_text(o, items[i], strlen(items[i]), &all[old + i], err));
  *list = (lm_list){.count = old + count, .items = all};
  return LM_OK;
}

static lm_status mark(lm_options *o, size_t i, lm_origin origin, const char *where, lm_error *err)
{
  o->given[i].origin = origin;
  o->given[i].set = true;
  return keep_text(o, where, strlen(where), &o->given[i].where, err);
}

lm_status lm_options_set_list(lm_options *o, const char *name, const char *const *items, size_t count, lm_origin origin,
                              const char *where, lm_error *err)
{
  size_t i;
  LM_TRY(find(o, name, where, &i, err));
  if (o->table[i].type != LM_OPT_LIST)
    return lm_fail(err, LM_EINVAL, "%s: %s is one value, a list was given", where, name);
  if (o->given[i].set && o->given[i].origin > origin) return LM_OK;
  bool append = o->given[i].set && o->given[i].origin == origin && origin == LM_FROM_COMMAND_LINE;
  LM_TRY(store_list(o, &o->table[i], items, count, append, err));
  return mark(o, i, origin, where, err);
}

static lm_status set_list_text(lm_options *o, const lm_option *row, const char *value, lm_origin origin,
                               const char *where, lm_error *err)
{
  size_t n = 0, most = 1;
  for (const char *c = value; *c != '\0'; c++) most += *c == ',';
  char *copy = strdup(value), *rest = copy;
  const char **items = calloc(most, sizeof *items);
  lm_status s = copy != NULL && items != NULL ? LM_OK : lm_fail(err, LM_ENOMEM, "no memory for an option's text");
  for (char *item; s == LM_OK && (item = strsep(&rest, ",")) != NULL;)
    if (*item != '\0') items[n++] = item;
  if (s == LM_OK) s = lm_options_set_list(o, row->name, items, n, origin, where, err);
  free(items);
  free(copy);
  return s;
}

lm_status lm_options_set(lm_options *o, const char *name, const char *value, lm_origin origin, const char *where,
                         lm_error *err)
{
  size_t i;
  LM_TRY(find(o, name, where, &i, err));
  const lm_option *row = &o->table[i];
  if (row->type == LM_OPT_LIST) return set_list_text(o, row, value, origin, where, err);
  if (o->given[i].set && o->given[i].origin > origin) { /* weaker, but it must still be a good value */
    _Alignas(max_align_t) char spare[sizeof(lm_list) + sizeof(double)];
    lm_option probe = *row;
    probe.offset = 0;
    char *target = o->target;
    o->target = spare;
    lm_status s = store(o, &probe, value, where, err);
    o->target = target;
    return s;
  }
  LM_TRY(store(o, row, value, where, err));
  return mark(o, i, origin, where, err);
}

/* ---- making ---- */

size_t lm_options_count(const lm_option *table)
{
  size_t n = 0;
  while (table != NULL && table[n].name != NULL) n++;
  return n;
}

lm_status lm_options_new(lm_options **out, const lm_option *table, size_t count, void *target, lm_error *err)
{
  lm_options *o = *out = calloc(1, sizeof *o);
  if (o == NULL) return lm_fail(err, LM_ENOMEM, "no memory for options");
  *o = (lm_options){.table = table, .count = count, .target = target, .given = calloc(count + 1, sizeof *o->given)};
  lm_status s = o->given != NULL ? LM_OK : lm_fail(err, LM_ENOMEM, "no memory for options");
  for (size_t i = 0; i < count && s == LM_OK; i++) {
    if (table[i].fallback == NULL) continue;
    if (table[i].type == LM_OPT_LIST) {
      s = store_list(o, &table[i], &table[i].fallback, *table[i].fallback != '\0', false, err);
      continue;
    }
    s = store(o, &table[i], table[i].fallback, "default", err);
    LM_ASSERT(s != LM_EINVAL);
  }
  if (s != LM_OK) {
    lm_options_free(o);
    *out = NULL;
  }
  return s;
}

void lm_options_free(lm_options *o)
{
  if (o == NULL) return;
  for (size_t i = 0; i < o->n_owned; i++) free(o->owned[i]);
  free(o->owned);
  free(o->given);
  free(o);
}

/* ---- command line ---- */

static lm_status parse_word(lm_options *o, const char *word, const char *next, bool *used_next, lm_error *err)
{
  char name[128];
  const char *equals = strchr(word, '=');
  size_t n = equals ? (size_t)(equals - word) : strlen(word);
  if (n >= sizeof name) return lm_fail(err, LM_EINVAL, "command line: unknown option '--%s'", word);
  memcpy(name, word, n);
  name[n] = '\0';
  size_t i;
  *used_next = false;
  LM_TRY(find(o, name, "command line", &i, err));
  if (equals != NULL) return lm_options_set(o, name, equals + 1, LM_FROM_COMMAND_LINE, "command line", err);
  bool value;
  if (o->table[i].type == LM_OPT_BOOL && (next == NULL || !parse_bool(next, &value)))
    return lm_options_set(o, name, "true", LM_FROM_COMMAND_LINE, "command line", err);
  if (next == NULL) return lm_fail(err, LM_EINVAL, "command line: --%s needs a value: %s", name, o->table[i].help);
  *used_next = true;
  return lm_options_set(o, name, next, LM_FROM_COMMAND_LINE, "command line", err);
}

lm_status lm_options_parse(lm_options *o, int argc, char **argv, lm_error *err)
{
  bool options = true;
  const char **words = calloc((size_t)argc + 1, sizeof *words);
  LM_TRY(keep(o, words, err));
  o->words = (lm_list){.items = words};
  for (int i = 0; i < argc; i++) {
    if (!options || argv[i][0] != '-' || argv[i][1] == '\0') {
      words[o->words.count++] = argv[i];
      continue;
    }
    if (argv[i][1] != '-')
      return lm_fail(err, LM_EINVAL, "command line: '%s': options are words, as in --help", argv[i]);
    if (argv[i][2] == '\0') {
      options = false;
      continue;
    }
    bool used_next;
    LM_TRY(parse_word(o, argv[i] + 2, i + 1 < argc ? argv[i + 1] : NULL, &used_next, err));
    i += used_next;
  }
  return LM_OK;
}

static bool knows(const lm_options *o, const char *word)
{
  size_t n = strcspn(word, "=");
  for (size_t i = 0; i < o->count; i++)
    if (strlen(o->table[i].name) == n && strncmp(o->table[i].name, word, n) == 0) return true;
  return false;
}

lm_status lm_options_take(lm_options *o, int *argc, char **argv, lm_error *err)
{
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    if (strncmp(argv[i], "--", 2) != 0 || !knows(o, argv[i] + 2)) {
      argv[kept++] = argv[i];
      continue;
    }
    bool used_next;
    LM_TRY(parse_word(o, argv[i] + 2, i + 1 < *argc ? argv[i + 1] : NULL, &used_next, err));
    i += used_next;
  }
  *argc = kept;
  return LM_OK;
}

const lm_list *lm_options_words(const lm_options *o)
{
  return &o->words;
}

lm_status lm_options_complete(const lm_options *o, lm_error *err)
{
  for (size_t i = 0; i < o->count; i++)
    if (o->table[i].fallback == NULL && !o->given[i].set)
      return lm_fail(err, LM_EINVAL, "%s is not given: %s", o->table[i].name, o->table[i].help);
  return LM_OK;
}

lm_origin lm_options_origin(const lm_options *o, const char *name, const char **where)
{
  size_t i;
  lm_status s = find(o, name, "", &i, NULL);
  LM_ASSERT(s == LM_OK);
  if (where != NULL) *where = o->given[i].set ? o->given[i].where : "default";
  return o->given[i].set ? o->given[i].origin : LM_FROM_DEFAULT;
}

const char *lm_options_set_by(const lm_options *o, const char *name, lm_origin origin)
{
  for (size_t i = 0; i < o->count; i++)
    if (strcmp(o->table[i].name, name) == 0)
      return o->given[i].set && o->given[i].origin == origin ? o->given[i].where : NULL;
  return NULL;
}

/* ---- writing ---- */

/* The shortest decimal that reads back to the same double. */
static void print_double(char *out, size_t n, double x)
{
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(out, n, "%.*g", digits, x);
    if (strtod(out, NULL) == x) return;
  }
}

static lm_status append_quoted(lm_buffer *out, const char *text, lm_error *err)
{
  LM_TRY(lm_buffer_append(out, "\"", 1, err));
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c < 0x20 || *c == 0x7f)
      LM_TRY(lm_buffer_printf(out, err, "\\x%02x", *c));
    else
      LM_TRY(lm_buffer_printf(out, err, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c));
  }
  return lm_buffer_append(out, "\"", 1, err);
}

static lm_status append_choice(lm_buffer *out, const char *words, int index, lm_error *err)
{
  for (; index > 0; index--) words = strchr(words, '|') + 1;
  return lm_buffer_append(out, words, strcspn(words, "|"), err);
}

lm_status lm_options_value(const lm_options *o, const lm_option *row, lm_buffer *out, lm_error *err)
{
  const void *field = o->target + row->offset;
  char number[40];
  switch (row->type) {
  case LM_OPT_BOOL: return lm_buffer_printf(out, err, "%s", *(const bool *)field ? "true" : "false");
  case LM_OPT_INT: return lm_buffer_printf(out, err, "%lld", (long long)*(const int64_t *)field);
  case LM_OPT_FLOAT:
    print_double(number, sizeof number, *(const double *)field);
    return lm_buffer_printf(out, err, "%s", number);
  case LM_OPT_CHOICE: return append_choice(out, row->range, *(const int *)field, err);
  case LM_OPT_STRING: return append_quoted(out, *(const char *const *)field ? *(const char *const *)field : "", err);
  case LM_OPT_LIST: break;
  }
  const lm_list *list = field;
  LM_TRY(lm_buffer_append(out, "[", 1, err));
  for (size_t i = 0; i < list->count; i++) {
    if (i > 0) LM_TRY(lm_buffer_append(out, ", ", 2, err));
    LM_TRY(append_quoted(out, list->items[i], err));
  }
  return lm_buffer_append(out, "]", 1, err);
}

/* The section of a name, "optim" of "optim.lr", and whether it differs from that of the row before. */
static bool new_section(const lm_option *table, size_t i, int *n)
{
  const char *dot = strchr(table[i].name, '.');
  *n = dot == NULL ? 0 : (int)(dot - table[i].name);
  return *n > 0 && (i == 0 || strncmp(table[i].name, table[i - 1].name, (size_t)*n + 1) != 0);
}

lm_status lm_options_write_yaml(const lm_options *o, lm_buffer *out, lm_error *err)
{
  for (size_t i = 0; i < o->count; i++) {
    int n;
    if (new_section(o->table, i, &n)) LM_TRY(lm_buffer_printf(out, err, "%.*s:\n", n, o->table[i].name));
    LM_TRY(lm_buffer_printf(out, err, n > 0 ? "  %s: " : "%s: ", o->table[i].name + (n > 0 ? n + 1 : 0)));
    LM_TRY(lm_options_value(o, &o->table[i], out, err));
    LM_TRY(lm_buffer_printf(out, err, "  # %s\n", o->given[i].set ? o->given[i].where : "default"));
  }
  return LM_OK;
}

static const char *type_word(const lm_option *row)
{
  static const char *const words[] = {"true|false", "N", "X", "TEXT", "", "A,B"};
  return row->type == LM_OPT_CHOICE ? row->range : words[row->type];
}

lm_status lm_options_write_help(const lm_option *table, size_t count, lm_buffer *out, lm_error *err)
{
  for (size_t i = 0; i < count; i++) {
    const lm_option *row = &table[i];
    bool numeric = row->type == LM_OPT_INT || row->type == LM_OPT_FLOAT;
    LM_TRY(
        lm_buffer_printf(out, err, row->type == LM_OPT_BOOL ? "  --%s\n" : "  --%s=%s\n", row->name, type_word(row)));
    LM_TRY(lm_buffer_printf(out, err, "        %s", row->help));
    if (numeric && row->range != NULL)
      LM_TRY(lm_buffer_printf(out, err, ", %s%s%s", row->range, row->unit ? " " : "", row->unit ? row->unit : ""));
    if (row->fallback == NULL)
      LM_TRY(lm_buffer_printf(out, err, " (required)"));
    else if (*row->fallback != '\0' && row->type != LM_OPT_BOOL)
      LM_TRY(lm_buffer_printf(out, err, " (default %s)", row->fallback));
    LM_TRY(lm_buffer_append(out, "\n", 1, err));
  }
  return LM_OK;
}

/* '|' would end the cell. */
static lm_status append_cell(lm_buffer *out, const char *text, lm_error *err)
{
  for (; *text != '\0'; text++) LM_TRY(lm_buffer_printf(out, err, "%s%c", *text == '|' ? "\\" : "", *text));
  return LM_OK;
}

lm_status lm_options_write_markdown(const lm_option *table, size_t count, lm_buffer *out, lm_error *err)
{
  static const char *const types[] = {"boolean", "integer", "number", "text", "word", "list"};
  static const char head[] = "| key | type | default | range | unit | meaning |\n|---|---|---|---|---|---|\n";
  for (size_t i = 0; i < count; i++) {
    const lm_option *row = &table[i];
    int n;
    if (new_section(table, i, &n))
      LM_TRY(lm_buffer_printf(out, err, "%s## %.*s\n\n%s", i ? "\n" : "", n, row->name, head));
    else if (i == 0)
      LM_TRY(lm_buffer_printf(out, err, "%s", head));
    LM_TRY(lm_buffer_printf(out, err, "| `%s` | %s | %s | ", row->name, types[row->type],
                            row->fallback ? row->fallback : "*required*"));
    LM_TRY(append_cell(out, row->range ? row->range : "", err));
    LM_TRY(lm_buffer_printf(out, err, " | %s | ", row->unit ? row->unit : ""));
    LM_TRY(append_cell(out, row->help, err));
    LM_TRY(lm_buffer_printf(out, err, " |\n"));
  }
  return LM_OK;
}
