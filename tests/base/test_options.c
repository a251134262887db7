/* tests/base/test_options.c - options from words and from YAML: values, ranges, nearest names. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "base/options.h"
#include "tests/tap.h"

#include <string.h>
#include <unistd.h>

struct target {
  bool tied;
  int64_t steps;
  double lr, decay;
  const char *folder;
  int precision;
  lm_list files;
};

static const lm_option table[] = {
  {"model.tied", LM_OPT_BOOL, offsetof(struct target, tied), "true", NULL, NULL, "share the embedding with the head"},
  {"optim.steps", LM_OPT_INT, offsetof(struct target, steps), "10", "[1, inf)", "steps", "how many"},
  {"optim.lr", LM_OPT_FLOAT, offsetof(struct target, lr), "6e-4", "(0, 1)", NULL, "learning rate"},
  {"optim.weight_decay", LM_OPT_FLOAT, offsetof(struct target, decay), "0.1", "[0, inf)", NULL, "decay"},
  {"run.folder", LM_OPT_STRING, offsetof(struct target, folder), "", NULL, NULL, "where it goes"},
  {"precision", LM_OPT_CHOICE, offsetof(struct target, precision), "auto", "f32|bf16|auto", NULL, "compute type"},
  {"data.train", LM_OPT_LIST, offsetof(struct target, files), "", NULL, NULL, "files"},
};
enum { N = sizeof table / sizeof table[0] };

static struct target v;
static lm_options *o;
static lm_error err;

static lm_status set(const char *name, const char *value)
{
  return lm_options_set(o, name, value, LM_FROM_COMMAND_LINE, "command line", &err);
}

static void values(void)
{
  static const char *const no[] = {"False", "0", "no", "off"}, *const bad_ints[] = {"10.5", "0x10", "3abc", "", "1,5",
                                                                                    "99999999999999999999", "-5", "0",
                                                                                    "nan", " 7", "_1", "1__0"};
  static const char *const bad_rates[] = {"-1", "nan", "inf", "1e-3x", "1", "0", "1e999", "0x1p-3", ""};
  for (int i = 0; i < 4; i++) tap_ok(set("model.tied", no[i]) == LM_OK && !v.tied, "'%s' is false", no[i]);
  tap_ok(set("model.tied", "maybe") == LM_EINVAL && strstr(err.text, "model.tied is 'maybe'"), "'maybe' is no boolean");
  tap_ok(set("optim.steps", "1e3") == LM_OK && v.steps == 1000, "1e3 is 1000");
  tap_ok(set("optim.steps", "1_000") == LM_OK && v.steps == 1000, "1_000 is 1000");
  for (size_t i = 0; i < sizeof bad_ints / sizeof bad_ints[0]; i++)
    tap_ok(set("optim.steps", bad_ints[i]) == LM_EINVAL && strstr(err.text, "[1, inf)") && v.steps == 1000,
           "'%s' is no step count, and the range is shown", bad_ints[i]);
  tap_ok(set("optim.lr", ".5") == LM_OK && v.lr == 0.5, ".5 is a number");
  for (size_t i = 0; i < sizeof bad_rates / sizeof bad_rates[0]; i++)
    tap_ok(set("optim.lr", bad_rates[i]) == LM_EINVAL && v.lr == 0.5, "'%s' is no learning rate", bad_rates[i]);
  tap_ok(set("precision", "bf16") == LM_OK && v.precision == 1, "a word of the list");
  tap_ok(set("precision", "bf") == LM_EINVAL && strstr(err.text, "f32|bf16|auto"), "half a word is refused");
}

static void names(void)
{
  tap_ok(set("optim.weigth_decay", "1") == LM_EINVAL && strstr(err.text, "did you mean 'optim.weight_decay'?"),
         "a slip is mended");
  tap_ok(set("lr", "1") == LM_EINVAL && strstr(err.text, "did you mean 'optim.lr'?"), "a forgotten section is found");
  tap_ok(set("optim.zzzzzzzzzz", "1") == LM_EINVAL && strstr(err.text, "section 'optim' has: steps, lr, weight_decay"),
         "a far-off name lists its section");
}

static lm_status yaml(const char *text)
{
  lm_error ignored;
  lm_options_free(o);
  lm_status s = lm_options_new(&o, table, N, &v, &ignored);
  if (s == LM_OK) s = lm_file_replace("test_options.yaml", text, strlen(text), &err);
  if (s == LM_OK) s = lm_options_read_yaml(o, "test_options.yaml", &err);
  return s;
}

static void files(void)
{
  tap_ok(yaml("model:\n  tied: no\noptim: {lr: 1e-3, steps: 7}\ndata:\n  train: [a.h5, 'b c.h5']\nprecision: f32\n") ==
             LM_OK && !v.tied && v.lr == 1e-3 && v.steps == 7 && v.files.count == 2 &&
           strcmp(v.files.items[1], "b c.h5") == 0 && v.precision == 0, "a config is read");
  tap_ok(set("optim.lr", "2e-3") == LM_OK && v.lr == 2e-3, "the command line beats the file");
  tap_ok(lm_options_set(o, "optim.lr", "0.3", LM_FROM_PRESET, "preset", &err) == LM_OK && v.lr == 2e-3,
         "a preset beats neither");
  lm_buffer text = {0};
  struct target before = v;
  tap_ok(lm_options_write_yaml(o, &text, &err) == LM_OK && yaml(text.data) == LM_OK && v.lr == before.lr &&
           v.steps == 7 && v.files.count == 2 && strcmp(v.files.items[1], "b c.h5") == 0,
         "what is written is read back to the same values");
  lm_buffer_free(&text);
  tap_ok(yaml("optim:\n  lr: 1e-3\n  weigth_decay: 0.1\n") == LM_EINVAL &&
           strstr(err.text, "test_options.yaml:3: unknown option 'optim.weigth_decay'; did you mean"),
         "an unknown key: file, line, nearest");
  tap_ok(yaml("optim:\n  lr: 1e-3\n  lr: 2e-3\n") == LM_EINVAL && strstr(err.text, "test_options.yaml:3") &&
           strstr(err.text, "second time"), "a key twice");
  tap_ok(yaml("optim:\n  lr: 1e-3\noptim.lr: 2e-3\n") == LM_EINVAL &&
           strstr(err.text, "test_options.yaml:3: optim.lr stands here for the second time, first in test_options.yaml:2"),
         "a key twice, in its section and with its whole name");
  tap_ok(yaml("optim:\n  lr: 1e-3\n---\noptim:\n  lr: 2e-3\n") == LM_EINVAL &&
           strstr(err.text, "test_options.yaml:4: a second document"), "a second document");
  tap_ok(yaml("optim:\n  lr: 1e-3\n---\noptim: [\n") == LM_EINVAL && strstr(err.text, "not YAML"), "which is not YAML");
  tap_ok(yaml("---\noptim:\n  lr: 1e-3\n...\n") == LM_OK && v.lr == 1e-3, "marks around one document");
  tap_ok(yaml("optim: 3\n") == LM_EINVAL, "a section that is a number");
  tap_ok(yaml("optim: [\n") == LM_EINVAL && strstr(err.text, "not YAML"), "not YAML");
  tap_ok(yaml("- a\n") == LM_EINVAL, "a list is no config");
  tap_ok(yaml("") == LM_OK && v.lr == 6e-4, "an empty file leaves the defaults");
  tap_ok(lm_options_read_yaml(o, "missing.yaml", &err) == LM_EINVAL && strstr(err.text, "missing.yaml"),
         "a missing file is named");
  unlink("test_options.yaml");
}

static void words(void)
{
  char *argv[] = {"--optim.lr=1e-4", "in.txt", "--model.tied", "False", "--optim.steps", "5", "-", "--data.train=a,b",
                  "--data.train=c", "--", "--x"};
  lm_options_free(o);
  tap_ok(lm_options_new(&o, table, N, &v, &err) == LM_OK && lm_options_parse(o, 11, argv, &err) == LM_OK,
         "a command line is parsed");
  tap_ok(v.lr == 1e-4 && !v.tied && v.steps == 5 && v.files.count == 3 && strcmp(v.files.items[2], "c") == 0,
         "values with = and without");
  const lm_list *rest = lm_options_words(o);
  tap_ok(rest->count == 3 && strcmp(rest->items[0], "in.txt") == 0 && strcmp(rest->items[1], "-") == 0 &&
           strcmp(rest->items[2], "--x") == 0,
         "and what is left");
  char many[2 * 300 + 16] = "--data.train=";
  for (int i = 0; i < 300; i++) strcat(many, "f,");
  char *argument[] = {many};
  lm_options_free(o);
  tap_ok(lm_options_new(&o, table, N, &v, &err) == LM_OK && lm_options_parse(o, 1, argument, &err) == LM_OK &&
           v.files.count == 300 && strcmp(v.files.items[299], "f") == 0, "a list of 300");
  char *lone[] = {"--optim.lr"}, *dash[] = {"-x"};
  tap_ok(lm_options_parse(o, 1, lone, &err) == LM_EINVAL && strstr(err.text, "needs a value"), "no value");
  tap_ok(lm_options_parse(o, 1, dash, &err) == LM_EINVAL, "a letter is no option");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  tap_ok(lm_options_new(&o, table, N, &v, &err) == LM_OK && v.tied && v.steps == 10 && v.lr == 6e-4 &&
           v.precision == 2 && v.files.count == 0, "defaults");
  values();
  names();
  files();
  words();
  lm_options_free(o);
  return tap_end();
}
