/* src/text/parts.c - the input cut into parts, and which rank reads which. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/parts.h"

#include "base/hash.h"
#include "text/decompress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PACKED = 4 }; /* about so many bytes of text are in a packed one */
enum { IN_TURN = -1 };

typedef enum file_kind { PLAIN, PACKED_FILE, PIPE } file_kind;

struct file {
  uint64_t bytes, seconds, nanoseconds, kind;
};

struct item {
  size_t first, count; /* files */
  uint64_t bytes;      /* as stored */
  uint64_t parts;      /* 0: known when it is read */
  int owner;           /* where parts is 0 or 1: the rank that reads it, or IN_TURN */
  size_t owners;       /* where parts > 1: its first entry in lm_parts.owners */
};

struct lm_parts {
  lm_documents *documents;
  struct file *files;
  struct item *items;
  size_t n_items, items_capacity;
  int *owners;
  size_t n_owners, owners_capacity;
  uint64_t part_bytes, fingerprint;
  bool repeatable;
  int rank, size;
  const char *done;
  size_t n_done, done_size;
  bool (*is_last)(const void *);
  size_t item; /* the walk: where it is, and which part comes next */
  uint64_t part;
  bool inside;
  double read, all;
};

int lm_part_order(const void *a, const void *b)
{
  const lm_part_id *x = a, *y = b;
  return x->item != y->item ? (x->item > y->item) - (x->item < y->item) : (x->part > y->part) - (x->part < y->part);
}

void lm_parts_free(lm_parts *p)
{
  if (p == NULL) return;
  free(p->files);
  free(p->items);
  free(p->owners);
  free(p);
}

uint64_t lm_parts_fingerprint(const lm_parts *p)
{
  return p->fingerprint;
}

bool lm_parts_repeatable(const lm_parts *p)
{
  return p->repeatable;
}

/* ---- the files ---- */

static lm_status look_at(const char *path, struct file *f, lm_error *err)
{
  struct stat st;
  if (strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
    *f = (struct file){.kind = PIPE};
    return LM_OK;
  }
  lm_source *s;
  LM_TRY(lm_source_open(&s, path, err));
  *f = (struct file){.bytes = (uint64_t)st.st_size,
                     .seconds = (uint64_t)st.st_mtim.tv_sec,
                     .nanoseconds = (uint64_t)st.st_mtim.tv_nsec,
                     .kind = lm_source_is_plain(s) ? PLAIN : PACKED_FILE};
  lm_source_close(s);
  return LM_OK;
}

static lm_status look_at_all(lm_parts *p, lm_error *err)
{
  size_t n = lm_documents_files(p->documents);
  LM_TRY(lm_alloc(&p->files, n, sizeof *p->files, "the sizes of the input files", err));
  for (size_t i = 0; i < n && p->rank == 0; i++) LM_TRY(look_at(lm_documents_file(p->documents, i), &p->files[i], err));
  return LM_OK;
}

static uint64_t hash_text(const char *text, uint64_t h)
{
  return lm_hash_seeded(text, strlen(text) + 1, h);
}

static uint64_t hash_names(const lm_parts *p)
{
  uint64_t h = lm_documents_files(p->documents);
  for (size_t i = 0; i < lm_documents_files(p->documents); i++) h = hash_text(lm_documents_file(p->documents, i), h);
  return h;
}

static void take_fingerprint(lm_parts *p, const lm_documents_config *cfg)
{
  const int64_t numbers[] = {(int64_t)p->part_bytes, cfg->first_bytes, cfg->format, cfg->invalid_utf8};
  size_t n = lm_documents_files(p->documents);
  p->fingerprint = lm_hash_seeded(p->files, n * sizeof *p->files, hash_names(p));
  p->fingerprint = lm_hash_seeded(numbers, sizeof numbers, p->fingerprint);
  p->fingerprint = hash_text(cfg->text_key, p->fingerprint);
  p->fingerprint = hash_text(cfg->separator != NULL ? cfg->separator : "", p->fingerprint);
}

static lm_status share_files(lm_parts *p, const lm_comm *comm, lm_error *err)
{
  uint64_t mine = hash_names(p), first = mine;
  LM_TRY(lm_agree(comm, look_at_all(p, err), err));
  lm_bcast(comm, &first, sizeof first, 0);
  lm_status s = LM_OK;
  if (mine != first)
    s = lm_fail(err, LM_EINVAL,
                "this rank finds %zu input files, and not those of rank 0: all ranks must see the same "
                "input files",
                lm_documents_files(p->documents));
  LM_TRY(lm_agree(comm, s, err));
  lm_bcast(comm, p->files, lm_documents_files(p->documents) * sizeof *p->files, 0);
  return LM_OK;
}

/* ---- the items ---- */

