/* src/text/spool.c - encoded parts wait in a folder beside the output until all are there. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/spool.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much of a split lies before something, or in it. */
struct extent {
  uint64_t tokens, documents;
};

/* In a spool file a block is: how much it has of each split, then ids and lengths of the first, and of the second. */
struct block {
  struct extent size[LM_SPLITS];
};

struct lm_spool {
  int rank, size, width, lock;
  char folder[PATH_MAX];
  uint64_t job, first; /* this run's spool files are first + rank */
  int fd, journal;
  char path[PATH_MAX];
  uint64_t end, begin, hash; /* of the file; of the part that is being added */
  struct extent size_of_part[LM_SPLITS];
  lm_buffer together;    /* a block on its way */
  lm_part_record *found; /* [n_found] of earlier runs, in order */
  size_t n_found;
  lm_part_record *made; /* [n_made] of this rank */
  size_t n_made, capacity;
  lm_part_record *all; /* [n_all] of all, in order, after lm_spool_place() */
  size_t n_all;
};

static uint64_t seal(const lm_part_record *r, uint64_t job)
{
  return lm_hash_seeded(r, offsetof(lm_part_record, seal), job);
}

static lm_status name_file(const lm_spool *s, uint64_t number, const char *what, char path[PATH_MAX], lm_error *err)
{
  int n = snprintf(path, PATH_MAX, "%.*s/%06" PRIu64 ".%s", PATH_MAX - 40, s->folder, number, what);
  return n < PATH_MAX ? LM_OK : lm_fail(err, LM_EINVAL, "%.64s...: the path is too long", s->folder);
}

static lm_status name_folder(lm_spool *s, const char *near, lm_error *err)
{
  const char *slash = strrchr(near, '/'), *name = slash != NULL ? slash + 1 : near;
  int n = snprintf(s->folder, sizeof s->folder, "%.*s.%s.work", (int)(name - near), near, name);
  if ((size_t)n + 40 < sizeof s->folder) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%.64s...: the path is too long", near);
}

/* ---- what earlier runs left ---- */

static int by_id(const void *a, const void *b)
{
  return lm_part_order(a, b);
}

/* Entries of a journal that are of this job; `others` are not, or are torn. */
static lm_status read_journal(lm_spool *s, const char *path, size_t *capacity, size_t *others, lm_error *err)
{
  lm_buffer text = {0};
  lm_status status = lm_file_read(path, &text, err);
  for (size_t at = 0; status == LM_OK && at < text.size; at += sizeof(lm_part_record)) {
    lm_part_record r;
    bool whole = text.size - at >= sizeof r;
    if (whole) memcpy(&r, text.data + at, sizeof r);
    if (!whole || r.seal != seal(&r, s->job)) {
      ++*others;
      continue;
    }
    status = lm_grow(&s->found, capacity, s->n_found + 1, sizeof *s->found, err);
    if (status == LM_OK) s->found[s->n_found++] = r;
  }
  lm_buffer_free(&text);
  return status;
}

/* Every file of the folder: journals are read, and where nothing is of use, everything is removed. */
static lm_status each_file(lm_spool *s, bool removes, size_t *others, lm_error *err)
{
  DIR *stream = opendir(s->folder);
  if (stream == NULL) return lm_fail(err, LM_EIO, "%s: cannot open: %s", s->folder, strerror(errno));
  size_t capacity = 0;
  lm_status status = LM_OK;
  for (struct dirent *e; status == LM_OK && (e = readdir(stream)) != NULL;) {
    char path[PATH_MAX];
    unsigned long long number;
    char what[16];
    if (sscanf(e->d_name, "%llu.%15s", &number, what) != 2) continue;
    if (number + 1 > s->first) s->first = number + 1;
    status = name_file(s, number, what, path, err);
    if (status == LM_OK && removes) unlink(path);
    if (status == LM_OK && !removes && strcmp(what, "journal") == 0)
      status = read_journal(s, path, &capacity, others, err);
  }
  closedir(stream);
  return status;
}

