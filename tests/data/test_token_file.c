/* tests/data/test_token_file.c - what is written is what is read; one rank that fails takes all along; no foreign file.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/dataset.h"
#include "tests/data/token_data.h"

#include <errno.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/stat.h>

static lm_comm comm;
static char folder[64], path[128];
static const uint32_t ids[] = {5, 6, 9, 1, 2, 3, 9, 9, 4, 9};
enum { N = sizeof ids / sizeof ids[0] };

static lm_token_info base_info(void)
{
  return (lm_token_info){.vocab_size = 10, .end_of_text = 9, .vocab_fingerprint = 0x123456789abcdef0, .sources = "a b"};
}

static lm_status open_one(const char *p, lm_error *err)
{
  lm_dataset *d;
  lm_status s = lm_dataset_open(&d, p, err);
  if (s == LM_OK) s = lm_dataset_verify(d, err);
  lm_dataset_close(d);
  return s;
}

static bool is_same(const lm_token_info *a, const lm_token_info *b)
{
  return a->tokens == b->tokens && a->documents == b->documents && a->vocab_size == b->vocab_size &&
         a->end_of_text == b->end_of_text && a->begins_documents == b->begins_documents &&
         a->begin_of_text == b->begin_of_text && a->vocab_fingerprint == b->vocab_fingerprint &&
         a->checksum == b->checksum && a->width == b->width && a->offset == b->offset &&
         a->document_offset == b->document_offset && strcmp(a->sources, b->sources) == 0;
}

static void check_round_trip(void)
{
  lm_error err = {0};
  lm_token_info info = base_info(), got;
  tap_ok(write_tokens(&comm, path, ids, N, &info, &err) == LM_OK, "a dataset is written%s", err.text);
  tap_ok(lm_token_file_info(path, &got, &err) == LM_OK, "and described%s", err.text);
  tap_ok(is_same(&got, &info), "with what was given");
  info.begins_documents = true;
  info.begin_of_text = 8;
  tap_ok(write_tokens(&comm, path, ids, N, &info, &err) == LM_OK && lm_token_file_info(path, &got, &err) == LM_OK &&
             is_same(&got, &info),
         "and with a token that opens documents");
  tap_ok(got.tokens == 10 && got.documents == 4 && got.width == 2, "10 tokens of 2 bytes, 4 documents");
  tap_ok(open_one(path, &err) == LM_OK, "it verifies%s", err.text);
  uint16_t raw[N] = {0};
  int fd = open(path, O_RDONLY);
  tap_ok(pread(fd, raw, sizeof raw, got.offset) == sizeof raw && raw[0] == 5 && raw[N - 1] == 9,
         "its ids lie at the offset");
  close(fd);
  info.vocab_size = 65537;
  uint32_t wide[3] = {65536, 1, 9};
  uint32_t back = 0;
  tap_ok(write_tokens(&comm, path, wide, 3, &info, &err) == LM_OK, "a dataset of wide ids replaces it");
  tap_ok(lm_token_file_info(path, &got, &err) == LM_OK && got.width == 4, "4 bytes an id");
  fd = open(path, O_RDONLY);
  tap_ok(pread(fd, &back, 4, got.offset) == 4 && back == 65536, "id 65536 does not wrap");
  close(fd);
  tap_ok(lm_token_width(65536) == 2 && lm_token_width(65537) == 4, "65536 ids fit into 16 bits, 65537 do not");
}

/* One rank alone fails: all ranks return its failure, and no file is left. */
static void check_one_rank_fails(void)
{
  char part[4096], target[128], nowhere[160], *endless = malloc(5000);
  lm_error err = {0};
  snprintf(target, sizeof target, "%s/none.h5", folder);
  snprintf(nowhere, sizeof nowhere, "%s/missing/none.h5", folder);
  memset(endless, 'x', 4999);
  endless[4999] = '\0';
  for (int bad = 0; bad < comm.size; bad++) {
    bool me = comm.rank == bad;
    lm_token_info info = base_info();
    info.tokens = info.documents = me ? 0 : 3;
    tap_alone(lm_token_file_create, bad, lm_token_file_create(&comm, target, &info, part, &err), LM_EINVAL, &err,
              "0 tokens in 0 documents");
    info.tokens = info.documents = 3;
    tap_alone(lm_token_file_create, bad, lm_token_file_create(&comm, me ? endless : target, &info, part, &err),
              LM_EINVAL, &err, "long");
    snprintf(part, sizeof part, "%s.part", target);
    tap_ok(!lm_file_exists(target) && !lm_file_exists(part), "no file is left");
  }
  lm_token_info info = base_info();
  info.tokens = info.documents = 3;
  tap_alone(lm_token_file_create, 0, lm_token_file_create(&comm, nowhere, &info, part, &err), LM_EINVAL, &err, nowhere);
  tap_ok(lm_token_file_create(&comm, target, &info, part, &err) == LM_OK, "laid out");
  lm_status s = lm_token_file_commit(&comm, comm.rank == 0 ? nowhere : part, target, &info, &err);
  tap_alone(lm_token_file_commit, 0, s, LM_EIO, &err, nowhere);
  tap_ok(!lm_file_exists(target), "nothing has the final name");
  tap_ok(lm_token_file_commit(&comm, part, comm.rank == 0 ? nowhere : target, &info, &err) == LM_EINVAL &&
             !lm_file_exists(target) && !lm_file_exists(part),
         "commit: no folder to rename into; no file is left");
  free(endless);
}

