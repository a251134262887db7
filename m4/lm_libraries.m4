dnl MPI, parallel HDF5, oneDNN.

dnl LM_MPI: flags from the MPI compiler wrapper, so that CC stays the user's own compiler.
AC_DEFUN([LM_MPI], [
  AC_ARG_VAR([MPICC], [MPI compiler wrapper, asked for its flags])
  AC_CHECK_PROGS([MPICC], [mpicc mpicc.openmpi mpicc.mpich])
  AS_IF([test "x$MPICC" = x], [AC_MSG_ERROR([no mpicc found: install Open MPI (Debian: libopenmpi-dev openmpi-bin)])])
  dnl Open MPI says --showme, MPICH and its kin say -compile_info.
  MPI_CFLAGS=`$MPICC --showme:compile 2>/dev/null` && MPI_LIBS=`$MPICC --showme:link 2>/dev/null` || {
    MPI_CFLAGS=`$MPICC -compile_info | cut -d' ' -f2-`; MPI_LIBS=`$MPICC -link_info | cut -d' ' -f2-`; }
  lm_save_CFLAGS=$CFLAGS; lm_save_LIBS=$LIBS; CFLAGS="$CFLAGS $MPI_CFLAGS"; LIBS="$MPI_LIBS $LIBS"
  AC_MSG_CHECKING([whether an MPI program links])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no]); AC_MSG_ERROR([$MPICC gives flags with which $CC cannot link an MPI program])])
  CFLAGS=$lm_save_CFLAGS; LIBS=$lm_save_LIBS
  lm_mpi_version=`$MPICC --showme:version 2>/dev/null | sed 's/^[[^:]]*: //; s/ (Language.*//'`
  AS_IF([test "x$lm_mpi_version" = x], [lm_mpi_version="$MPICC"])
  AC_SUBST([MPI_CFLAGS]) AC_SUBST([MPI_LIBS])])

dnl LM_HDF5: the parallel one, or an error that says so.
AC_DEFUN([LM_HDF5], [
  AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [parallel HDF5 under DIR (default: pkg-config, h5pcc)])],
    [], [with_hdf5=auto])
  AS_CASE([$with_hdf5],
    [no], [AC_MSG_ERROR([--without-hdf5: mpilm keeps its data and state in HDF5 and cannot be built without])],
    [yes|auto], [
      AS_IF([$PKG_CONFIG --exists hdf5-openmpi], [lm_hdf5_pc=hdf5-openmpi],
        [$PKG_CONFIG --exists hdf5-mpi], [lm_hdf5_pc=hdf5-mpi], [lm_hdf5_pc=hdf5])
      PKG_CHECK_MODULES([HDF5], [$lm_hdf5_pc], [],
        [AC_MSG_ERROR([no HDF5 found (Debian: libhdf5-openmpi-dev; elsewhere --with-hdf5=DIR)])])],
    [HDF5_CFLAGS="-I$with_hdf5/include"; HDF5_LIBS="-L$with_hdf5/lib -Wl,-rpath,$with_hdf5/lib -lhdf5"])
  lm_save_CPPFLAGS=$CPPFLAGS; lm_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $HDF5_CFLAGS $MPI_CFLAGS"; LIBS="$HDF5_LIBS $MPI_LIBS $LIBS"
  AC_MSG_CHECKING([whether this HDF5 is the parallel one])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <hdf5.h>
#ifndef H5_HAVE_PARALLEL
#error serial
#endif]], [[return H5Pset_fapl_mpio(0, MPI_COMM_WORLD, MPI_INFO_NULL);]])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([the HDF5 found ($HDF5_CFLAGS) is the serial one or does not link; mpilm needs parallel HDF5])])
  AC_COMPUTE_INT([lm_h5_major], [H5_VERS_MAJOR], [[#include <hdf5.h>]])
  AC_COMPUTE_INT([lm_h5_minor], [H5_VERS_MINOR], [[#include <hdf5.h>]])
  AC_COMPUTE_INT([lm_h5_release], [H5_VERS_RELEASE], [[#include <hdf5.h>]])
  CPPFLAGS=$lm_save_CPPFLAGS; LIBS=$lm_save_LIBS
  lm_hdf5_version=$lm_h5_major.$lm_h5_minor.$lm_h5_release])

dnl LM_DNNL: oneDNN, version 2 or 3; Debian ships no pkg-config file for it.
AC_DEFUN([LM_DNNL], [
  AC_ARG_WITH([dnnl], [AS_HELP_STRING([--with-dnnl=DIR], [oneDNN under DIR (default: the system's)])],
    [], [with_dnnl=auto])
  AS_CASE([$with_dnnl],
    [no], [AC_MSG_ERROR([--without-dnnl: the CPU backend computes its matrix products with oneDNN])],
    [yes|auto], [DNNL_CFLAGS=; DNNL_LIBS=-ldnnl],
    [DNNL_CFLAGS="-I$with_dnnl/include"; DNNL_LIBS="-L$with_dnnl/lib -Wl,-rpath,$with_dnnl/lib -ldnnl"])
  lm_save_CPPFLAGS=$CPPFLAGS; lm_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $DNNL_CFLAGS"; LIBS="$DNNL_LIBS $LIBS"
  AC_MSG_CHECKING([for oneDNN])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <dnnl.h>]], [[dnnl_version();]])], [],
    [AC_MSG_RESULT([no]); AC_MSG_ERROR([no oneDNN found (Debian: libdnnl-dev; elsewhere --with-dnnl=DIR)])])
  AC_COMPUTE_INT([lm_dnnl_major], [DNNL_VERSION_MAJOR], [[#include <dnnl.h>]])
  AC_COMPUTE_INT([lm_dnnl_minor], [DNNL_VERSION_MINOR], [[#include <dnnl.h>]])
  CPPFLAGS=$lm_save_CPPFLAGS; LIBS=$lm_save_LIBS
  lm_dnnl_version=$lm_dnnl_major.$lm_dnnl_minor
  AC_MSG_RESULT([$lm_dnnl_version])
  AC_SUBST([DNNL_CFLAGS]) AC_SUBST([DNNL_LIBS])])

dnl LM_ISA_LEVELS: the CPU backend's loops are compiled once a level and chosen when the program starts.
AC_DEFUN([LM_ISA_LEVELS], [
  lm_isa_levels=portable; lm_have_levels=no
  AS_CASE([$host_cpu$target_cpu`$CC -dumpmachine`], [*x86_64*], [
    lm_save_CFLAGS=$CFLAGS; CFLAGS="$CFLAGS -Werror -march=x86-64-v4"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [lm_have_levels=yes; lm_isa_levels="x86-64, x86-64-v3, x86-64-v4"])
    CFLAGS=$lm_save_CFLAGS])
  LM_LOOP_CFLAGS=
  m4_foreach_w([lm_flag], [-ftree-vectorize -fvect-cost-model=dynamic -ffp-contract=fast],
    [LM_TRY_CFLAG([LM_LOOP_CFLAGS], lm_flag)])
  AC_SUBST([LM_LOOP_CFLAGS])
  AM_CONDITIONAL([X86_LEVELS], [test $lm_have_levels = yes])
  AS_IF([test $lm_have_levels = yes], [lm_x86_levels=1], [lm_x86_levels=0])
  AC_DEFINE_UNQUOTED([LM_X86_LEVELS], [$lm_x86_levels], [CPU loops for x86-64-v3 and -v4 are built])])