static lm_status lock_folder(lm_spool *s, lm_error *err)
{
  char path[PATH_MAX + 8];
  snprintf(path, sizeof path, "%s/lock", s->folder);
  s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (s->lock < 0) return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", path, strerror(errno));
  for (int tries = 50; flock(s->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; usleep(100000))
    if (--tries == 0)
      return lm_fail(err, LM_EINVAL, "%s: another run that writes the same output is at work", s->folder);
  return LM_OK;
}

static lm_status open_on_rank_0(lm_spool *s, bool again, lm_error *err)
{
  size_t others = 0;
  if (mkdir(s->folder, 0777) != 0 && errno != EEXIST) {
    int e = errno;
    return lm_fail(err, e == ENOENT || e == ENOTDIR ? LM_EINVAL : LM_EIO,
                   "%s: cannot make the folder of unfinished work: %s", s->folder, strerror(e));
  }
  LM_TRY(lock_folder(s, err));
  LM_TRY(each_file(s, false, &others, err));
  if (!again) s->n_found = 0;
  if (s->n_found > 0) {
    qsort(s->found, s->n_found, sizeof *s->found, by_id);
    return LM_OK;
  }
  if (others > 0)
    lm_warn("%s: holds %zu parts of another input, vocabulary or options; they are thrown away", s->folder, others);
  return each_file(s, true, &others, err);
}

/* The bytes of a part, one after the other through the hash, as lm_spool_add() gave them. */
static bool is_whole(const lm_spool *s, const lm_part_record *r, lm_buffer *b)
{
  char path[PATH_MAX];
  lm_error err;
  uint64_t hash = 0, at = 0;
  if (name_file(s, r->spool, "ids", path, &err) != LM_OK) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool good = true;
  while (good && at < r->bytes) {
    struct block head;
    good =
        r->bytes - at >= sizeof head && lm_pread_all(fd, path, &head, sizeof head, (off_t)(r->at + at), &err) == LM_OK;
    if (!good) break;
    uint64_t room = r->bytes - at - sizeof head, n = 0;
    for (int i = 0; i < LM_SPLITS && good; i++) {
      good = head.size[i].tokens <= room && head.size[i].documents <= room;
      n += head.size[i].tokens * (uint64_t)s->width + head.size[i].documents * 8;
    }
    b->size = 0;
    good = good && n <= room && lm_buffer_reserve(b, n, &err) == LM_OK &&
           lm_pread_all(fd, path, b->data, n, (off_t)(r->at + at + sizeof head), &err) == LM_OK;
    if (good) hash = lm_hash_seeded(b->data, n, lm_hash_seeded(&head, sizeof head, hash));
    at += sizeof head + n;
  }
  close(fd);
  return good && hash == r->hash;
}

/* Each rank looks at some of what was found; what is torn anywhere is dropped everywhere. */
static lm_status verify_found(lm_spool *s, const lm_comm *comm, lm_error *err)
{
  uint64_t *good = NULL;
  lm_buffer b = {0};
  lm_status status = s->n_found > 0 ? lm_alloc(&good, s->n_found, sizeof *good, "the finished parts", err) : LM_OK;
  LM_TRY(lm_agree(comm, status, err));
  if (s->n_found == 0) return LM_OK;
  for (size_t k = 0; k < s->n_found; k++)
    good[k] = (int)(k % (size_t)s->size) == s->rank && is_whole(s, &s->found[k], &b);
  lm_buffer_free(&b);
  lm_allreduce_sum_u64(comm, good, s->n_found);
  size_t kept = 0;
  for (size_t k = 0; k < s->n_found; k++)
    if (good[k] > 0) s->found[kept++] = s->found[k];
  s->n_found = kept;
  free(good);
  return LM_OK;
}

static lm_status share_found(lm_spool *s, const lm_comm *comm, lm_error *err)
{
  uint64_t both[2] = {s->n_found, s->first};
  lm_bcast(comm, both, sizeof both, 0);
  s->n_found = both[0];
  s->first = both[1];
  lm_status status = LM_OK;
  if (s->rank != 0 && s->n_found > 0)
    status = lm_alloc(&s->found, s->n_found, sizeof *s->found, "the finished parts", err);
  LM_TRY(lm_agree(comm, status, err));
  lm_bcast(comm, s->found, s->n_found * sizeof *s->found, 0);
  return verify_found(s, comm, err);
}

static lm_status open_own_files(lm_spool *s, lm_error *err)
{
  const char *const what[] = {"ids", "journal"};
  int *const fd[] = {&s->fd, &s->journal};
  for (int i = 0; i < 2; i++) {
    LM_TRY(name_file(s, s->first + (uint64_t)s->rank, what[i], s->path, err));
    *fd[i] = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd[i] < 0)
      return lm_fail(err, errno == ENOENT ? LM_EINVAL : LM_EIO, "%s: cannot open for writing: %s", s->path,
                     strerror(errno));
  }
  return name_file(s, s->first + (uint64_t)s->rank, what[0], s->path, err);
}

