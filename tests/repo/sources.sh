#!/usr/bin/env bash
# tests/repo/sources.sh - every source says what it is, and includes only what lies below it in the flow.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 99

list() { # every file of ours with one of the endings $@
  local ending
  for ending; do
    find src kernels hdf5 tests benchmarks slurm -name "*.$ending" -type f 2>/dev/null
  done | sort
}

# The first line is /* path - what it is. */, and the license follows.
opening() {
  local f first
  list c h cu cuh | while read -r f; do
    IFS= read -r first <"$f"
    [[ $first == "/* $f - "* ]] || echo "$f: the first line is '$first', want '/* $f - ... */'"
    head -n 4 "$f" | grep -qxF '/* SPDX-License-Identifier: BSD-3-Clause */' || echo "$f: no SPDX line at its top"
  done
}
tap_is "$(opening)" "" "a source opens with its name, what it is for, and its license"

# The flow of doc/architecture.md, lowest first. A file includes its own folder and those of a lower number.
declare -A level=([src/base]=1 [slurm]=2 [src/comm]=3 [hdf5]=4 [kernels]=4 [src/checkpoint]=5 [src/optim]=6
  [src/gradsync]=7 [src/model]=8 [src/batch]=9 [src/text]=10 [src/train]=11 [src/command]=12 [src]=13)

includes() {
  local f word folder mine=0 theirs
  while IFS=: read -r f word; do
    case $f in
    src/*/*) mine=${f#src/} && mine=src/${mine%%/*} ;;
    *) mine=${f%%/*} ;;
    esac
    [[ $word == */* ]] || continue # config.h, or a neighbour
    folder=${word%%/*}
    [ -d "src/$folder" ] && folder=src/$folder
    theirs=${level[$folder]-}
    if [ -z "${level[$mine]-}" ] || [ -z "$theirs" ]; then
      echo "$f includes $word, and tests/repo/sources.sh has no level for $mine or $folder"
    elif [ "$folder" != "$mine" ] && [ "$theirs" -ge "${level[$mine]}" ]; then
      echo "$f includes $word, which lies above it"
    fi
  done < <(list c h cu cuh | grep -v '^tests/\|^benchmarks/' |
    xargs grep -H '^ *# *include "' | sed 's/: *# *include "\([^"]*\)".*/:\1/')
}
tap_is "$(includes)" "" "a folder includes only those below it"

tap_is "$(grep -lE '# *include <hdf5.h>' -r src kernels)" "" "only hdf5/ includes hdf5.h"
tap_is "$(grep -lE 'SLURM_[A-Z]' -r src kernels hdf5)" "" "only slurm/ reads SLURM_*"
later='TO''DO|FIX''ME|X''XX'
tap_is "$(list c h cu cuh sh | xargs grep -nwE "$later")" "" "nothing is left for later in a comment"
tap_end
