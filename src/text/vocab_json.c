/* src/text/vocab_json.c - reader and writer of Hugging Face's tokenizer.json: byte-level BPE, or refused with the part.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_build.h"

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what can be honoured ---- */

static bool is_type(const json_t *part, const char *type)
{
  const char *name = json_string_value(json_object_get(part, "type"));
  return name != NULL && strcmp(name, type) == 0;
}

static bool is_absent(const json_t *value)
{
  return value == NULL || json_is_null(value);
}

/* A flag of a part, with the value that Hugging Face's library gives it where the file does not. */
static bool flag(const json_t *part, const char *name, bool fallback)
{
  const json_t *value = json_object_get(part, name);
  return is_absent(value) ? fallback : json_is_true(value);
}

static lm_status refuse(lm_error *err, const char *part, const char *wanted)
{
  return lm_fail(err, LM_EINVAL, "%s cannot be honoured, only %s can", part, wanted);
}

static lm_status refuse_type(lm_error *err, const char *part, const json_t *value, const char *wanted)
{
  const char *type = json_string_value(json_object_get(value, "type"));
  return lm_fail(err, LM_EINVAL, "%s of type '%s' cannot be honoured, only %s can", part, type != NULL ? type : "?",
                 wanted);
}

/* Parts that leave the ids as they are, and the normalizer, which may be NFC. */
static lm_status check_rest(const json_t *root, bool *nfc, lm_error *err)
{
  const json_t *normalizer = json_object_get(root, "normalizer"), *steps = json_object_get(normalizer, "normalizers");
  size_t n_steps = json_array_size(steps);
  if (is_type(normalizer, "Sequence") && n_steps <= 1) normalizer = n_steps == 1 ? json_array_get(steps, 0) : NULL;
  *nfc = is_type(normalizer, "NFC");
  if (!is_absent(normalizer) && !*nfc) return refuse_type(err, "a normalizer", normalizer, "none or NFC");
  if (!is_absent(json_object_get(root, "truncation"))) return refuse(err, "truncation", "none");
  if (!is_absent(json_object_get(root, "padding"))) return refuse(err, "padding", "none");
  const json_t *decoder = json_object_get(root, "decoder");
  if (!is_absent(decoder) && !is_type(decoder, "ByteLevel")) return refuse_type(err, "a decoder", decoder, "ByteLevel");
  return LM_OK;
}

/* A template adds tokens around a text; lm_encode() gives the ids of the text alone, as documented. */
static lm_status check_post_processor(const json_t *post, lm_error *err)
{
  if (is_absent(post) || is_type(post, "ByteLevel") || is_type(post, "TemplateProcessing")) return LM_OK;
  if (!is_type(post, "Sequence")) return refuse_type(err, "a post_processor", post, "ByteLevel or TemplateProcessing");
  size_t i;
  json_t *step;
  json_array_foreach(json_object_get(post, "processors"), i, step) LM_TRY(check_post_processor(step, err));
  return LM_OK;
}

static lm_status check_byte_level(const json_t *part, bool own_split, lm_error *err)
{
  if (!is_type(part, "ByteLevel"))
    return refuse_type(err, "a pre_tokenizer", part, "ByteLevel, or Split and ByteLevel");
  if (flag(part, "add_prefix_space", true))
    return refuse(err, "pre_tokenizer ByteLevel with add_prefix_space", "add_prefix_space false");
  if (flag(part, "use_regex", true) != own_split)
    return own_split ? refuse(err, "pre_tokenizer ByteLevel with use_regex false and no Split", "a split pattern")
                     : refuse(err, "pre_tokenizer ByteLevel with use_regex behind a Split", "use_regex false");
  return LM_OK;
}

static lm_status read_split(const json_t *part, lm_vocab *v, lm_error *err)
{
  if (!is_type(part, "Split")) return refuse_type(err, "a pre_tokenizer", part, "ByteLevel, or Split and ByteLevel");
  const char *behavior = json_string_value(json_object_get(part, "behavior"));
  bool isolated = behavior != NULL && strcmp(behavior, "Isolated") == 0;
  bool removed = behavior != NULL && strcmp(behavior, "Removed") == 0 && flag(part, "invert", false);
  if (!isolated && !removed)
    return lm_fail(err, LM_EINVAL, "pre_tokenizer Split with behavior '%s' cannot be honoured, only Isolated can",
                   behavior != NULL ? behavior : "?");
  const char *regex = json_string_value(json_object_get(json_object_get(part, "pattern"), "Regex"));
  if (regex == NULL) return refuse(err, "pre_tokenizer Split without a Regex", "a regular expression");
  if (lm_pattern_of_regex(regex, &v->pattern)) return LM_OK;
  v->pattern = LM_PATTERN_OTHER;
  lm_status s = removed ? refuse(err, "Removed", "Isolated") : lm_regex_new(&v->regex, regex, err);
  return s == LM_OK ? LM_OK : lm_fail_in(err, s, "pre_tokenizer Split by '%.400s'", regex);
}

