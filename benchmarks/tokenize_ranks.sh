#!/usr/bin/env bash
# benchmarks/tokenize_ranks.sh - the whole tokenize command on one rank and on two, one thread each, by turns.
# SPDX-License-Identifier: BSD-3-Clause
# usage: tokenize_ranks.sh MPILM VOCAB [MB [TURNS [WORDS...]]]
# The English of Debian's dict-gcide, again and again up to MB (1200) of JSON Lines, in documents of 4 KiB: as one plain
# file, as 8 gzip files of one size, and as a single gzip file. The best of TURNS (3) counts. WORDS go in front of mpirun.
set -u
mpilm=$(realpath "$1") vocab=$(realpath "$2") mb=${3:-1200} turns=${4:-3}
shift $(($# < 4 ? $# : 4))
work=$(mktemp -d "${TMPDIR:-/tmp}/tokenize_ranks.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1

gzip -dc </usr/share/dictd/gcide.dict.dz | LC_ALL=C tr -c '\n -~' '?' | LC_ALL=C sed 's/[\\"]/\\&/g' |
  LC_ALL=C awk '{ text = text $0 "\\n" } length(text) > 4096 { print "{\"text\":\"" text "\"}"; text = "" }' >book || exit 1
copies=$((mb * 1000000 / $(stat -c %s book) + 1))
for ((k = 0; k < copies; k++)); do cat book; done >plain.jsonl
mkdir eight
split -n l/8 -a 1 --additional-suffix=.jsonl plain.jsonl eight/
gzip -1 eight/*
cat eight/*.gz >single.jsonl.gz

best() { # RANKS INPUT: hundredths of a second, the least of what is in $least[]
  local begin end
  rm -f out.h5
  begin=$(date +%s%N)
  "${words[@]}" mpirun -n "$1" "$mpilm" tokenize --vocab "$vocab" --out out.h5 "$2" >log 2>&1 || { cat log; exit 1; }
  end=$((($(date +%s%N) - begin) / 10000000))
  ((least[$1] == 0 || end < least[$1])) && least[$1]=$end
}

words=("$@")
[ ${#words[@]} -gt 0 ] || words=(env)
for input in plain.jsonl eight single.jsonl.gz; do
  least=(0 0 0)
  for ((turn = 0; turn < turns; turn++)); do
    best 1 $input
    best 2 $input
  done
  awk -v name=$input -v one="${least[1]}" -v two="${least[2]}" -v bytes="$(stat -c %s plain.jsonl)" 'BEGIN {
    printf "%-16s %4.0f MiB  1 rank %6.2f s  2 ranks %6.2f s  %.2f times as fast\n", name, bytes / 1048576, one / 100, two / 100, one / two }'
done
