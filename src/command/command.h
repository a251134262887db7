/* src/command/command.h - one row a subcommand; src/mpilm.c walks the table. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMMAND_COMMAND_H
#define LM_COMMAND_COMMAND_H

#include "base/options.h"
#include "comm/comm.h"

typedef struct lm_command {
  const char *name;
  const char *usage;   /* the lines after "usage: mpilm ", separated by '\n' */
  const char *summary; /* one line for `mpilm --help` */
  bool parallel;       /* runs on several ranks: MPI is started for it; the others are refused under mpirun -n N > 1 */
  const lm_option *options; /* for --help; NULL: none */
  size_t n_options;
  const lm_option *config_options; /* of a config, to the row without a name: the rest of --help; NULL: none */
  /** Run it. Collective where parallel. argv[0] is the first word after the subcommand's name. */
  lm_status (*run)(const lm_comm *comm, int argc, char **argv, lm_error *err);
} lm_command;

extern const lm_command lm_command_vocab, lm_command_encode, lm_command_decode;
extern const lm_command lm_command_tokenize, lm_command_data;
extern const lm_command lm_command_train, lm_command_eval, lm_command_generate;
extern const lm_command lm_command_ckpt;
extern const lm_command lm_command_check;
extern const lm_command lm_command_info;

/** Parse argv by a command's table into `target`, and count the positional words. Local.
 *  @param[out] out  the caller's to free, after the last use of the words and of texts in target
 *  @param min, max  how many positional words (lm_options_words()) are wanted; max -1: any number */
lm_status lm_command_options(lm_options **out, const lm_command *c, void *target, int argc, char **argv, int min,
                             int max, lm_error *err) LM_NODISCARD;

#endif