static lm_status read_pre_tokenizer(const json_t *part, lm_vocab *v, lm_error *err)
{
  v->pattern = LM_PATTERN_GPT2;
  if (is_absent(part)) return refuse(err, "no pre_tokenizer", "ByteLevel, or Split and ByteLevel,");
  if (!is_type(part, "Sequence")) return check_byte_level(part, true, err);
  const json_t *steps = json_object_get(part, "pretokenizers");
  if (json_array_size(steps) == 1) return check_byte_level(json_array_get(steps, 0), true, err);
  if (json_array_size(steps) != 2)
    return lm_fail(err, LM_EINVAL,
                   "a pre_tokenizer Sequence of %zu steps cannot be honoured, only Split and ByteLevel can",
                   json_array_size(steps));
  LM_TRY(read_split(json_array_get(steps, 0), v, err));
  return check_byte_level(json_array_get(steps, 1), false, err);
}

static lm_status check_model(const json_t *model, lm_error *err)
{
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  if (!json_is_object(model)) return lm_fail(err, LM_EINVAL, "has no model, a tokenizer.json was wanted");
  if (!is_absent(json_object_get(model, "type")) && !is_type(model, "BPE"))
    return refuse_type(err, "a model", model, "BPE");
  const json_t *dropout = json_object_get(model, "dropout");
  if (!is_absent(dropout) && json_number_value(dropout) != 0) return refuse(err, "model.dropout", "none");
  if (flag(model, "byte_fallback", false)) return refuse(err, "model.byte_fallback", "byte-level BPE");
  for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++) {
    const json_t *affix = json_object_get(model, affixes[i]);
    if (!is_absent(affix) && json_string_length(affix) > 0)
      return lm_fail(err, LM_EINVAL, "model.%s cannot be honoured, only none can", affixes[i]);
  }
  if (!json_is_object(json_object_get(model, "vocab"))) return lm_fail(err, LM_EINVAL, "model.vocab is not an object");
  if (!json_is_array(json_object_get(model, "merges"))) return lm_fail(err, LM_EINVAL, "model.merges is not an array");
  return LM_OK;
}

/* ---- tokens and merges ---- */

static lm_status read_id(const json_t *value, const char *token, uint32_t *id, lm_error *err)
{
  json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
  if (n < 0 || n >= LM_VOCAB_MAX)
    return lm_fail(err, LM_EINVAL, "token '%.200s' has no id in [0, %d)", token, LM_VOCAB_MAX);
  *id = (uint32_t)n;
  return LM_OK;
}

/* The file reader's state: what lookups by spelling need. */
typedef struct reader {
  lm_vocab *v;
  json_t *vocab;     /* spelling -> id */
  json_t *added;     /* content -> its entry in added_tokens */
  lm_buffer scratch; /* a spelling, 0-terminated, or a token's bytes */
} reader;

static lm_status read_added(reader *r, json_t *list, lm_error *err)
{
  static const char *const unsupported[] = {"single_word", "lstrip", "rstrip"};
  size_t i;
  json_t *entry;
  json_array_foreach(list, i, entry)
  {
    json_t *content = json_object_get(entry, "content");
    const char *text = json_string_value(content);
    uint32_t id;
    if (text == NULL || *text == '\0') return lm_fail(err, LM_EINVAL, "added_tokens[%zu] has no content", i);
    LM_TRY(read_id(json_object_get(entry, "id"), text, &id, err));
    for (size_t k = 0; k < sizeof unsupported / sizeof unsupported[0]; k++)
      if (flag(entry, unsupported[k], false))
        return lm_fail(err, LM_EINVAL, "added token '%.200s' with %s cannot be honoured", text, unsupported[k]);
    if (r->v->nfc && flag(entry, "normalized", !flag(entry, "special", false)))
      return lm_fail(err, LM_EINVAL, "added token '%.200s' with normalized and the normalizer NFC cannot be honoured",
                     text);
    json_t *known = json_object_get(r->vocab, text);
    if (known != NULL && json_integer_value(known) != (json_int_t)id)
      return lm_fail(err, LM_EINVAL, "added token '%.200s' has id %u, but %lld in model.vocab", text, id,
                     (long long)json_integer_value(known));
    LM_TRY(lm_vocab_add_special(r->v, id, text, json_string_length(content), !flag(entry, "special", false), err));
    if (json_object_set(r->added, text, entry) != 0) return lm_fail(err, LM_ENOMEM, "no memory for the added tokens");
  }
  return LM_OK;
}

