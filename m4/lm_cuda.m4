dnl LM_CUDA: --with-cuda=DIR|yes|no|auto.
AC_DEFUN([LM_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit under DIR; yes, no, or auto (default auto)])],
    [], [with_cuda=auto])
  AS_CASE([$with_cuda], [no|auto], [],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: this version of mpilm has no CUDA backend; want no or auto])])
  lm_have_cuda=0; lm_cuda_summary=no
  AC_DEFINE_UNQUOTED([LM_HAVE_CUDA], [$lm_have_cuda], [the CUDA backend is built])])
