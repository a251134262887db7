/* tests/model/test_generation.c - token by token, with what was read kept, as all at once. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/generation.h"
#include "model/sample.h"
#include "tests/model/fixture.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, V = 257, SLOTS = 20 };

static lm_generation *generation(lm_model *m, int slots)
{
  lm_generation *g;
  lm_error err;
  LM_ASSERT(lm_generation_new(&g, m, slots, T, &err) == LM_OK);
  return g;
}

/* Sequences b of [SLOTS,T] tokens begin with 1 + b % 5 of them. */
static size_t beginning(int b)
{
  return 1 + (size_t)b % 5;
}

/* The furthest that logits of sequences growing side by side are from those of the whole beginnings. */
static double distance_from_whole(lm_model *m, const int32_t *tokens, int B)
{
  static float grown[SLOTS * V], whole[V];
  double worst = 0;
  lm_generation *g = generation(m, SLOTS);
  int slots[SLOTS];
  int32_t next[SLOTS];
  for (int b = 0; b < B; b++) {
    slots[b] = (b + 3) % B;
    lm_generation_begin(g, slots[b], tokens + b * T, beginning(b), grown);
    lm_model_next(m, tokens + b * T, (int)beginning(b), whole);
    worst = fmax(worst, fixture_distance(grown, whole, V));
  }
  for (size_t i = 0; i < 11; i++) {
    for (int b = 0; b < B; b++) next[b] = tokens[(size_t)(b * T) + beginning(b) + i];
    lm_generation_next(g, slots, next, B, grown);
    for (int b = 0; b < B; b++) {
      lm_model_next(m, tokens + b * T, (int)(beginning(b) + i + 1), whole);
      worst = fmax(worst, fixture_distance(grown + (size_t)(b * V), whole, V));
    }
  }
  lm_generation_free(g);
  return worst;
}

/* A sequence's logits, [steps,V], with `beside` others. */
static float *alone_or_not(lm_model *m, const int32_t *tokens, int b, int beside, int steps)
{
  static float all[SLOTS * V];
  float *out = calloc((size_t)(steps * V), sizeof *out);
  lm_generation *g = generation(m, SLOTS);
  int slots[SLOTS];
  int32_t next[SLOTS];
  for (int i = 0; i <= beside; i++) { /* the sequence in question is the last one */
    slots[i] = i;
    lm_generation_begin(g, i, tokens + (b + beside - i) % SLOTS * T, beginning(b + beside - i), all);
  }
  for (int s = 0; s < steps; s++) {
    for (int i = 0; i <= beside; i++) next[i] = tokens[((b + beside - i) * T + s) % (SLOTS * T)];
    lm_generation_next(g, slots, next, beside + 1, all);
    memcpy(out + (size_t)(s * V), all + (size_t)(beside * V), V * sizeof *out);
  }
  lm_generation_free(g);
  return out;
}

static void test_independence(lm_model *m, const int32_t *tokens, const char *what)
{
  enum { STEPS = 40 }; /* beyond the context */
  bool same = true;
  float *alone = alone_or_not(m, tokens, 2, 0, STEPS);
  for (int beside = 1; beside < SLOTS; beside += 6) {
    float *among = alone_or_not(m, tokens, 2, beside, STEPS);
    same = same && memcmp(alone, among, STEPS * V * sizeof *alone) == 0;
    free(among);
  }
  tap_ok(same, "%s: the same bits alone and beside 1, 7, 13, 19 others, also where contexts are full", what);
  free(alone);
}

static void test_slide(lm_model *m, const int32_t *tokens)
{
  static float grown[V], fresh[V];
  const int slot = 0;
  lm_generation *g = generation(m, 1);
  lm_generation_begin(g, 0, tokens, T, grown);
  lm_generation_next(g, &slot, &tokens[T], 1, grown);
  lm_model_next(m, tokens + T / 2 + 1, T / 2, fresh);
  tap_ok(memcmp(grown, fresh, sizeof grown) == 0 && lm_generation_done(g).slides == 1,
         "where the context is full, its last half is the new beginning");
  lm_generation_next(g, &slot, &tokens[T + 1], 1, grown);
  lm_model_next(m, tokens + T / 2 + 1, T / 2 + 1, fresh);
  tap_ok(fixture_distance(grown, fresh, V) < 1e-5, "and goes on from there");
  lm_generation_begin(g, 0, tokens, 2 * T, grown);
  lm_model_next(m, tokens + T, T, fresh);
  tap_ok(memcmp(grown, fresh, sizeof grown) == 0, "of a prompt longer than the context, the end is read");
  lm_generation_free(g);
}