static lm_status read_tokens(reader *r, lm_error *err)
{
  const char *spelling;
  json_t *value;
  json_object_foreach(r->vocab, spelling, value)
  {
    uint32_t id;
    bool known;
    if (json_object_get(r->added, spelling) != NULL) continue;
    LM_TRY(read_id(value, spelling, &id, err));
    r->scratch.size = 0;
    LM_TRY(lm_alphabet_read(&r->scratch, spelling, strlen(spelling), &known, err));
    if (!known || r->scratch.size == 0)
      return lm_fail(err, LM_EINVAL, "token '%.200s' (id %u) is not spelled in the byte alphabet of byte-level BPE",
                     spelling, id);
    LM_TRY(lm_vocab_add(r->v, id, r->scratch.data, r->scratch.size, err));
  }
  return LM_OK;
}

/* The id of a spelling of n bytes; LM_NO_ID where there is none. */
static lm_status find_spelling(reader *r, const char *text, size_t n, uint32_t *id, lm_error *err)
{
  r->scratch.size = 0;
  LM_TRY(lm_buffer_append(&r->scratch, text, n, err));
  const json_t *value = json_object_get(r->vocab, r->scratch.data);
  *id = value != NULL ? (uint32_t)json_integer_value(value) : LM_NO_ID;
  return LM_OK;
}

/* Both spellings of a merge, "left right" and ["left", "right"], as one text and the place of the cut. */
static lm_status read_merge(const json_t *entry, size_t i, lm_buffer *joined, size_t *cut, lm_error *err)
{
  const json_t *left = json_array_get(entry, 0), *right = json_array_get(entry, 1);
  const char *both = json_string_value(entry), *space = both != NULL ? strchr(both, ' ') : NULL;
  joined->size = 0;
  if (json_array_size(entry) == 2 && json_is_string(left) && json_is_string(right)) {
    LM_TRY(lm_buffer_append(joined, json_string_value(left), json_string_length(left), err));
    *cut = joined->size;
    return lm_buffer_append(joined, json_string_value(right), json_string_length(right), err);
  }
  if (space == NULL || strchr(space + 1, ' ') != NULL)
    return lm_fail(err, LM_EINVAL, "model.merges[%zu] is neither \"left right\" nor [\"left\", \"right\"]", i);
  LM_TRY(lm_buffer_append(joined, both, (size_t)(space - both), err));
  *cut = joined->size;
  return lm_buffer_append(joined, space + 1, strlen(space + 1), err);
}

static lm_status add_merge(reader *r, size_t i, const lm_buffer *joined, size_t cut, lm_error *err)
{
  lm_merge m;
  const char *text = joined->data;
  LM_TRY(find_spelling(r, text, cut, &m.left, err));
  LM_TRY(find_spelling(r, text + cut, joined->size - cut, &m.right, err));
  LM_TRY(find_spelling(r, text, joined->size, &m.id, err));
  if (m.left != LM_NO_ID && m.right != LM_NO_ID && m.id != LM_NO_ID) return lm_vocab_add_merge(r->v, m, err);
  return lm_fail(err, LM_EINVAL, "model.merges[%zu]: '%.*s' + '%.200s' needs a token that is not in model.vocab", i,
                 cut < 200 ? (int)cut : 200, text, text + cut);
}