lm_status lm_spool_open(lm_spool **out, const lm_comm *comm, const char *near, uint64_t job, bool again, int width,
                        lm_error *err)
{
  lm_spool *s = NULL;
  LM_TRY(lm_alloc_agreed(comm, &s, 1, sizeof *s, "the spool", err));
  *s = (lm_spool){
      .rank = comm->rank, .size = comm->size, .width = width, .lock = -1, .job = job, .fd = -1, .journal = -1};
  lm_status status = name_folder(s, near, err);
  if (status == LM_OK && s->rank == 0) status = open_on_rank_0(s, again, err);
  status = lm_agree(comm, status, err);
  if (status == LM_OK) status = share_found(s, comm, err);
  if (status == LM_OK) status = lm_agree(comm, open_own_files(s, err), err);
  if (status != LM_OK) {
    lm_spool_close(s, comm, true);
    s = NULL;
  }
  *out = s;
  return status;
}

const lm_part_record *lm_spool_found(const lm_spool *s, size_t *n)
{
  *n = s->n_found;
  return s->found;
}

void lm_spool_filter(lm_spool *s, bool (*keep)(const lm_part_record *))
{
  size_t kept = 0;
  for (size_t k = 0; k < s->n_found; k++)
    if (keep(&s->found[k])) s->found[kept++] = s->found[k];
  s->n_found = kept;
}

void lm_spool_close(lm_spool *s, const lm_comm *comm, bool keep)
{
  uint64_t parts = s->n_found + s->n_made, others = 0;
  lm_error err;
  if (s->fd >= 0 && !keep && ftruncate(s->fd, 0) != 0) keep = false; /* many ranks give it back faster than one */
  if (s->fd >= 0) close(s->fd);
  if (s->journal >= 0) close(s->journal);
  lm_allreduce_sum_u64(comm, &parts, 1); /* and nobody has a file of the folder open any more */
  if (s->lock >= 0) {
    if (keep && parts > 0) {
      lm_info("%s: keeps what is finished; the same command goes on from there", s->folder);
    } else {
      char path[PATH_MAX + 8];
      snprintf(path, sizeof path, "%s/lock", s->folder);
      if (each_file(s, true, &others, &err) == LM_OK) unlink(path);
      rmdir(s->folder);
    }
    close(s->lock);
  }
  lm_buffer_free(&s->together);
  free(s->found);
  free(s->made);
  free(s->all);
  free(s);
}

/* ---- adding ---- */

static lm_status append(lm_spool *s, const void *bytes, size_t n, lm_error *err)
{
  LM_TRY(lm_pwrite_all(s->fd, s->path, bytes, n, (off_t)s->end, err));
  s->end += n;
  return LM_OK;
}

lm_status lm_spool_add(lm_spool *s, const lm_spool_part part[LM_SPLITS], lm_error *err)
{
  struct block head;
  memset(&head, 0, sizeof head);
  lm_buffer *together = &s->together;
  lm_status status = LM_OK;
  together->size = 0;
  for (int i = 0; i < LM_SPLITS && status == LM_OK; i++) {
    head.size[i] = (struct extent){part[i].ids.size / (size_t)s->width, part[i].lengths.size / sizeof(uint64_t)};
    status = lm_buffer_append(together, part[i].ids.data, part[i].ids.size, err);
    if (status == LM_OK) status = lm_buffer_append(together, part[i].lengths.data, part[i].lengths.size, err);
  }
  if (status == LM_OK) status = append(s, &head, sizeof head, err);
  if (status == LM_OK) status = append(s, together->data, together->size, err);
  if (status == LM_OK)
    s->hash = lm_hash_seeded(together->data, together->size, lm_hash_seeded(&head, sizeof head, s->hash));
  for (int i = 0; i < LM_SPLITS && status == LM_OK; i++) {
    s->size_of_part[i].tokens += head.size[i].tokens;
    s->size_of_part[i].documents += head.size[i].documents;
  }
  return status;
}

lm_status lm_spool_finish_part(lm_spool *s, lm_part_record *record, lm_error *err)
{
  lm_part_record *r = record;
  r->spool = s->first + (uint64_t)s->rank;
  r->at = s->begin;
  r->bytes = s->end - s->begin;
  r->hash = s->hash;
  for (int i = 0; i < LM_SPLITS; i++) {
    r->tokens[i] = s->size_of_part[i].tokens;
    r->documents[i] = s->size_of_part[i].documents;
    s->size_of_part[i] = (struct extent){0, 0};
  }
  r->seal = seal(r, s->job);
  LM_TRY(lm_grow(&s->made, &s->capacity, s->n_made + 1, sizeof *s->made, err));
  LM_TRY(lm_pwrite_all(s->journal, s->path, r, sizeof *r, (off_t)(s->n_made * sizeof *r), err));
  s->made[s->n_made++] = *r;
  s->begin = s->end;
  s->hash = 0;
  return LM_OK;
}

