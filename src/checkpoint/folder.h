/* src/checkpoint/folder.h - a run folder: names, what is in it. Only this folder's files include it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_CHECKPOINT_FOLDER_H
#define LM_CHECKPOINT_FOLDER_H

#include "checkpoint/checkpoint.h"

/** RUN/checkpoints, or a file in it. Local. @param out [PATH_MAX] @param name  "": the folder */
lm_status lm_checkpoint_path(char *out, const char *run, const char *name, lm_error *err) LM_NODISCARD;

/** "step-00001000.h5". Local. */
void lm_checkpoint_name(char out[64], uint64_t step);

/** The files that have a checkpoint's name, by step, ascending; nothing is opened. Times mean nothing: a restored or
 *  copied folder has any. Local. *out is the caller's to free(). */
lm_status lm_checkpoint_find(const char *run, lm_checkpoint **out, size_t *n, lm_error *err) LM_NODISCARD;

/** Fill in whether it is complete, and why not. Local. */
void lm_checkpoint_inspect(lm_checkpoint *c);

/** lm_fail() with "path: cannot what: system text". Local. */
lm_status lm_checkpoint_fail(lm_error *err, lm_status s, const char *what, const char *path);

#endif