static lm_status read_merges(reader *r, const json_t *merges, lm_error *err)
{
  lm_buffer joined = {0};
  lm_status s = LM_OK;
  size_t cut = 0;
  for (size_t i = 0; i < json_array_size(merges) && s == LM_OK; i++) {
    s = read_merge(json_array_get(merges, i), i, &joined, &cut, err);
    if (s == LM_OK) s = add_merge(r, i, &joined, cut, err);
  }
  lm_buffer_free(&joined);
  LM_TRY(s);
  for (uint32_t id = 0; id < r->v->size && r->v->n_merges == 0; id++)
    if (r->v->tokens[id].n > 1 && !r->v->tokens[id].special)
      return lm_fail(err, LM_EINVAL, "model.merges is empty, but model.vocab has tokens of several bytes (id %u)", id);
  return LM_OK;
}

static lm_status read_model(lm_vocab *v, const json_t *root, lm_error *err)
{
  const json_t *model = json_object_get(root, "model");
  LM_TRY(check_rest(root, &v->nfc, err));
  LM_TRY(check_post_processor(json_object_get(root, "post_processor"), err));
  LM_TRY(check_model(model, err));
  LM_TRY(read_pre_tokenizer(json_object_get(root, "pre_tokenizer"), v, err));
  v->whole_first = flag(model, "ignore_merges", false);
  reader r = {.v = v, .vocab = json_object_get(model, "vocab"), .added = json_object()};
  if (r.added == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the added tokens");
  lm_status s = read_added(&r, json_object_get(root, "added_tokens"), err);
  if (s == LM_OK) s = read_tokens(&r, err);
  if (s == LM_OK) s = read_merges(&r, json_object_get(model, "merges"), err);
  json_decref(r.added);
  lm_buffer_free(&r.scratch);
  return s == LM_OK ? lm_vocab_finish(v, err) : s;
}

lm_status lm_vocab_read_json(lm_vocab **out, const char *path, const lm_buffer *text, lm_error *err)
{
  json_error_t where;
  json_t *root = json_loadb(text->data, text->size, JSON_REJECT_DUPLICATES, &where);
  if (root == NULL) return lm_fail(err, LM_EINVAL, "%s:%d: is no JSON: %s", path, where.line, where.text);
  lm_status s = lm_vocab_new(out, LM_PATTERN_GPT2, err);
  if (s == LM_OK) s = read_model(*out, root, err);
  json_decref(root);
  return s == LM_OK ? LM_OK : lm_fail_in(err, s, "%s", path);
}

/* ---- writing ---- */

/* Append a JSON string; text is UTF-8. */
static lm_status write_string(lm_buffer *out, const char *text, size_t n, lm_error *err)
{
  LM_TRY(lm_buffer_append(out, "\"", 1, err));
  for (size_t i = 0; i < n; i++) {
    if ((unsigned char)text[i] < 0x20)
      LM_TRY(lm_buffer_printf(out, err, "\\u%04x", (unsigned)text[i]));
    else if (text[i] == '"' || text[i] == '\\')
      LM_TRY(lm_buffer_append(out, (char[]){'\\', text[i]}, 2, err));
    else
      LM_TRY(lm_buffer_append(out, &text[i], 1, err));
  }
  return lm_buffer_append(out, "\"", 1, err);
}

typedef struct writer {
  const lm_vocab *v;
  lm_buffer out, scratch;
  bool first; /* of a list */
  lm_status status;
  lm_error *err;
} writer;

static lm_status write_separator(writer *w)
{
  lm_status s = lm_buffer_printf(&w->out, w->err, w->first ? "\n" : ",\n");
  w->first = false;
  return s;
}

/* A token as model.vocab spells it: special ones in their own words. */
static lm_status spell(writer *w, uint32_t id)
{
  size_t n;
  const char *bytes = lm_vocab_bytes(w->v, id, &n);
  w->scratch.size = 0;
  return w->v->tokens[id].special ? lm_buffer_append(&w->scratch, bytes, n, w->err)
                                  : lm_alphabet_write(&w->scratch, bytes, n, w->err);
}

static lm_status write_added(writer *w)
{
  LM_TRY(lm_buffer_printf(&w->out, w->err, "  \"added_tokens\": ["));
  w->first = true;
  for (uint32_t id = 0; id < w->v->size; id++) {
    if (!w->v->tokens[id].special) continue;
    bool always = false;
    for (size_t i = 0; i < w->v->n_specials; i++)
      if (w->v->specials[i].id == id) always = w->v->specials[i].always;
    LM_TRY(write_separator(w));
    LM_TRY(spell(w, id));
    LM_TRY(lm_buffer_printf(&w->out, w->err, "    {\"id\": %u, \"content\": ", id));
    LM_TRY(write_string(&w->out, w->scratch.data, w->scratch.size, w->err));
    LM_TRY(lm_buffer_printf(&w->out, w->err,
                            ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                            "\"special\": %s}",
                            always ? "false" : "true"));
  }
  return lm_buffer_printf(&w->out, w->err, "\n  ],\n");
}

static lm_status write_pre_tokenizer(writer *w)
{
  static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                                   "\"use_regex\": %s}";
  const char *regex = lm_vocab_regex(w->v);
  LM_TRY(lm_buffer_printf(&w->out, w->err,
                          "  \"normalizer\": %s,\n  \"pre_tokenizer\": ", w->v->nfc ? "{\"type\": \"NFC\"}" : "null"));
  if (w->v->pattern == LM_PATTERN_GPT2) {
    LM_TRY(lm_buffer_printf(&w->out, w->err, byte_level, "true"));
  } else {
    LM_TRY(lm_buffer_printf(&w->out, w->err,
                            "{\"type\": \"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": "
                            "{\"Regex\": "));
    LM_TRY(write_string(&w->out, regex, strlen(regex), w->err));
    LM_TRY(lm_buffer_printf(&w->out, w->err, "}, \"behavior\": \"Isolated\", \"invert\": false},\n    "));
    LM_TRY(lm_buffer_printf(&w->out, w->err, byte_level, "false"));
    LM_TRY(lm_buffer_printf(&w->out, w->err, "]}"));
  }
  LM_TRY(lm_buffer_printf(&w->out, w->err, ",\n  \"post_processor\": null,\n  \"decoder\": "));
  LM_TRY(lm_buffer_printf(&w->out, w->err, byte_level, "true"));
  return lm_buffer_printf(&w->out, w->err, ",\n");
}

static lm_status write_token(writer *w, uint32_t id)
{
  LM_TRY(write_separator(w));
  LM_TRY(spell(w, id));
  LM_TRY(lm_buffer_printf(&w->out, w->err, "      "));
  LM_TRY(write_string(&w->out, w->scratch.data, w->scratch.size, w->err));
  return lm_buffer_printf(&w->out, w->err, ": %u", id);
}

static lm_status write_merge(writer *w, lm_merge m)
{
  LM_TRY(write_separator(w));
  LM_TRY(spell(w, m.left));
  LM_TRY(lm_buffer_append(&w->scratch, " ", 1, w->err));
  size_t n;
  const char *right = lm_vocab_bytes(w->v, m.right, &n);
  LM_TRY(w->v->tokens[m.right].special ? lm_buffer_append(&w->scratch, right, n, w->err)
                                       : lm_alphabet_write(&w->scratch, right, n, w->err));
  LM_TRY(lm_buffer_printf(&w->out, w->err, "      "));
  return write_string(&w->out, w->scratch.data, w->scratch.size, w->err);
}

static bool visit_merge(void *to, lm_merge m, uint32_t rank)
{
  (void)rank;
  writer *w = to;
  w->status = write_merge(w, m);
  return w->status == LM_OK;
}

static lm_status write_all(writer *w)
{
  LM_TRY(
      lm_buffer_printf(&w->out, w->err, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"));
  LM_TRY(write_added(w));
  LM_TRY(write_pre_tokenizer(w));
  LM_TRY(lm_buffer_printf(&w->out, w->err,
                          "  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                          "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                          "    \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": %s,\n    \"vocab\": {",
                          w->v->whole_first ? "true" : "false"));
  w->first = true;
  for (uint32_t id = 0; id < w->v->size; id++)
    if (w->v->tokens[id].n > 0) LM_TRY(write_token(w, id));
  LM_TRY(lm_buffer_printf(&w->out, w->err, "\n    },\n    \"merges\": ["));
  w->first = true;
  if (!lm_vocab_walk_merges(w->v, visit_merge, w)) return w->status;
  return lm_buffer_printf(&w->out, w->err, "\n    ]\n  }\n}\n");
}

lm_status lm_vocab_save(const lm_vocab *v, const char *path, lm_error *err)
{
  writer w = {.v = v, .err = err};
  lm_status s = write_all(&w);
  if (s == LM_OK) s = lm_file_replace(path, w.out.data, w.out.size, err);
  lm_buffer_free(&w.out);
  lm_buffer_free(&w.scratch);
  return s;
}