uint64_t lm_spool_finished(const lm_spool *s)
{
  return s->n_made;
}

/* ---- placing ---- */

static lm_status gather(lm_spool *s, const lm_comm *comm, lm_error *err)
{
  double most = (double)s->n_made;
  uint64_t sum = s->n_made;
  lm_allreduce_max_f64(comm, &most, 1);
  lm_allreduce_sum_u64(comm, &sum, 1);
  size_t rows = (size_t)most, size = (size_t)s->size;
  lm_part_record *mine = NULL, *all = NULL;
  lm_status status = lm_alloc(&s->all, s->n_found + sum + 1, sizeof *s->all, "the list of parts", err);
  if (status == LM_OK) status = lm_alloc(&mine, rows + 1, sizeof *mine, "the list of parts", err);
  if (status == LM_OK) status = lm_alloc(&all, rows * size + 1, sizeof *all, "the list of parts", err);
  status = lm_agree(comm, status, err);
  if (status == LM_OK) {
    if (s->n_made > 0) memcpy(mine, s->made, s->n_made * sizeof *mine);
    lm_allgather(comm, mine, rows * sizeof *mine, all);
    if (s->n_found > 0) memcpy(s->all, s->found, s->n_found * sizeof *s->all);
    s->n_all = s->n_found;
    for (size_t k = 0; k < rows * size; k++)
      if (all[k].seal != 0) s->all[s->n_all++] = all[k];
    qsort(s->all, s->n_all, sizeof *s->all, by_id);
  }
  free(mine);
  free(all);
  return status;
}

/* Readers that looked behind the end of an item made empty parts there. */
static void drop_behind_last(lm_spool *s)
{
  size_t kept = 0;
  bool over = false;
  uint64_t item = UINT64_MAX;
  for (size_t k = 0; k < s->n_all; k++) {
    if (s->all[k].id.item != item) over = false;
    item = s->all[k].id.item;
    if (!over) s->all[kept++] = s->all[k];
    over = over || s->all[k].last != 0;
  }
  s->n_all = kept;
}

static void add_counts(lm_documents_counts *to, const lm_documents_counts *c)
{
  to->documents += c->documents;
  to->empty += c->empty;
  to->bad += c->bad;
  to->bytes += c->bytes;
  to->lone_surrogates += c->lone_surrogates;
  to->invalid_utf8 += c->invalid_utf8;
}

lm_status lm_spool_place(lm_spool *s, const lm_comm *comm, lm_part_record *sum, lm_error *err)
{
  *sum = (lm_part_record){.last = 1};
  LM_TRY(gather(s, comm, err));
  drop_behind_last(s);
  for (size_t k = 0; k < s->n_all; k++) {
    const lm_part_record *r = &s->all[k];
    bool follows = k > 0 && r->id.item == s->all[k - 1].id.item;
    LM_ASSERT(r->id.part == (follows ? s->all[k - 1].id.part + 1 : 0)); /* a part would be missing, or be there twice */
    add_counts(&sum->counts, &r->counts);
    for (int i = 0; i < LM_SPLITS; i++) {
      sum->tokens[i] += r->tokens[i];
      sum->documents[i] += r->documents[i];
      sum->text_bytes[i] += r->text_bytes[i];
    }
  }
  return LM_OK;
}

/* ---- writing ---- */

/* Lengths of documents -> where they end, and their share of the checksum. */
static uint64_t finish_documents(const char *ids, uint64_t *lengths, size_t documents, uint64_t begin, size_t width)
{
  uint64_t checksum = 0;
  for (size_t k = 0; k < documents; k++) {
    size_t bytes = (size_t)lengths[k] * width;
    begin += lengths[k];
    checksum += lm_token_document_hash(ids, bytes, begin);
    ids += bytes;
    lengths[k] = begin; /* from here on: the end */
  }
  return checksum;
}

struct writer {
  const lm_token_info *info;
  const char *path;
  char from_path[PATH_MAX];
  int split, fd, from;
  uint64_t open; /* the number of the spool file that `from` reads */
  lm_buffer ids, ends;
  uint64_t checksum;
};

