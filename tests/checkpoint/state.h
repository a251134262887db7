/* tests/checkpoint/state.h - a small state whose every element is known, cut over ranks anywhere. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_CHECKPOINT_STATE_H
#define LM_TESTS_CHECKPOINT_STATE_H

#include "hdf5/state_file.h"
#include <stdbool.h>

enum { STATE_TENSORS = 10 };

/** Slices of this rank, filled with the elements of `version`; other versions differ in every element. Local.
 *  cut chooses where tensors are cut: the same number on all ranks; each cut gives some rank nothing of some tensor. */
void state_new(lm_state_slice out[STATE_TENSORS], const lm_comm *comm, unsigned cut, unsigned version);
void state_free(lm_state_slice s[STATE_TENSORS]);

/** Overwrite with what no version has. Local. */
void state_clear(lm_state_slice s[STATE_TENSORS]);

/** Does every element of this rank have its value? Local. */
bool state_is(const lm_state_slice s[STATE_TENSORS], unsigned version);

/** Write a state file, with no thread. Collective; as lm_state_write_begin() and lm_state_write_end(). */
lm_status state_write(const lm_comm *comm, const char *path, const lm_state_slice *slices, size_t n,
                      lm_error *err) LM_NODISCARD;

/** The first n ranks of comm as a communicator of their own; false on the others. Collective over comm. */
bool state_ranks(const lm_comm *comm, int n, lm_comm *out);

#endif
