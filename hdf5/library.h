/* hdf5/library.h - which HDF5 this is. Only this folder includes hdf5.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_HDF5_LIBRARY_H
#define LM_HDF5_LIBRARY_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/** "1.10.8 (headers 1.10.8)". Local. */
void lm_hdf5_version(char *out, size_t n);

/** Built with MPI-IO? configure asks for it, so this is true unless the library was swapped. Local. */
bool lm_hdf5_is_parallel(void);

/** No error stacks on stderr: this folder turns errors into sentences. Local; call before any other HDF5 use. */
void lm_hdf5_quiet(void);

/** Why the last HDF5 call failed, in its own words: the innermost entry of its error stack. Local. */
void lm_hdf5_reason(char *out, size_t n);

/** lm_fail() with that reason behind the sentence. Local. */
lm_status lm_hdf5_fail(lm_error *err, lm_status s, const char *format, ...) LM_PRINTF(3, 4);

#endif
