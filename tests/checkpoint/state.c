/* tests/checkpoint/state.c - a small state whose every element is known, cut over ranks anywhere. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/checkpoint/state.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  lm_dtype dtype;
  int ndim;
  size_t shape[LM_STATE_DIMS];
} table[STATE_TENSORS] = {
    {"/model/embedding/weight", LM_BF16, 2, {61, 7}},
    {"/model/layers/0/attention/qkv/weight", LM_BF16, 2, {24, 8}},
    {"/model/layers/0/attention/qkv/bias", LM_F32, 1, {24}},
    {"/model/layers/0/norm/weight", LM_F32, 1, {1}},
    {"/model/layers/0/empty", LM_F32, 2, {0, 8}},
    {"/optimizer/exp_avg/layers/0/attention/qkv/weight", LM_F32, 4, {2, 3, 5, 7}},
    {"/progress/step", LM_U64, 0, {0}},
    {"/rng/counters", LM_U64, 1, {5}},
    {"/config", LM_TEXT, 1, {26}},
    {"/provenance/program", LM_TEXT, 1, {0}},
};

static size_t elements(const lm_state_slice *s)
{
  size_t n = 1;
  for (int i = 0; i < s->ndim; i++) n *= s->shape[i];
  return n;
}

/* 32 bits that depend on everything. */
static uint32_t word(unsigned version, size_t tensor, size_t element)
{
  uint32_t out[4];
  const uint32_t counter[4] = {(uint32_t)element, (uint32_t)tensor, version, 0}, key[2] = {1, 2};
  lm_philox4x32(counter, key, out);
  return out[0];
}

/* The bytes of an element. */
static void value(unsigned version, size_t tensor, size_t element, lm_dtype dtype, char out[8])
{
  uint32_t w = word(version, tensor, element);
  float f = (float)(int32_t)w / 65536.0f;
  lm_bf16 b = lm_bf16_from_f32(f);
  uint64_t u = (uint64_t)w << 20 | version;
  if (dtype == LM_F32) memcpy(out, &f, sizeof f);
  if (dtype == LM_BF16) memcpy(out, &b, sizeof b);
  if (dtype == LM_U64) memcpy(out, &u, sizeof u);
  if (dtype == LM_TEXT) *out = (char)('a' + (element + version) % 26);
}

/* Where rank r's part of n elements begins, for r in [0, size]. */
static size_t cut_at(size_t n, int r, int size, unsigned cut, size_t tensor)
{
  if (r == 0 || r == size) return r == 0 ? 0 : n;
  if (cut % 3 == 0) return n * (size_t)r / (size_t)size;             /* even */
  if (cut % 3 == 1) return r > (int)(tensor % (size_t)size) ? n : 0; /* one rank has all of it */
  size_t at[64];
  for (int i = 1; i < size; i++) at[i] = word(cut, tensor, (size_t)i) % (n + 1);
  for (int i = 1; i < size; i++) /* a few numbers, in order */
    for (int j = i + 1; j < size; j++)
      if (at[j] < at[i]) {
        size_t x = at[i];
        at[i] = at[j];
        at[j] = x;
      }
  return at[r];
}

void state_new(lm_state_slice out[STATE_TENSORS], const lm_comm *comm, unsigned cut, unsigned version)
{
  for (size_t t = 0; t < STATE_TENSORS; t++) {
    lm_state_slice *s = &out[t];
    *s = (lm_state_slice){.dtype = table[t].dtype, .ndim = table[t].ndim};
    snprintf(s->name, sizeof s->name, "%s", table[t].name);
    memcpy(s->shape, table[t].shape, sizeof s->shape);
    size_t n = elements(s), width = lm_dtype_size(s->dtype);
    s->begin = cut_at(n, comm->rank, comm->size, cut, t);
    s->count = cut_at(n, comm->rank + 1, comm->size, cut, t) - s->begin;
    s->data = calloc(s->count + 1, width);
    for (size_t i = 0; i < s->count; i++) {
      char bytes[8];
      value(version, t, s->begin + i, s->dtype, bytes);
      memcpy((char *)s->data + i * width, bytes, width);
    }
  }
}

void state_free(lm_state_slice s[STATE_TENSORS])
{
  for (size_t t = 0; t < STATE_TENSORS; t++) free(s[t].data);
}

void state_clear(lm_state_slice s[STATE_TENSORS])
{
  for (size_t t = 0; t < STATE_TENSORS; t++) memset(s[t].data, 0xff, s[t].count * lm_dtype_size(s[t].dtype));
}

bool state_is(const lm_state_slice s[STATE_TENSORS], unsigned version)
{
  for (size_t t = 0; t < STATE_TENSORS; t++) {
    size_t width = lm_dtype_size(s[t].dtype);
    for (size_t i = 0; i < s[t].count; i++) {
      char want[8];
      value(version, t, s[t].begin + i, s[t].dtype, want);
      if (memcmp((char *)s[t].data + i * width, want, width) != 0) return false;
    }
  }
  return true;
}

lm_status state_write(const lm_comm *comm, const char *path, const lm_state_slice *slices, size_t n, lm_error *err)
{
  lm_state_save *save;
  LM_TRY(lm_state_write_begin(&save, comm, path, slices, n, &(lm_state_how){0}, err));
  return lm_state_write_end(save, err);
}

bool state_ranks(const lm_comm *comm, int n, lm_comm *out)
{
  *out = *comm;
  MPI_Comm_split(comm->mpi, comm->rank < n ? 0 : MPI_UNDEFINED, comm->rank, &out->mpi);
  out->size = n;
  return comm->rank < n;
}
