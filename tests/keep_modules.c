/* tests/keep_modules.c - in sanitizer builds nothing is unloaded: a leak is reported with the library it is in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>

extern const int lm_keep_modules;
const int lm_keep_modules = 1; /* what the linker is told to look for (tests/module.am), so that this file is in */

/* LeakSanitizer runs at the end, when Open MPI has unloaded its modules; their frames would have no name, and
 * tests/lsan.supp could not tell them from ours. */
int dlclose(void *handle)
{
  (void)handle;
  return 0;
}