static void test_model(const char *what, lm_model_config cfg, const lm_kernels *k, int32_t end_of_text)
{
  static int32_t tokens[SLOTS * T];
  fixture_tokens(tokens, SLOTS * T, V, 3, false);
  for (int i = 0; i < SLOTS * T; i += 7) tokens[i] = 5;
  lm_model *m = fixture_loaded(&cfg, k, LM_F32, 1, false);
  lm_model_mask_documents(m, end_of_text);
  double far = distance_from_whole(m, tokens, 6);
  tap_ok(far < 1e-5, "%s %s, %s: token by token as all at once, within 1e-5: %.2g", k->name, k->isa, what, far);
  if (k != &lm_kernels_ref) test_independence(m, tokens, what);
  test_slide(m, tokens);
  lm_model_free(m);
}

/* Models of all kinds, on the reference and on each level of the CPU. */
static void test_models(const lm_kernels *k)
{
  lm_model_config llama = fixture_llama(), normed = llama;
  normed.qk_norm = normed.tied = true;
  test_model("GPT-2", fixture_config(true, true), k, -1);
  test_model("GPT-2, untied, no bias, documents", fixture_config(false, false), k, 5);
  test_model("Llama", llama, k, -1);
  test_model("Llama, norms of heads, documents", normed, k, 5);
}

/* 16-bit: the operations are tested alone; that they are put together right shows within their precision. */
static void test_half(const lm_kernels *k)
{
  static int32_t tokens[SLOTS * T];
  fixture_tokens(tokens, SLOTS * T, V, 3, false);
  lm_model_config cfg = fixture_llama();
  lm_model *m = fixture_loaded(&cfg, k, LM_BF16, 1, false);
  double far = distance_from_whole(m, tokens, 6);
  tap_ok(far < 0.05, "%s bf16: token by token as all at once, within 0.05: %.2g", k->name, far);
  test_independence(m, tokens, "bf16");
  lm_model_free(m);
}

/* Rows that pad the vocabulary never speak, whatever is in them. */
static void test_padding(const lm_kernels *k)
{
  static float logits[V], quiet[V];
  static uint32_t order[V];
  lm_model_config cfg = fixture_config(false, true);
  lm_model *m = fixture_loaded(&cfg, k, LM_F32, 1, false);
  const lm_param *head = lm_param_find(lm_model_params(m), "head/weight");
  lm_generation *g = generation(m, 1);
  const int32_t begin[] = {1, 2, 3};
  const int slot = 0;
  lm_generation_begin(g, 0, begin, 3, quiet);
  float *w = (float *)lm_model_weights(m) + head->offset;
  for (size_t i = V * 32; i < (size_t)lm_model_padded_vocab(&cfg) * 32; i++) w[i] = 1e6f;
  lm_generation_begin(g, 0, begin, 3, logits);
  tap_ok(memcmp(logits, quiet, sizeof logits) == 0, "padded rows of 1e6 change no logit");
  bool inside = true;
  for (uint64_t i = 0; i < 200; i++) {
    const lm_sampling how = {.temperature = 5, .top_p = 1, .seed = 9};
    uint32_t id = lm_sample(&how, logits, order, V, i);
    inside = inside && id < V;
    lm_generation_next(g, &slot, &(int32_t){(int32_t)id}, 1, logits);
  }
  tap_ok(inside, "and are never chosen");
  lm_generation_free(g);
  lm_model_free(m);
}

int main(int argc, char **argv)
{
  static const char *const levels[] = {"portable", "x86-64", "x86-64-v3", "x86-64-v4"};
  lm_comm comm;
  lm_error err;
  const lm_kernels *cpu;
  tap_begin(&comm, argc, argv);
  omp_set_num_threads(2);
  test_models(&lm_kernels_ref);
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    setenv("MPILM_ISA", levels[i], 1);
    if (lm_kernels_select(&cpu, LM_BACKEND_CPU, &err) != LM_OK) continue;
    test_models(cpu);
    test_half(cpu);
    test_padding(cpu);
  }
  return tap_end();
}