static lm_status write_block(lm_spool *s, struct writer *w, struct extent size, struct extent before, off_t at,
                             lm_error *err)
{
  size_t width = (size_t)s->width, id_bytes = (size_t)size.tokens * width, end_bytes = (size_t)size.documents * 8;
  w->ids.size = w->ends.size = 0;
  LM_TRY(lm_buffer_reserve(&w->ids, id_bytes, err));
  LM_TRY(lm_buffer_reserve(&w->ends, end_bytes, err));
  LM_TRY(lm_pread_all(w->from, w->from_path, w->ids.data, id_bytes, at, err));
  LM_TRY(lm_pread_all(w->from, w->from_path, w->ends.data, end_bytes, at + (off_t)id_bytes, err));
  uint64_t *ends = (uint64_t *)(void *)w->ends.data;
  w->checksum += finish_documents(w->ids.data, ends, (size_t)size.documents, before.tokens, width);
  off_t to = w->info->offset + (off_t)(before.tokens * width);
  LM_TRY(lm_pwrite_all(w->fd, w->path, w->ids.data, id_bytes, to, err));
  if (id_bytes > 0)
    sync_file_range(w->fd, to, (off_t)id_bytes, SYNC_FILE_RANGE_WRITE); /* or fsync does all at the end */
  return lm_pwrite_all(w->fd, w->path, ends, end_bytes, w->info->document_offset + (off_t)(before.documents * 8), err);
}

static lm_status write_part(lm_spool *s, struct writer *w, const lm_part_record *r, struct extent before, lm_error *err)
{
  for (uint64_t at = 0; at < r->bytes;) {
    struct block head;
    LM_TRY(lm_pread_all(w->from, w->from_path, &head, sizeof head, (off_t)(r->at + at), err));
    at += sizeof head;
    for (int i = 0; i < LM_SPLITS; i++) {
      if (i == w->split) {
        LM_TRY(write_block(s, w, head.size[i], before, (off_t)(r->at + at), err));
        before.tokens += head.size[i].tokens;
        before.documents += head.size[i].documents;
      }
      at += head.size[i].tokens * (uint64_t)s->width + head.size[i].documents * 8;
    }
  }
  return LM_OK;
}

/* A rank writes what it made, and its share of what earlier runs made. */
static bool writes(const lm_spool *s, size_t k)
{
  uint64_t spool = s->all[k].spool;
  bool of_this_run = spool >= s->first && spool < s->first + (uint64_t)s->size;
  return of_this_run ? spool == s->first + (uint64_t)s->rank : (int)(k % (size_t)s->size) == s->rank;
}

static lm_status write_parts(lm_spool *s, struct writer *w, lm_error *err)
{
  struct extent before = {0, 0};
  for (size_t k = 0; k < s->n_all; k++) {
    const lm_part_record *r = &s->all[k];
    if (writes(s, k) && r->bytes > 0) {
      if (w->from < 0 || w->open != r->spool) {
        if (w->from >= 0) close(w->from);
        LM_TRY(name_file(s, r->spool, "ids", w->from_path, err));
        w->from = open(w->from_path, O_RDONLY | O_CLOEXEC);
        w->open = r->spool;
        if (w->from < 0) return lm_fail(err, LM_EIO, "%s: cannot open for reading: %s", w->from_path, strerror(errno));
      }
      LM_TRY(write_part(s, w, r, before, err));
    }
    before.tokens += r->tokens[w->split];
    before.documents += r->documents[w->split];
  }
  return LM_OK;
}

lm_status lm_spool_write(lm_spool *s, int split, const char *path, const lm_token_info *info, uint64_t *checksum,
                         lm_error *err)
{
  LM_ASSERT(info->width == s->width);
  struct writer w = {.info = info, .path = path, .split = split, .from = -1};
  w.fd = open(path, O_WRONLY | O_CLOEXEC);
  if (w.fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", path, strerror(errno));
  lm_status status = write_parts(s, &w, err);
  *checksum = w.checksum;
  if (w.from >= 0) close(w.from);
  lm_buffer_free(&w.ids);
  lm_buffer_free(&w.ends);
  if (status == LM_OK && fsync(w.fd) != 0) status = lm_fail(err, LM_EIO, "%s: cannot fsync: %s", path, strerror(errno));
  if (close(w.fd) != 0 && status == LM_OK) status = lm_fail(err, LM_EIO, "%s: cannot close: %s", path, strerror(errno));
  return status;
}
