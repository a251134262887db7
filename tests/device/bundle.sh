#!/bin/bash
# tests/device/bundle.sh - pack what tests/device/run.sh needs on a machine that has a GPU and nothing of ours.
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: tests/device/bundle.sh [BUILD [FILE]]      default: build build/device.tar.xz
#
# The programs, the CUDA module, and every library they load but the C library and CUDA's own: MPI with its plug-ins,
# HDF5, oneDNN and the rest, some 20 MB packed. The machine brings its driver, and CUDA's runtime, cuBLASLt and NCCL.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build} file=${2:-build/device.tar.xz}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

[ -e "$build/.libs/mpilm_cuda.so" ] || { echo "bundle.sh: $build has no CUDA module: configure --with-cuda" >&2; exit 2; }
make -s -C "$build" mpilm benchmarks/step benchmarks/attention tests/kernels/test_compare >&2
mkdir -p "$folder/device/bin/.libs" "$folder/device/lib" "$folder/device/mpi"
cp "$build/mpilm" "$build/benchmarks/step" "$build/benchmarks/attention" "$build/tests/kernels/test_compare" "$folder/device/bin"
cp "$build/.libs/mpilm_cuda.so" "$folder/device/bin/.libs"
strip --strip-unneeded "$folder"/device/bin/[a-z]* "$folder/device/bin/.libs/mpilm_cuda.so"

# Open MPI's plug-ins, and the texts of what it says.
plugins=$(ompi_info --parsable --path pkglibdir | sed 's/.*://')
texts=$(ompi_info --parsable --path pkgdatadir | sed 's/.*://')
cp -rL "$plugins" "$folder/device/mpi/plugins"
cp -rL "$texts" "$folder/device/mpi/texts"

# A plug-in of a network that is not here may lack its libraries: it is not loaded then, here as there.
{ ldd "$folder"/device/bin/[a-z]* "$folder/device/bin/.libs/mpilm_cuda.so" "$plugins"/*.so || true; } 2>/dev/null |
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libcuda|libcudart|libcublasLt|libnccl)\.so' |
  xargs cp -Lt "$folder/device/lib"
cp tests/device/run.sh "$folder/device"
tar -C "$folder" -cf - device | xz -T0 -6 >"$file"
echo "$file: $(du -h "$file" | cut -f1)"
