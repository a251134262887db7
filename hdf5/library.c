/* hdf5/library.c - which HDF5 this is. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/library.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

void lm_hdf5_version(char *out, size_t n)
{
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  snprintf(out, n, "%u.%u.%u (headers %d.%d.%d)", major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

bool lm_hdf5_is_parallel(void)
{
#ifdef H5_HAVE_PARALLEL
  return true;
#else
  return false;
#endif
}

void lm_hdf5_quiet(void)
{
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

struct reason {
  char *out;
  size_t n;
};

static herr_t take_innermost(unsigned depth, const H5E_error2_t *entry, void *reason)
{
  const struct reason *r = reason;
  (void)depth;
  snprintf(r->out, r->n, "%s", entry->desc);
  return 1; /* stops the walk */
}

/* "file write failed: time = ..., filename = 'x', errno = 28, error message = 'No space left', buf = ..." is too much.
 */
static void shorten(char *reason)
{
  char *text = strstr(reason, "error message = '"), *comma = strstr(reason, ", ");
  if (text != NULL) {
    text += strlen("error message = '");
    size_t n = strcspn(text, "'");
    memmove(reason, text, n);
    reason[n] = '\0';
  } else if (comma != NULL) {
    *comma = '\0';
  }
}

void lm_hdf5_reason(char *out, size_t n)
{
  struct reason r = {out, n};
  snprintf(out, n, "no reason given");
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &r);
  shorten(out);
}

lm_status lm_hdf5_fail(lm_error *err, lm_status s, const char *format, ...)
{
  char reason[256], text[640];
  lm_hdf5_reason(reason, sizeof reason);
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return lm_fail(err, s, "%s: %s", text, reason);
}