static uint64_t weight(const lm_parts *p, size_t file)
{
  const struct file *f = &p->files[file];
  return f->kind == PACKED_FILE ? PACKED * f->bytes : f->bytes;
}

static lm_status add_item(lm_parts *p, size_t first, size_t count, lm_error *err)
{
  struct item item = {.first = first, .count = count, .parts = 1};
  for (size_t i = first; i < first + count; i++) item.bytes += p->files[i].bytes;
  if (count == 1 && lm_documents_has_records(p->documents, first)) {
    file_kind kind = (file_kind)p->files[first].kind;
    item.parts = kind == PLAIN ? (item.bytes + p->part_bytes - 1) / p->part_bytes : 0;
    if (kind == PLAIN && item.parts == 0) item.parts = 1;
  }
  LM_TRY(lm_grow(&p->items, &p->items_capacity, p->n_items + 1, sizeof *p->items, err));
  p->items[p->n_items++] = item;
  return LM_OK;
}

/* Neighbours that are small together are one item; a pipe, or a file that is cut, is one of its own. */
static lm_status make_items(lm_parts *p, bool in_one, lm_error *err)
{
  size_t n = lm_documents_files(p->documents);
  if (in_one) return add_item(p, 0, n, err);
  for (size_t first = 0, i = 0; i < n; first = i) {
    uint64_t sum = 0;
    while (i < n && p->files[i].kind != PIPE && sum + weight(p, i) <= p->part_bytes) sum += weight(p, i++);
    if (i == first) i++;
    LM_TRY(add_item(p, first, i - first, err));
  }
  return LM_OK;
}

/* ---- who reads what ---- */

struct load {
  uint64_t weight;
  size_t item;
};

static int heaviest_first(const void *a, const void *b)
{
  const struct load *x = a, *y = b;
  return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight)
                                : (x->item > y->item) - (x->item < y->item);
}

static int take(uint64_t *loads, int size, uint64_t more)
{
  int least = 0;
  for (int r = 1; r < size; r++)
    if (loads[r] < loads[least]) least = r;
  loads[least] += more;
  return least;
}

static uint64_t item_weight(const lm_parts *p, const struct item *item)
{
  uint64_t sum = 0;
  for (size_t i = item->first; i < item->first + item->count; i++) sum += weight(p, i);
  return sum;
}

static void assign_whole(lm_parts *p, struct load *order, uint64_t *loads)
{
  uint64_t total = 0;
  size_t n = 0;
  for (size_t i = 0; i < p->n_items; i++) {
    uint64_t w = item_weight(p, &p->items[i]);
    total += w;
    if (p->items[i].parts <= 1) order[n++] = (struct load){w, i};
  }
  if (n > 0) qsort(order, n, sizeof *order, heaviest_first);
  for (size_t k = 0; k < n; k++) {
    struct item *item = &p->items[order[k].item];
    if (p->files[item->first].kind == PIPE) { /* stdin is rank 0's */
      item->owner = 0;
      loads[0] += order[k].weight;
      continue;
    }
    bool shared = p->size > 1 && item->parts == 0 && order[k].weight > total / (uint64_t)p->size / 2;
    item->owner = shared ? IN_TURN : take(loads, p->size, order[k].weight);
    for (int r = 0; shared && r < p->size; r++) loads[r] += order[k].weight / (uint64_t)p->size;
  }
}

static lm_status assign_parts(lm_parts *p, uint64_t *loads, lm_error *err)
{
  for (size_t i = 0; i < p->n_items; i++) {
    struct item *item = &p->items[i];
    if (item->parts <= 1) continue;
    item->owners = p->n_owners;
    LM_TRY(lm_grow(&p->owners, &p->owners_capacity, p->n_owners + item->parts, sizeof *p->owners, err));
    for (uint64_t k = 0; k < item->parts; k++) p->owners[p->n_owners++] = take(loads, p->size, p->part_bytes);
  }
  return LM_OK;
}

static lm_status assign(lm_parts *p, lm_error *err)
{
  uint64_t *loads = NULL;
  struct load *order = NULL;
  lm_status s = lm_alloc(&loads, (size_t)p->size, sizeof *loads, "the loads of the ranks", err);
  if (s == LM_OK) s = lm_alloc(&order, p->n_items, sizeof *order, "the order of the files", err);
  if (s == LM_OK) {
    assign_whole(p, order, loads);
    s = assign_parts(p, loads, err);
  }
  free(loads);
  free(order);
  return s;
}

static bool reads(const lm_parts *p, const struct item *item, uint64_t part)
{
  if (item->parts > 1) return p->owners[item->owners + part] == p->rank;
  return item->owner == IN_TURN ? part % (uint64_t)p->size == (uint64_t)p->rank : item->owner == p->rank;
}

