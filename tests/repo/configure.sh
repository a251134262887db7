#!/usr/bin/env bash
# tests/repo/configure.sh - what configure refuses, it refuses with words.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"

# As much of a serial HDF5 as configure looks at: one that has no H5_HAVE_PARALLEL.
mkdir -p serial/include serial/lib
printf '%s\n' '#define H5_VERS_MAJOR 1' '#define H5_VERS_MINOR 10' '#define H5_VERS_RELEASE 8' \
  '#define H5Pset_fapl_mpio(list, comm, info) 0' >serial/include/hdf5.h
printf 'void lm_nothing(void);\nvoid lm_nothing(void)\n{\n}\n' >hdf5.c
"${CC:-cc}" -shared -fPIC -o serial/lib/libhdf5.so hdf5.c
tap_ok $? "a serial HDF5 is made"
configure=$(realpath "$srcdir")/configure
tap_exit 1 "--with-hdf5 of a serial HDF5" -- "$configure" --with-hdf5="$PWD/serial"
tap_like "$tap_err" "configure: error: the HDF5 found \(-I$PWD/serial/include\) is the serial one .*; mpilm needs parallel HDF5" \
  "is refused: the file, what it is, what is wanted"
tap_exit 1 "--without-hdf5" -- "$configure" --without-hdf5
tap_like "$tap_err" "configure: error: --without-hdf5: mpilm keeps its data and state in HDF5" "is refused"
tap_end
