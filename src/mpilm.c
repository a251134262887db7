/* src/mpilm.c - main(): finds the subcommand. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/log.h"
#include "command/command.h"
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of the flow: text -> vocabulary -> tokens -> model -> what came of it. */
static const lm_command *const commands[] = {
    &lm_command_vocab, &lm_command_encode, &lm_command_decode, &lm_command_tokenize,
    &lm_command_data,  &lm_command_train,  &lm_command_eval,   &lm_command_generate,
    &lm_command_ckpt,  &lm_command_check,  &lm_command_info,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_overview(FILE *out)
{
  fprintf(out, "usage: mpilm SUBCOMMAND [OPTIONS] [ARGUMENTS]\n\npre-train GPT-style language models on clusters\n\n");
  for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
  fprintf(out, "\n  mpilm SUBCOMMAND --help   its options\n  mpilm --version\n");
}

static lm_status print_help(const lm_command *c, lm_error *err)
{
  lm_buffer text = {0};
  lm_status s = lm_options_write_help(c->options, c->n_options, &text, err);
  if (s == LM_OK && c->config_options != NULL)
    s = lm_options_write_help(c->config_options, lm_options_count(c->config_options), &text, err);
  if (s == LM_OK) {
    printf("usage: ");
    for (const char *u = c->usage; *u != '\0'; u++)
      printf(*u == '\n' ? "\n       mpilm " : u == c->usage ? "mpilm %c" : "%c", *u);
    printf("\n\n%s\n%s%s", c->summary, text.size > 0 ? "\n" : "", text.size > 0 ? text.data : "");
  }
  lm_buffer_free(&text);
  return s;
}

static const lm_command *find_command(const char *name, lm_error *err)
{
  const char *names[N_COMMANDS];
  for (int i = 0; i < N_COMMANDS; i++) {
    names[i] = commands[i]->name;
    if (strcmp(name, names[i]) == 0) return commands[i];
  }
  const char *near = lm_nearest_word(name, names, N_COMMANDS);
  lm_fail(err, LM_EINVAL, "unknown subcommand '%s'%s%s%s; mpilm --help lists them", name,
          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
  return NULL;
}

static bool wants_help(int argc, char **argv)
{
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

/* A serial subcommand under mpirun -n 4 would run four times over the same files. */
static lm_status refuse_ranks(const lm_command *c, lm_error *err)
{
  const char *size = getenv("OMPI_COMM_WORLD_SIZE");
  if (size == NULL || atoi(size) <= 1) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s runs on one rank, mpirun started %s: run it without mpirun", c->name, size);
}

static lm_status run(const lm_command *c, int *argc, char ***argv, lm_error *err)
{
  lm_comm comm;
  lm_status s;
  if (c->parallel) {
    s = lm_comm_world(&comm, argc, argv, err);
  } else {
    lm_comm_self(&comm);
    s = refuse_ranks(c, err);
  }
  lm_log_init(comm.rank, comm.size, comm.host);
  if (s == LM_OK) s = lm_fault_init(getenv("MPILM_FAULT"), comm.rank, err);
  if (s == LM_OK) s = c->run(&comm, *argc - 2, *argv + 2, err);
  if (s != LM_OK && s != LM_STOPPED) lm_log_error(err);
  lm_comm_end(&comm);
  return s;
}

int main(int argc, char **argv)
{
  lm_error err = {0};
  signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails with words instead */
  if (argc < 2) {
    print_overview(stderr);
    return 2;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    print_overview(stdout);
    return 0;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("mpilm %s\n", PACKAGE_VERSION);
    return 0;
  }
  const lm_command *c = find_command(argv[1], &err);
  lm_status s = LM_EINVAL;
  if (c == NULL)
    lm_log_error(&err);
  else if (wants_help(argc - 2, argv + 2))
    s = print_help(c, &err);
  else
    s = run(c, &argc, &argv, &err);
  if ((fflush(stdout) != 0 || ferror(stdout)) && s == LM_OK) {
    lm_fail(&err, LM_EIO, "cannot write to stdout");
    lm_log_error(&err);
    s = LM_EIO;
  }
  return lm_exit_code(s);
}
