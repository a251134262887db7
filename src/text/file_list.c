/* src/text/file_list.c - paths as a user gives them -> the files they stand for. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The folders around the one being read: a link may lead back to one of them. */
typedef struct folder {
  dev_t device;
  ino_t inode;
  const struct folder *outer;
} folder;

void lm_file_list_free(lm_file_list *list)
{
  for (size_t i = 0; i < list->count; i++) free(list->paths[i]);
  free(list->paths);
  *list = (lm_file_list){0};
}

/* where may be NULL: then name is the whole path. */
static lm_status append(lm_file_list *list, const char *where, const char *name, lm_error *err)
{
  if (list->count == list->capacity) {
    size_t capacity = list->capacity < 16 ? 16 : list->capacity * 2;
    char **paths = realloc(list->paths, capacity * sizeof *paths);
    if (paths == NULL) return lm_fail(err, LM_ENOMEM, "no memory for a list of %zu files", capacity);
    list->paths = paths;
    list->capacity = capacity;
  }
  size_t n = (where != NULL ? strlen(where) : 0) + strlen(name) + 2;
  char *path = malloc(n);
  if (path == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the path of %s", name);
  if (where == NULL)
    strcpy(path, name);
  else
    snprintf(path, n, "%s%s%s", where, where[strlen(where) - 1] == '/' ? "" : "/", name);
  list->paths[list->count++] = path;
  return LM_OK;
}

static lm_status fail_errno(const char *path, lm_error *err)
{
  int e = errno;
  lm_status s = e == ENOENT || e == ENOTDIR || e == ELOOP || e == EACCES || e == ENAMETOOLONG ? LM_EINVAL : LM_EIO;
  return lm_fail(err, s, "%s: cannot open for reading: %s", path, strerror(e));
}

static int by_bytes(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths of everything in a folder, sorted. */
static lm_status list_folder(const char *path, lm_file_list *out, lm_error *err)
{
  DIR *stream = opendir(path);
  if (stream == NULL) return fail_errno(path, err);
  lm_status s = LM_OK;
  for (struct dirent *e; s == LM_OK && (errno = 0, e = readdir(stream)) != NULL;)
    if (e->d_name[0] != '.') s = append(out, path, e->d_name, err);
  if (s == LM_OK && errno != 0) s = fail_errno(path, err);
  closedir(stream);
  if (s == LM_OK && out->count > 0) qsort(out->paths, out->count, sizeof *out->paths, by_bytes);
  return s;
}

static lm_status expand_folder(lm_file_list *list, const char *path, const folder *here, lm_error *err);

/* Sockets, pipes and devices inside a folder are no text; named by the user they are read. */
static lm_status expand_path(lm_file_list *list, const char *path, const folder *outer, lm_error *err)
{
  struct stat st;
  if (strcmp(path, "-") == 0 && outer == NULL) return append(list, NULL, path, err);
  if (stat(path, &st) != 0) return fail_errno(path, err);
  if (!S_ISDIR(st.st_mode)) return outer != NULL && !S_ISREG(st.st_mode) ? LM_OK : append(list, NULL, path, err);
  for (const folder *f = outer; f != NULL; f = f->outer)
    if (f->device == st.st_dev && f->inode == st.st_ino)
      return lm_fail(err, LM_EINVAL, "%s: the folder is inside itself, through a link", path);
  folder here = {st.st_dev, st.st_ino, outer};
  return expand_folder(list, path, &here, err);
}

static lm_status expand_folder(lm_file_list *list, const char *path, const folder *here, lm_error *err)
{
  lm_file_list inside = {0};
  lm_status s = list_folder(path, &inside, err);
  for (size_t i = 0; s == LM_OK && i < inside.count; i++) s = expand_path(list, inside.paths[i], here, err);
  lm_file_list_free(&inside);
  return s;
}

/* What a shell has left: the files that a pattern stands for, sorted by bytes. */
static lm_status expand_pattern(lm_file_list *list, const char *pattern, lm_error *err)
{
  glob_t found = {0};
  int failed = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
  lm_status s = LM_OK;
  if (failed != 0)
    s = failed == GLOB_NOSPACE ? lm_fail(err, LM_ENOMEM, "no memory for the files of %s", pattern)
                               : lm_fail(err, LM_EINVAL, "%s: no file has such a name", pattern);
  else
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
  for (size_t i = 0; s == LM_OK && i < found.gl_pathc; i++) s = expand_path(list, found.gl_pathv[i], NULL, err);
  globfree(&found);
  return s;
}

static bool is_pattern(const char *path)
{
  struct stat st;
  return strpbrk(path, "*?[") != NULL && stat(path, &st) != 0;
}

lm_status lm_file_list_expand(lm_file_list *list, const char *const *paths, size_t n, lm_error *err)
{
  if (n == 0) return lm_fail(err, LM_EINVAL, "no input files were named");
  for (size_t i = 0; i < n; i++) {
    size_t before = list->count;
    if (paths[i][0] == '\0') return lm_fail(err, LM_EINVAL, "the path of input %zu is empty", i + 1);
    LM_TRY(is_pattern(paths[i]) ? expand_pattern(list, paths[i], err) : expand_path(list, paths[i], NULL, err));
    if (list->count == before) return lm_fail(err, LM_EINVAL, "%s: the folder holds no files", paths[i]);
  }
  return LM_OK;
}
