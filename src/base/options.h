/* src/base/options.h - the option table: one row an option, for the command line, the config file, and the help. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_OPTIONS_H
#define LM_BASE_OPTIONS_H

#include "base/memory.h"
#include <stdbool.h>
#include <stdint.h>

/* The type of an option is the C type of the field it fills. */
typedef enum lm_option_type {
  LM_OPT_BOOL,   /* bool: true|false, yes|no, on|off, 1|0, in any case; bare --name is true */
  LM_OPT_INT,    /* int64_t: 1000, 1_000 and 1e3 are the same; no fractions, no hex */
  LM_OPT_FLOAT,  /* double, finite; .5 and 3e-4 are fine; the locale has no effect */
  LM_OPT_STRING, /* const char *, kept alive by the lm_options */
  LM_OPT_CHOICE, /* int: the index of the word in `range`, "f32|bf16|auto" */
  LM_OPT_LIST,   /* lm_list: a YAML sequence; --name=a,b or --name=a --name=b on the command line */
} lm_option_type;

typedef struct lm_list {
  size_t count;
  const char **items;
} lm_list;

/** One option. A table is an array of these; `name` has a dot ("optim.lr") where it belongs to a section. */
typedef struct lm_option {
  const char *name;
  lm_option_type type;
  size_t offset;        /* of the field in the target struct */
  const char *fallback; /* the default, as a user would type it; "" is an empty string or list; NULL: must be given */
  const char *range;    /* numbers: "[0, 1)", "(0, inf)"; choices: "f32|bf16|auto"; NULL: anything */
  const char *unit;     /* "tokens", "steps", "MB"; NULL: none */
  const char *help;     /* one sentence, no full stop */
} lm_option;

/** Where the value of an option came from; a later source beats an earlier one. */
typedef enum lm_origin { LM_FROM_DEFAULT, LM_FROM_PRESET, LM_FROM_FILE, LM_FROM_COMMAND_LINE } lm_origin;

/** Rows before the one without a name; 0 for NULL. Local. */
size_t lm_options_count(const lm_option *table);

typedef struct lm_options lm_options; /* opaque: a table, the struct it fills, and who set what */

/** Bind a table to the struct it fills and set every default. Local.
 *  @param table  kept; count rows
 *  @param target kept; its fields at `offset` are written
 *  @return LM_OK, LM_ENOMEM. A default out of its own range is a bug (assertion). */
lm_status lm_options_new(lm_options **out, const lm_option *table, size_t count, void *target,
                         lm_error *err) LM_NODISCARD;
void lm_options_free(lm_options *o);

/** Set one option from text. Local. LM_EINVAL names `where` ("config.yaml:7", "command line"), the value, the range,
 * and for an unknown name the nearest one. A source never overwrites a stronger one; the same source overwrites itself.
 */
lm_status lm_options_set(lm_options *o, const char *name, const char *value, lm_origin origin, const char *where,
                         lm_error *err) LM_NODISCARD;

/** Set a list from its items. Local. As lm_options_set. */
lm_status lm_options_set_list(lm_options *o, const char *name, const char *const *items, size_t count, lm_origin origin,
                              const char *where, lm_error *err) LM_NODISCARD;

/** Parse a command line: --name=value, --name value, bare --flag, and everything else as positional. Local.
 *  "--" ends the options, "-" is positional. --help is not special here: main() looks for it first. */
lm_status lm_options_parse(lm_options *o, int argc, char **argv, lm_error *err) LM_NODISCARD;

/** Set the options that this table knows, and leave all other words in argv, in order. Local. For a subcommand that has
 *  options of its own beside those of the config. @param[in,out] argc, argv */
lm_status lm_options_take(lm_options *o, int *argc, char **argv, lm_error *err) LM_NODISCARD;

/** The positional words of lm_options_parse(), borrowed from argv. Local. */
const lm_list *lm_options_words(const lm_options *o);

/** Read a YAML config: sections of scalars and lists. Local. Errors carry file and line. */
lm_status lm_options_read_yaml(lm_options *o, const char *path, lm_error *err) LM_NODISCARD;

/** As lm_options_read_yaml(), from n bytes of text that `where` names in errors. Local. */
lm_status lm_options_parse_yaml(lm_options *o, const char *yaml, size_t n, const char *where,
                                lm_error *err) LM_NODISCARD;

/** Every option without a default has a value? Local. LM_EINVAL names the first that has none. */
lm_status lm_options_complete(const lm_options *o, lm_error *err) LM_NODISCARD;

/** Where the value of `name` came from: "default", "preset", "config.yaml:7", "command line". Local. */
lm_origin lm_options_origin(const lm_options *o, const char *name, const char **where);

/** Where `name` was set, if by this source and no stronger one: "config.yaml:7"; else NULL. Local. Any name is fine. */
const char *lm_options_set_by(const lm_options *o, const char *name, lm_origin origin);

/** Append the current values as YAML, which lm_options_read_yaml() reads back to the same values. Local. */
lm_status lm_options_write_yaml(const lm_options *o, lm_buffer *out, lm_error *err) LM_NODISCARD;

/** Append the value of one row as a user would type it. Local. */
lm_status lm_options_value(const lm_options *o, const lm_option *row, lm_buffer *out, lm_error *err) LM_NODISCARD;

/** Append the help: a line or two an option, in table order. Local. */
lm_status lm_options_write_help(const lm_option *table, size_t count, lm_buffer *out, lm_error *err) LM_NODISCARD;

/** Append the table as Markdown, a heading a section (doc/parameters.md). Local. */
lm_status lm_options_write_markdown(const lm_option *table, size_t count, lm_buffer *out, lm_error *err) LM_NODISCARD;

/** The nearest of `count` words to `word` by edit distance, or NULL where none is near. Local. */
const char *lm_nearest_word(const char *word, const char *const *words, size_t count);

#endif
