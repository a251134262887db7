/* src/base/file.h - files as a trainer needs them: whole reads, durable writes, errors with the path in them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_FILE_H
#define LM_BASE_FILE_H

#include "base/memory.h"
#include <stdbool.h>
#include <sys/types.h>

/** Append a whole file to out; "-" is standard input. Local. LM_EINVAL where it does not exist or is a folder, else LM_EIO, LM_ENOMEM. */
lm_status lm_file_read(const char *path, lm_buffer *out, lm_error *err) LM_NODISCARD;

/** Replace a file: temporary name, fsync, rename, fsync of the folder. Local. After a failure the old file stands. */
lm_status lm_file_replace(const char *path, const void *bytes, size_t n, lm_error *err) LM_NODISCARD;

/** pwrite / pread all n bytes, whatever short transfers and signals do in between. Local. */
lm_status lm_pwrite_all(int fd, const char *path, const void *bytes, size_t n, off_t at, lm_error *err) LM_NODISCARD;
lm_status lm_pread_all(int fd, const char *path, void *bytes, size_t n, off_t at, lm_error *err) LM_NODISCARD;

/** Rename and make it durable: the folder of `to` is fsynced. Local. */
lm_status lm_file_commit(const char *from, const char *to, lm_error *err) LM_NODISCARD;

/** Make a folder and its missing parents. Local. */
lm_status lm_folder_make(const char *path, lm_error *err) LM_NODISCARD;

bool lm_file_exists(const char *path);

#endif
