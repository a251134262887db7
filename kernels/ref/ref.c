/* kernels/ref/ref.c - the reference backend: the definition of every operation. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/kernels.h"

const lm_kernels lm_kernels_ref = {.name = "ref", .isa = "C"};
