dnl Warnings, -Werror, sanitizers.

dnl LM_TRY_CFLAG(VARIABLE, FLAG): append FLAG where the compiler takes it.
AC_DEFUN([LM_TRY_CFLAG], [
  AC_CACHE_CHECK([whether $CC takes $2], [AS_TR_SH([lm_cv_flag_$2])], [
    lm_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS -Werror $2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_TR_SH([lm_cv_flag_$2])=yes], [AS_TR_SH([lm_cv_flag_$2])=no])
    CFLAGS=$lm_save_CFLAGS])
  AS_VAR_IF([AS_TR_SH([lm_cv_flag_$2])], [yes], [$1="$$1 $2"])])

AC_DEFUN([LM_COMPILER_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [a warning is an error (CI)])], [], [enable_werror=no])
  LM_CFLAGS="-std=gnu17"
  dnl gcc cannot see that a call which failed returns non-zero, so it takes every result after LM_TRY for unset;
  dnl clang-tidy's analyser and the sanitizers look for real ones.
  dnl clang warns where a loop marked `omp simd` stays scalar at one of the levels: slower, not wrong.
  m4_foreach_w([lm_flag], [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
    -Wcast-qual -Wvla-larger-than=65536 -Wformat=2 -Wundef -Wimplicit-fallthrough
    -Wno-missing-field-initializers -Wno-unknown-pragmas -Wno-pass-failed
    -Wno-maybe-uninitialized], [LM_TRY_CFLAG([LM_CFLAGS], lm_flag)])
  dnl NaN and signed zeros must behave; errno of maths functions nobody reads, and it stops vectorisation.
  m4_foreach_w([lm_flag], [-fno-math-errno -fno-trapping-math], [LM_TRY_CFLAG([LM_CFLAGS], lm_flag)])
  AS_IF([test "x$enable_werror" = xyes], [LM_CFLAGS="$LM_CFLAGS -Werror"; lm_werror_summary="are errors"],
    [lm_werror_summary="are shown"])
  AC_SUBST([LM_CFLAGS])])

AC_DEFUN([LM_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@], [build with these (default list: address,undefined)])],
    [], [enable_sanitizers=no])
  AS_CASE([$enable_sanitizers], [yes], [enable_sanitizers=address,undefined])
  AS_IF([test "x$enable_sanitizers" != xno], [
    LM_SANITIZE="-fsanitize=$enable_sanitizers -fno-omit-frame-pointer -fno-sanitize-recover=all"
    lm_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS $LM_SANITIZE"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()], [], [AC_MSG_ERROR([--enable-sanitizers: $CC cannot link with $LM_SANITIZE])])
    CFLAGS=$lm_save_CFLAGS])
  AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" != xno])
  AC_SUBST([LM_SANITIZE])])
