/* src/text/file_list.h - paths as a user gives them -> the files they stand for, in a stable order. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_FILE_LIST_H
#define LM_TEXT_FILE_LIST_H

#include "base/status.h"

/** Zero-initialise it; free with lm_file_list_free(). */
typedef struct lm_file_list {
  char **paths;
  size_t count, capacity;
} lm_file_list;

/** Append what paths stand for. Local. A folder stands for the files in it and in its folders, names sorted byte by
 * byte whatever the locale is; names that begin with a dot are left out, symbolic links are followed. A pattern (* ? [])
 * that is no file's name stands for the files and folders that match it, sorted the same way. Other paths, "-" among
 * them, stand for themselves, in the order given.
 *  @return LM_EINVAL (no path, a path that does not exist, a pattern that nothing matches, a folder without files or inside itself), LM_EIO, LM_ENOMEM
 */
lm_status lm_file_list_expand(lm_file_list *list, const char *const *paths, size_t n, lm_error *err) LM_NODISCARD;
void lm_file_list_free(lm_file_list *list);

#endif
