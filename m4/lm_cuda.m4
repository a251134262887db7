dnl LM_CUDA: --with-cuda=DIR|yes|no|auto. The CUDA backend is a module (kernels/cuda) that the program opens at run time,
dnl so nothing of this reaches the program's own flags.

dnl LM_CUDA_TRY(HEADER, LIBRARY, FUNCTION, PACKAGE): one thing the module is built on; a lack goes to lm_cuda_lacks.
AC_DEFUN([LM_CUDA_TRY], [
  AS_IF([test "x$lm_cuda_lacks" = x], [
    lm_save_CPPFLAGS=$CPPFLAGS; lm_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$CUDA_LDFLAGS -l$2 $LIBS"
    AC_MSG_CHECKING([for $1 and lib$2])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$1>]], [[return $3 == 0;]])], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no]); lm_cuda_lacks="$1 and lib$2 ($4) do not compile and link"])
    CPPFLAGS=$lm_save_CPPFLAGS; LIBS=$lm_save_LIBS])])

dnl LM_CUDA_FIND: NVCC, the toolkit it belongs to, and what lacks in lm_cuda_lacks.
AC_DEFUN([LM_CUDA_FIND], [
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AS_CASE([$with_cuda], [yes|auto], [lm_cuda_path=/usr/local/cuda/bin$PATH_SEPARATOR$PATH],
    [lm_cuda_path=$with_cuda/bin])
  AC_PATH_PROG([NVCC], [nvcc], [], [$lm_cuda_path])
  AS_IF([test "x$NVCC" = x], [lm_cuda_lacks="no nvcc in $lm_cuda_path"], [
    lm_cuda_dir=`AS_DIRNAME(["$NVCC"])`; lm_cuda_dir=`AS_DIRNAME(["$lm_cuda_dir"])`
    lm_cuda_lib=$lm_cuda_dir/lib64
    AS_IF([test ! -e "$lm_cuda_lib/libcudart.so"], [lm_cuda_lib=$lm_cuda_dir/lib])
    CUDA_CPPFLAGS="-I$lm_cuda_dir/include"
    CUDA_LDFLAGS="-L$lm_cuda_lib -Wl,-rpath,$lm_cuda_lib"
    AC_MSG_CHECKING([whether $NVCC compiles for sm_80 and sm_90a])
    AS_ECHO(["__global__ void nothing() {}"]) >conftest.cu
    AS_IF([$NVCC -std=c++17 $CUDA_ARCHS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no]); lm_cuda_lacks="$NVCC does not compile for sm_80 and sm_90a (config.log has its words)"])
    rm -f conftest.cu conftest.o
    LM_CUDA_TRY([cuda_runtime_api.h], [cudart], [cudaGetDeviceCount(0)], [the CUDA runtime])
    LM_CUDA_TRY([cublasLt.h], [cublasLt], [cublasLtGetVersion()], [cuBLAS])
    LM_CUDA_TRY([nccl.h], [nccl], [ncclGetVersion(0)], [NCCL])])])

AC_DEFUN([LM_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit under DIR; yes, no, or auto (default auto)])],
    [], [with_cuda=auto])
  AC_ARG_VAR([CUDA_ARCHS], [-gencode options of nvcc: the devices to compile for])
  : ${CUDA_ARCHS="-gencode arch=compute_80,code=[[sm_80,compute_80]] -gencode arch=compute_90a,code=[[sm_90a,compute_90a]]"}
  lm_cuda_lacks=; lm_have_cuda=0; lm_cuda_summary=no
  AS_IF([test "x$with_cuda" != xno], [
    LM_CUDA_FIND
    AS_IF([test "x$lm_cuda_lacks" = x], [
      lm_have_cuda=1
      lm_cuda_summary="`$NVCC --version | $SED -n 's/.*release \(.*\), V.*/\1/p'`, under $lm_cuda_dir"],
      [test "x$with_cuda" = xauto], [lm_cuda_summary="no: $lm_cuda_lacks"],
      [AC_MSG_ERROR([--with-cuda=$with_cuda: $lm_cuda_lacks])])])
  dnl Where the C compiler goes through ccache, so does nvcc, whose minutes are worth it most.
  AS_CASE([$CC], [ccache\ *|*/ccache\ *], [NVCC="ccache $NVCC"])
  AM_CONDITIONAL([LM_CUDA], [test $lm_have_cuda = 1])
  AS_IF([test "x$enable_werror" = xyes], [NVCC_WERROR="-Werror all-warnings"; CXX_WERROR=-Werror])
  AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([NVCC_WERROR]) AC_SUBST([CXX_WERROR])
  AC_DEFINE_UNQUOTED([LM_HAVE_CUDA], [$lm_have_cuda], [the CUDA backend is built])])
