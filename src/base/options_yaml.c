/* src/base/options_yaml.c - a YAML config -> options, with file and line in every error. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
  lm_options *o;
  const char *path;
  yaml_document_t *doc;
  lm_error *err;
};

static void place_of(const struct reader *r, const yaml_node_t *node, char out[512])
{
  snprintf(out, 512, "%s:%zu", r->path, node->start_mark.line + 1);
}

/* Scalars are text to us: the option's type decides, so that `no` and `1e3` mean what the table says. */
static lm_status scalar(const struct reader *r, const yaml_node_t *node, const char **out, const char *place)
{
  *out = (const char *)node->data.scalar.value;
  if (strlen(*out) != node->data.scalar.length)
    return lm_fail(r->err, LM_EINVAL, "%s: the value holds a zero byte", place);
  return LM_OK;
}

static lm_status sequence(const struct reader *r, const char *name, const yaml_node_t *node, const char *place)
{
  size_t n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
  const char **items = calloc(n + 1, sizeof *items);
  if (items == NULL) return lm_fail(r->err, LM_ENOMEM, "no memory for a list of %zu items", n);
  lm_status s = LM_OK;
  for (size_t i = 0; i < n && s == LM_OK; i++) {
    yaml_node_t *item = yaml_document_get_node(r->doc, node->data.sequence.items.start[i]);
    if (item->type != YAML_SCALAR_NODE)
      s = lm_fail(r->err, LM_EINVAL, "%s: item %zu of %s is not a plain value", place, i + 1, name);
    else
      s = scalar(r, item, &items[i], place);
  }
  if (s == LM_OK) s = lm_options_set_list(r->o, name, items, n, LM_FROM_FILE, place, r->err);
  free(items);
  return s;
}

static lm_status duplicate_key(const struct reader *r, const yaml_node_t *map, const yaml_node_pair_t *pair)
{
  const yaml_node_t *key = yaml_document_get_node(r->doc, pair->key);
  for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
    const yaml_node_t *other = yaml_document_get_node(r->doc, p->key);
    if (other->type != YAML_SCALAR_NODE ||
        strcmp((char *)other->data.scalar.value, (char *)key->data.scalar.value) != 0)
      continue;
    char place[512];
    place_of(r, key, place);
    return lm_fail(r->err, LM_EINVAL, "%s: '%s' stands here for the second time, first in line %zu", place,
                   (char *)key->data.scalar.value, other->start_mark.line + 1);
  }
  return LM_OK;
}

/* `lr` in the section optim, and optim.lr. */
static lm_status check_once(const struct reader *r, const char *name, const char *place)
{
  const char *first = lm_options_set_by(r->o, name, LM_FROM_FILE);
  if (first == NULL) return LM_OK;
  return lm_fail(r->err, LM_EINVAL, "%s: %s stands here for the second time, first in %s", place, name, first);
}

static lm_status mapping(const struct reader *r, const yaml_node_t *map, const char *section)
{
  for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
    yaml_node_t *key = yaml_document_get_node(r->doc, p->key), *value = yaml_document_get_node(r->doc, p->value);
    char place[512], name[256];
    place_of(r, key, place);
    if (key->type != YAML_SCALAR_NODE) return lm_fail(r->err, LM_EINVAL, "%s: the key is not a word", place);
    LM_TRY(duplicate_key(r, map, p));
    snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", (char *)key->data.scalar.value);
    LM_TRY(check_once(r, name, place));
    if (value->type == YAML_MAPPING_NODE) {
      if (*section != '\0') return lm_fail(r->err, LM_EINVAL, "%s: %s is a section inside a section", place, name);
      LM_TRY(mapping(r, value, name));
    } else if (value->type == YAML_SEQUENCE_NODE) {
      LM_TRY(sequence(r, name, value, place));
    } else {
      const char *text;
      LM_TRY(scalar(r, value, &text, place));
      LM_TRY(lm_options_set(r->o, name, text, LM_FROM_FILE, place, r->err));
    }
  }
  return LM_OK;
}

static lm_status load(yaml_parser_t *parser, yaml_document_t *doc, const char *path, lm_error *err)
{
  if (yaml_parser_load(parser, doc)) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s:%zu: not YAML: %s", path, parser->problem_mark.line + 1,
                 parser->problem ? parser->problem : "it cannot be read");
}

/* What follows the first document would have no effect. */
static lm_status check_end(yaml_parser_t *parser, const char *path, lm_error *err)
{
  yaml_document_t doc;
  LM_TRY(load(parser, &doc, path, err));
  yaml_node_t *root = yaml_document_get_root_node(&doc);
  lm_status s = LM_OK;
  if (root != NULL)
    s = lm_fail(err, LM_EINVAL, "%s:%zu: a second document (---) begins; want one", path, root->start_mark.line + 1);
  yaml_document_delete(&doc);
  return s;
}

static lm_status read_document(lm_options *o, const char *path, yaml_parser_t *parser, lm_error *err)
{
  yaml_document_t doc;
  LM_TRY(load(parser, &doc, path, err));
  struct reader r = {.o = o, .path = path, .doc = &doc, .err = err};
  yaml_node_t *root = yaml_document_get_root_node(&doc);
  lm_status s = LM_OK;
  if (root != NULL && root->type != YAML_MAPPING_NODE)
    s = lm_fail(err, LM_EINVAL, "%s:%zu: a config is sections with keys (model:, data:, ...)", path,
                root->start_mark.line + 1);
  else if (root != NULL)
    s = mapping(&r, root, "");
  yaml_document_delete(&doc);
  return s == LM_OK && root != NULL ? check_end(parser, path, err) : s;
}

lm_status lm_options_parse_yaml(lm_options *o, const char *yaml, size_t n, const char *where, lm_error *err)
{
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) return lm_fail(err, LM_ENOMEM, "no memory to read %s", where);
  yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, n);
  lm_status s = read_document(o, where, &parser, err);
  yaml_parser_delete(&parser);
  return s;
}

lm_status lm_options_read_yaml(lm_options *o, const char *path, lm_error *err)
{
  lm_buffer text = {0};
  lm_status s = lm_file_read(path, &text, err);
  if (s == LM_OK) s = lm_options_parse_yaml(o, text.data, text.size, path, err);
  lm_buffer_free(&text);
  return s;
}
