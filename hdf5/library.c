/* hdf5/library.c - which HDF5 this is. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/library.h"

#include <hdf5.h>
#include <stdio.h>

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
