/* src/command/options.c - the command line of a subcommand, by its table. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

lm_status lm_command_options(lm_options **out, const lm_command *c, void *target, int argc, char **argv, int min,
                             int max, lm_error *err)
{
  LM_TRY(lm_options_new(out, c->options, c->n_options, target, err));
  lm_status s = lm_options_parse(*out, argc, argv, err);
  const lm_list *words = lm_options_words(*out);
  if (s == LM_OK && words->count < (size_t)min)
    s = lm_fail(err, LM_EINVAL, "%s: %zu arguments, want %s%d; usage: mpilm %s", c->name, words->count,
                min == max ? "" : "at least ", min, c->usage);
  if (s == LM_OK && max >= 0 && words->count > (size_t)max)
    s = lm_fail(err, LM_EINVAL, "%s: '%s' is one argument too many; usage: mpilm %s", c->name, words->items[max],
                c->usage);
  if (s == LM_OK) s = lm_options_complete(*out, err);
  if (s != LM_OK) {
    lm_options_free(*out);
    *out = NULL;
  }
  return s;
}
