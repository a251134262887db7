/* tests/keep_modules.c - in sanitizer builds a leak is reported with the library that it is in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern const int lm_keep_modules;
const int lm_keep_modules = 1; /* what the linker is told to look for (tests/module.am), so that this file is in */

/* LeakSanitizer runs at the end, when Open MPI has unloaded its modules; their frames would have no name, and
 * tests/lsan.supp could not tell them from ours. So nothing is unloaded. */
int dlclose(void *handle)
{
  (void)handle;
  return 0;
}

/* What Open MPI formats its strings with. In libc these have neither frame pointers nor, without its debug package,
 * names: the report would end there. Here tests/lsan.supp can name them; we do not use them ourselves. */
int __vasprintf_chk(char **out, int flag, const char *format, va_list args);
int __asprintf_chk(char **out, int flag, const char *format, ...);

int __vasprintf_chk(char **out, int flag, const char *format, va_list args)
{
  va_list again;
  (void)flag;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, again);
  va_end(again);
  /* Not malloc(), which a test may let fail for our own code alone (tests/no_memory.c). */
  *out = n < 0 ? NULL : reallocarray(NULL, 1, (size_t)n + 1);
  return *out == NULL ? -1 : vsnprintf(*out, (size_t)n + 1, format, args);
}

int __asprintf_chk(char **out, int flag, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  int n = __vasprintf_chk(out, flag, format, args);
  va_end(args);
  return n;
}
