/* src/base/process.c - is a process of this host still there. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The second field may hold anything but ends in ')'. */
int64_t lm_process_start(int64_t pid)
{
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char *p = strrchr(text, ')');
  if (p != NULL && (strncmp(p, ") Z", 3) == 0 || strncmp(p, ") X", 3) == 0)) p = NULL;
  for (int field = 2; p != NULL && field < 22; field++) {
    p = strchr(p, ' ');
    if (p != NULL) p++;
  }
  return p != NULL ? strtoll(p, NULL, 10) : 0;
}