/* Write bytes to a file in the folder, and see how opening it fails. */
static void check_bytes(const char *name, const void *bytes, size_t n, lm_status want, const char *words)
{
  char p[192];
  lm_error err = {0};
  snprintf(p, sizeof p, "%s/%s", folder, name);
  if (comm.rank == 0 && lm_file_replace(p, bytes, n, &err) != LM_OK) abort();
  lm_barrier(&comm);
  lm_status s = open_one(p, &err);
  tap_ok(s == want && strstr(err.text, words) != NULL && strstr(err.text, p) != NULL, "%s: %s", name, err.text);
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(p);
}

/* Change one attribute of a copy, as another program would, and see how opening it fails. */
static void check_attribute(const lm_buffer *file, const char *attribute, uint64_t value, lm_status want,
                            const char *words)
{
  char p[192];
  lm_error err = {0};
  snprintf(p, sizeof p, "%s/changed-%s.h5", folder, attribute);
  if (comm.rank == 0) {
    if (lm_file_replace(p, file->data, file->size, &err) != LM_OK) abort();
    hid_t f = H5Fopen(p, H5F_ACC_RDWR, H5P_DEFAULT), a = H5Aopen(f, attribute, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_UINT64, &value);
    H5Aclose(a);
    H5Fclose(f);
  }
  lm_barrier(&comm);
  lm_status s = open_one(p, &err);
  tap_ok(s == want && strstr(err.text, words) != NULL && strstr(err.text, p) != NULL, "%s: %s", attribute, err.text);
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(p);
}

static void check_foreign_files(void)
{
  lm_error err = {0};
  lm_buffer good = {0};
  lm_token_info info = base_info();
  if (write_tokens(&comm, path, ids, N, &info, &err) != LM_OK || lm_file_read(path, &good, &err) != LM_OK) abort();
  check_bytes("text.h5", "a text, not a dataset\n", 22, LM_EINVAL, "not an HDF5 file");
  check_bytes("empty.h5", "", 0, LM_EDAMAGED, "truncated");
  check_bytes("short.h5", good.data, 96, LM_EDAMAGED, "truncated file: eof = 96");
  check_bytes("shorter.h5", good.data, good.size - 8, LM_EDAMAGED, "truncated");
  check_attribute(&good, "version", 2, LM_EINVAL, "version 2");
  check_attribute(&good, "complete", 0, LM_EINVAL, "not complete");
  check_attribute(&good, "checksum", 7, LM_EDAMAGED, "checksum");
  check_attribute(&good, "tokens", 11, LM_EDAMAGED, "11");
  check_attribute(&good, "vocab_size", 8, LM_EDAMAGED, "end_of_text");
  check_attribute(&good, "end_of_text", 8, LM_EDAMAGED, "closed by id 9");
  uint16_t id = 60000;
  memcpy(good.data + info.offset + 2 * 4, &id, 2);
  check_bytes("id.h5", good.data, good.size, LM_EDAMAGED, "token 4 is id 60000");
  id = 3;
  memcpy(good.data + info.offset + 2 * 4, &id, 2);
  check_bytes("bit.h5", good.data, good.size, LM_EDAMAGED, "checksum");
  uint64_t end = 2;
  memcpy(good.data + info.document_offset + 8, &end, 8);
  check_bytes("ends.h5", good.data, good.size, LM_EDAMAGED, "document 1 ends at 2");
  lm_buffer_free(&good);
  tap_ok(open_one(folder, &err) == LM_EINVAL && strstr(err.text, "is a folder") != NULL, "a folder: %s", err.text);
  tap_ok(open_one("/nowhere/x.h5", &err) == LM_EINVAL && strstr(err.text, "/nowhere/x.h5") != NULL, "%s", err.text);
  char p[192];
  snprintf(p, sizeof p, "%s/other.h5", folder);
  if (comm.rank == 0) H5Fclose(H5Fcreate(p, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  lm_barrier(&comm);
  tap_ok(open_one(p, &err) == LM_EINVAL && strstr(err.text, "mpilm tokens") != NULL, "%s", err.text);
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(p);
}

/* Readers never wait for readers; a file that another program writes is refused with words. */
static void check_locks(void)
{
  lm_error err = {0};
  int fd = open(path, O_RDONLY);
  tap_ok(flock(fd, LOCK_SH | LOCK_NB) == 0 && open_one(path, &err) == LM_OK, "a reader beside a reader%s", err.text);
  lm_barrier(&comm);
  bool locked = comm.rank != 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (comm.rank != 0) close(fd);
  lm_barrier(&comm);
  if (comm.rank == 0) locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  lm_barrier(&comm);
  tap_ok(locked && open_one(path, &err) == LM_EINVAL && strstr(err.text, "HDF5_USE_FILE_LOCKING") != NULL &&
             strstr(err.text, path) != NULL,
         "%s", err.text);
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
  tap_ok(open_one(path, &err) == LM_OK, "unless the user says that locks mean nothing");
  unsetenv("HDF5_USE_FILE_LOCKING");
  lm_barrier(&comm);
  if (comm.rank == 0) close(fd);
  if (comm.rank == 0) chmod(path, 0444);
  lm_barrier(&comm);
  tap_ok(open_one(path, &err) == LM_OK, "a read-only file is fine%s", err.text);
}

int main(int argc, char **argv)
{
  tap_begin(&comm, argc, argv);
  scratch_folder(&comm, folder);
  snprintf(path, sizeof path, "%s/tokens.h5", folder);
  check_round_trip();
  check_one_rank_fails();
  check_foreign_files();
  check_locks();
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(path);
  tap_ok(comm.rank != 0 || rmdir(folder) == 0, "no file is left behind");
  return tap_end();
}
