/* src/command/info.c - mpilm info: what this binary is made of, and what the machine offers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"
#include "config.h"
#include "hdf5/library.h"
#include "kernels/kernels.h"
#include "train/backend.h"
#include "train/run_config.h"

#include <jansson.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct info_options {
  bool json, parameters, devices;
};

static const lm_option options[] = {
    {"json", LM_OPT_BOOL, offsetof(struct info_options, json), "false", NULL, NULL, "print one JSON object"},
    {"parameters", LM_OPT_BOOL, offsetof(struct info_options, parameters), "false", NULL, NULL,
     "print every key of a config as Markdown: doc/parameters.md"},
    {"devices", LM_OPT_BOOL, offsetof(struct info_options, devices), "false", NULL, NULL,
     "list the GPUs that --backend=cuda can use"},
};

enum { MOST = 64 };

/* What --backend=auto takes here, k being the CPU's. */
static void describe_backend(json_t *info, const lm_kernels *k)
{
  lm_error why;
  int n = 0;
  char isa[16];
  static lm_cuda_device list[MOST];
  json_object_set_new(info, "backend", json_string(k->name));
  json_object_set_new(info, "isa", json_string(k->isa));
  if (lm_backend_auto(&why) != LM_BACKEND_CUDA || lm_cuda_devices(list, MOST, &n, &why) != LM_OK) return;
  double rate = list[0].rate;
  for (int i = 1; i < n && i < MOST; i++) rate = list[i].rate < rate ? list[i].rate : rate;
  snprintf(isa, sizeof isa, "sm_%d%d", list[0].major, list[0].minor);
  json_object_set_new(info, "backend", json_string("cuda"));
  json_object_set_new(info, "isa", json_string(isa));
  json_object_set_new(info, "devices", json_integer(n));
  json_object_set_new(info, "device_bf16_tflops", json_integer((json_int_t)(rate * 1e-12 + 0.5)));
}

static json_t *gather(const lm_kernels *k)
{
  char hdf5[128], mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int n;
  lm_hdf5_version(hdf5, sizeof hdf5);
  MPI_Get_library_version(mpi, &n);
  mpi[strcspn(mpi, "\n,")] = '\0';
  json_t *info =
      json_pack("{s:s, s:s, s:b, s:s, s:b, s:i, s:i, s:b}", "version", PACKAGE_VERSION, "hdf5", hdf5, "hdf5_parallel",
                lm_hdf5_is_parallel(), "mpi", mpi, "bf16_is_fast", lm_cpu_bf16_is_fast(), "cores",
                (int)sysconf(_SC_NPROCESSORS_ONLN), "threads", omp_get_max_threads(), "cuda", LM_HAVE_CUDA);
  if (info != NULL) describe_backend(info, k);
  return info;
}

static void print_table(json_t *info)
{
  const char *key;
  json_t *value;
  json_object_foreach(info, key, value)
  {
    if (json_is_string(value))
      printf("%-19s %s\n", key, json_string_value(value));
    else if (json_is_boolean(value))
      printf("%-19s %s\n", key, json_is_true(value) ? "yes" : "no");
    else
      printf("%-19s %lld\n", key, (long long)json_integer_value(value));
  }
}

static lm_status print_parameters(lm_error *err)
{
  lm_buffer text = {0};
  lm_status s = lm_options_write_markdown(lm_config_options, lm_options_count(lm_config_options), &text, err);
  if (s == LM_OK)
    printf(
        "# Parameters\n\nEvery key of a config file; on the command line `--key=value`, which beats the file. Made by\n"
        "`mpilm info --parameters`; each run writes the values it used to `RUN/config.used.yaml`.\n\n%s",
        text.data);
  lm_buffer_free(&text);
  return s;
}

/* The GPUs, or why there is none: that is an answer too, not a failure. */
static json_t *gather_devices(void)
{
  static lm_cuda_device list[MOST];
  lm_error err;
  int n;
  if (lm_cuda_devices(list, MOST, &n, &err) != LM_OK) return json_pack("{s:[], s:s}", "devices", "why_none", err.text);
  json_t *devices = json_array();
  for (int i = 0; i < n && i < MOST; i++)
    json_array_append_new(devices, json_pack("{s:i, s:s, s:f, s:i, s:I, s:f}", "device", i, "name", list[i].name,
                                             "compute_capability", list[i].major + list[i].minor / 10.0,
                                             "multiprocessors", list[i].multiprocessors, "bytes",
                                             (json_int_t)list[i].bytes, "bf16_tflops", list[i].rate * 1e-12));
  return json_pack("{s:o}", "devices", devices);
}

static void print_devices(json_t *info)
{
  size_t i;
  json_t *d, *why = json_object_get(info, "why_none");
  if (why != NULL) printf("%s\n", json_string_value(why));
  json_array_foreach(json_object_get(info, "devices"), i, d)
  {
    printf("GPU %zu: %s, compute capability %.1f, %lld multiprocessors, %.1f GiB, %.0f TFLOP/s in bf16\n", i,
           json_string_value(json_object_get(d, "name")), json_real_value(json_object_get(d, "compute_capability")),
           (long long)json_integer_value(json_object_get(d, "multiprocessors")),
           (double)json_integer_value(json_object_get(d, "bytes")) / 0x1p30,
           json_real_value(json_object_get(d, "bf16_tflops")));
  }
}

static lm_status print_report(json_t *info, bool json, void (*print)(json_t *), lm_error *err)
{
  if (info == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the report");
  if (json)
    json_dumpf(info, stdout, JSON_INDENT(1)), putchar('\n');
  else
    print(info);
  json_decref(info);
  return LM_OK;
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct info_options o;
  lm_options *parsed;
  const lm_kernels *k;
  LM_TRY(lm_command_options(&parsed, &lm_command_info, &o, argc, argv, 0, 0, err));
  lm_options_free(parsed);
  if (o.parameters) return print_parameters(err);
  if (o.devices) return print_report(gather_devices(), o.json, print_devices, err);
  LM_TRY(lm_kernels_select(&k, LM_BACKEND_AUTO, err));
  return print_report(gather(k), o.json, print_table, err);
}

const lm_command lm_command_info = {
    .name = "info",
    .usage = "info [--devices] [--json]\ninfo --parameters",
    .summary = "versions, backends, and what this machine offers",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