static double share(const lm_parts *p, const struct item *item)
{
  if (item->parts <= 1)
    return item->owner == IN_TURN ? (double)item->bytes / p->size : item->owner == p->rank ? (double)item->bytes : 0;
  double sum = 0;
  for (uint64_t k = 0; k < item->parts; k++) sum += reads(p, item, k) ? (double)p->part_bytes : 0;
  return sum;
}

static lm_status plan_local(lm_parts *p, const lm_documents_config *cfg, lm_error *err)
{
  p->repeatable = true;
  for (size_t i = 0; i < lm_documents_files(p->documents); i++) p->repeatable &= p->files[i].kind != PIPE;
  take_fingerprint(p, cfg);
  LM_TRY(make_items(p, cfg->first_bytes > 0, err));
  LM_TRY(assign(p, err));
  for (size_t i = 0; i < p->n_items; i++) p->all += share(p, &p->items[i]);
  return LM_OK;
}

lm_status lm_parts_plan(lm_parts **out, const lm_comm *comm, lm_documents *d, const lm_documents_config *cfg,
                        uint64_t part_bytes, lm_error *err)
{
  lm_status s = lm_alloc_agreed(comm, out, 1, sizeof **out, "the plan of reading", err);
  if (s == LM_OK) {
    **out = (lm_parts){.documents = d,
                       .part_bytes = part_bytes > 0 ? part_bytes : LM_PART_BYTES,
                       .rank = comm->rank,
                       .size = comm->size};
    s = share_files(*out, comm, err);
  }
  if (s == LM_OK) s = lm_agree(comm, plan_local(*out, cfg, err), err);
  if (s != LM_OK) {
    lm_parts_free(*out);
    *out = NULL;
  }
  return s;
}

/* ---- the walk ---- */

void lm_parts_skip(lm_parts *p, const void *done, size_t n, size_t size, bool (*is_last)(const void *))
{
  p->done = done;
  p->n_done = n;
  p->done_size = size;
  p->is_last = is_last;
}

static const void *find_done(const lm_parts *p, lm_part_id id)
{
  return p->n_done > 0 ? bsearch(&id, p->done, p->n_done, p->done_size, lm_part_order) : NULL;
}

/* Is the item read to its end? Where its parts are not counted beforehand, only its reading tells. */
static bool is_over(const lm_parts *p, const struct item *item)
{
  if (item->parts > 0) return p->part >= item->parts;
  if (p->inside && lm_documents_ended(p->documents)) return true;
  for (uint64_t k = p->part; k-- > 0;) { /* the parts before that were skipped without reading */
    const void *done = find_done(p, (lm_part_id){p->item, k});
    if (done != NULL) return p->is_last(done);
    if (reads(p, item, k)) break;
  }
  return false;
}

static void next_item(lm_parts *p)
{
  p->read += share(p, &p->items[p->item]);
  p->item++;
  p->part = 0;
  p->inside = false;
}

/* All ranks must have the same file: they read different parts of it. */
static lm_status check_size(const lm_parts *p, const struct item *item, lm_error *err)
{
  for (size_t i = item->first; i < item->first + item->count; i++) {
    struct stat st;
    const char *path = lm_documents_file(p->documents, i);
    if (p->files[i].kind == PIPE || stat(path, &st) != 0 || (uint64_t)st.st_size == p->files[i].bytes) continue;
    return lm_fail(err, LM_EINVAL,
                   "%s: has %lld bytes, rank 0 found %" PRIu64 " at the start: all ranks must see the same input files",
                   path, (long long)st.st_size, p->files[i].bytes);
  }
  return LM_OK;
}

lm_status lm_parts_next(lm_parts *p, lm_part_id *id, bool *more, lm_error *err)
{
  while (p->item < p->n_items) {
    const struct item *item = &p->items[p->item];
    if (is_over(p, item)) {
      next_item(p);
      continue;
    }
    *id = (lm_part_id){p->item, p->part++};
    if (item->parts == 0 && item->owner != IN_TURN && item->owner != p->rank) {
      next_item(p);
      continue;
    }
    if (!reads(p, item, id->part) || find_done(p, *id) != NULL) continue;
    if (!p->inside) LM_TRY(check_size(p, item, err));
    p->inside = true;
    *more = true;
    return lm_documents_part(p->documents, item->first, item->count, id->part, p->part_bytes, err);
  }
  *more = false;
  return LM_OK;
}

void lm_parts_progress(const lm_parts *p, double *done, double *all)
{
  *all = p->all;
  *done = p->read;
  if (!p->inside || p->item >= p->n_items) return;
  const struct item *item = &p->items[p->item];
  double part = item->parts > 1 ? (double)p->part / (double)item->parts : 0;
  if (item->parts <= 1 && item->count == 1 && item->bytes > 0)
    part = (double)lm_documents_where(p->documents).position / (double)item->bytes;
  *done += part * share(p, item);
}
