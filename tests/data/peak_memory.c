/* tests/data/peak_memory.c - run a command and say what it needed: "peak N MiB" on stderr; exits as it does. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int status;
  struct rusage usage;
  pid_t child = argc > 1 ? fork() : -1;
  if (child == 0) {
    execvp(argv[1], argv + 1);
    _exit(127);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || getrusage(RUSAGE_CHILDREN, &usage) != 0) return 126;
  fprintf(stderr, "peak %ld MiB\n", usage.ru_maxrss / 1024);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
