/* tests/model/test_sample.c - the choice of a token: as often as its probability says, and never outside. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/sample.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

enum { V = 7, DRAWS = 20000 };
static const float logits_of[V] = {1, -1, 2.5f, 0, 2.5f, -30, 1.5f};

static uint32_t draw(const lm_sampling *how, uint64_t position)
{
  float logits[V];
  uint32_t order[V];
  memcpy(logits, logits_of, sizeof logits);
  return lm_sample(how, logits, order, V, position);
}

/* Shares of DRAWS draws against softmax(logits / temperature) over the tokens of `keep`: the largest difference in
 * standard deviations. Infinite where another token was drawn. */
static double deviation(const lm_sampling *how, const bool keep[V])
{
  double p[V], sum = 0, worst = 0;
  int count[V] = {0};
  for (int v = 0; v < V; v++) sum += p[v] = keep[v] ? exp((double)logits_of[v] / how->temperature) : 0;
  for (uint64_t i = 0; i < DRAWS; i++) count[draw(how, i)]++;
  for (int v = 0; v < V; v++) {
    double q = p[v] / sum, sigma = sqrt(DRAWS * q * (1 - q));
    if (count[v] > 0 && !keep[v]) return INFINITY;
    worst = fmax(worst, sigma > 0.1 ? fabs(count[v] - DRAWS * q) / sigma : 0);
  }
  return worst;
}

static void test_shares(void)
{
  static const struct {
    lm_sampling how;
    bool keep[V];
    const char *what;
  } cases[] = {
      {{.temperature = 1, .top_p = 1, .seed = 1}, {1, 1, 1, 1, 1, 1, 1}, "all"},
      {{.temperature = 0.5, .top_p = 1, .seed = 2}, {1, 1, 1, 1, 1, 1, 1}, "temperature 0.5"},
      {{.temperature = 3, .top_p = 1, .seed = 3}, {1, 1, 1, 1, 1, 1, 1}, "temperature 3"},
      {{.temperature = 1, .top_p = 1, .top_k = 3, .seed = 4}, {0, 0, 1, 0, 1, 0, 1}, "top-k 3"},
      {{.temperature = 1, .top_p = 1, .top_k = 1, .seed = 5}, {0, 0, 1, 0, 0, 0, 0}, "top-k 1: the lower id of equals"},
      {{.temperature = 1, .top_p = 1, .top_k = 99, .seed = 6}, {1, 1, 1, 1, 1, 1, 1}, "top-k above the vocabulary"},
      /* of the probability: 0.365 each for 2 and 4, 0.134 for 6, 0.081 for 0, 0.03 for 3 */
      {{.temperature = 1, .top_p = 0.7, .seed = 7}, {0, 0, 1, 0, 1, 0, 0}, "top-p 0.7: two hold 0.73"},
      {{.temperature = 1, .top_p = 0.75, .seed = 8}, {0, 0, 1, 0, 1, 0, 1}, "top-p 0.75: three"},
      {{.temperature = 1, .top_p = 1e-9, .seed = 9}, {0, 0, 1, 0, 0, 0, 0}, "top-p near 0: one"},
      {{.temperature = 1, .top_p = 0.8, .top_k = 3, .seed = 10}, {0, 0, 1, 0, 1, 0, 0}, "top-p of what top-k leaves"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double far = deviation(&cases[i].how, cases[i].keep);
    tap_ok(far < 4.5, "%s: %.2f standard deviations from softmax", cases[i].what, far);
  }
}

static void test_choice(void)
{
  bool likeliest = true, repeats = true, differs = false;
  for (uint64_t seed = 1; seed < 50; seed++) {
    const lm_sampling greedy = {.temperature = 0, .top_p = 1, .seed = seed},
                      some = {.temperature = 1, .top_p = 1, .seed = seed},
                      other = {.temperature = 1, .top_p = 1, .seed = seed + 1};
    likeliest = likeliest && draw(&greedy, seed) == 2;
    repeats = repeats && draw(&some, 3) == draw(&some, 3);
    differs = differs || draw(&some, 3) != draw(&other, 3);
  }
  tap_ok(likeliest, "temperature 0: the likeliest for every seed, the lowest id of equals");
  tap_ok(repeats && differs, "a seed fixes the choice");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_shares();
  test_choice();
  return tap_end();
}
