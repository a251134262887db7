/* src/base/status.h - how a function says that it failed, and with which words. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_STATUS_H
#define LM_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/** Every function that can fail returns one of these; 0 is success. */
typedef enum lm_status {
  LM_OK = 0,
  LM_EINVAL,      /* usage, configuration or input: retrying cannot help; exit code 2 */
  LM_ENOMEM,      /* out of memory */
  LM_EIO,         /* the operating system refused: open, read, write, fsync, rename */
  LM_EDAMAGED,    /* a file of ours that does not verify */
  LM_ENUMERIC,    /* training went wrong: too many non-finite steps in a row */
  LM_EPEER,       /* another rank is gone or does not answer */
  LM_STOPPED,     /* not a failure: stopped early with a valid checkpoint; exit code 75 */
  LM_NO_PROGRESS, /* the last starts all ended at the same step; exit code 76 */
} lm_status;

/** A failure in words. Plain data without pointers, so that it can be sent to the other ranks. */
typedef struct lm_error {
  lm_status status;
  int rank;       /* who speaks; -1 until lm_agree() fills it in */
  char host[64];  /* "" until lm_agree() fills it in */
  char text[960]; /* one sentence: what, where, which value, what was wanted */
} lm_error;

#define LM_NODISCARD    __attribute__((warn_unused_result))
#define LM_PRINTF(f, a) __attribute__((format(printf, f, a)))

/** Write the sentence into err (which may be NULL) and return s. Local. */
lm_status lm_fail(lm_error *err, lm_status s, const char *format, ...) LM_PRINTF(3, 4);

#ifdef __clang_analyzer__ /* an analyser sees one file at a time: tell it that a failure is never LM_OK */
static inline lm_status lm_failure(lm_status s)
{
  if (s == LM_OK) __builtin_unreachable();
  return s;
}
#define lm_fail(...) lm_failure(lm_fail(__VA_ARGS__))
#endif

/** Put words in front of the sentence that err holds, "file: sentence", and return its status. Local. */
lm_status lm_fail_in(lm_error *err, lm_status s, const char *format, ...) LM_PRINTF(3, 4);

/** The exit code of the program for a status: 0, 1, 2, 75 or 76 (doc/formats.md). Local. */
int lm_exit_code(lm_status s);

/** Return from the calling function if the call failed. Around a Collective call, or anywhere in a Local function. */
#define LM_TRY(call)                                                                                                   \
  do {                                                                                                                 \
    lm_status lm_try_ = (call);                                                                                        \
    if (lm_try_ != LM_OK) return lm_try_;                                                                              \
  } while (0)

/** A broken precondition is a bug of ours, not of the user: say where and abort. */
#define LM_ASSERT(cond) ((cond) ? (void)0 : lm_assert_failed(#cond, __FILE__, __LINE__))
void lm_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

#endif
