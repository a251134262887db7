#!/bin/bash
# tests/train/test_blend.sh - several datasets with weights: shares, layouts, stops, and a change of mind.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
dataset() { # NAME WINDOWS SEED: of 16 tokens, in lines of 8
  awk -v n="$2" -v s="$3" 'BEGIN { for (i = 0; i < 2 * n; i++) { s = (s * 1103515245 + 12345) % 2147483648; printf "%07d\n", s % 10000000 } }' >"$1.txt"
  "$MPILM" tokenize --vocab bytes --out "$1.h5" "$1.txt" >/dev/null 2>&1
}
dataset a 30 1 && dataset b 50 2 && dataset c 20 3
tap_ok $? "three datasets: 30, 50 and 20 windows"

blend() { # RANKS FOLDER SOURCES OVERRIDES...: 30 steps of 10
  train "$1" "$2" --log.samples --data.train="$3" --data.val= --schedule.warmup=0 --batch.global=10 --run.steps=30 \
    --checkpoint.every=0 "${@:4}"
}

list() { # FOLDER KEY: one a line
  sed -n 's/.*"'"$2"'": \[\([^]]*\)\].*/\1/p' "$1/metrics.jsonl" | tr -d ' ' | tr ',' '\n'
}

pairs() { # FOLDER: source and window of each sample
  paste -d' ' <(list "$1" sources) <(list "$1" samples)
}

counts() { # FOLDER FROM TO: samples of each source in these steps
  list "$1" sources | sed -n "$(($2 * 10 - 9)),$(($3 * 10))p" | sort -n | uniq -c | awk '{ printf "%s:%s ", $2, $1 }'
}

tap_exit 0 "3 of 10 from a, 7 from b" -- blend 2 two a.h5:3,b.h5:7
tap_like "$tap_err" "data: a.h5, 30 % of the samples, .* 30 windows an epoch, 0.000 epochs" "said at the start"
tap_is "$(counts two 1 30)" "0:90 1:210 " "90 and 210 of 300 samples"
tap_is "$(for i in $(seq 30); do counts two "$i" "$i"; done | sed 's/ $//' | sort -u)" "$(printf '0:3 1:7 %.0s' $(seq 30) | sed 's/ $//')" "3 and 7 in every step"
awk '{ n[$1]++; e = int((n[$1] - 1) / ($1 == 0 ? 30 : 50)); if (seen[$1, e, $2]++) bad = 1 } END { exit bad }' <(pairs two)
tap_ok $? "no window twice in an epoch of its dataset"
tap_exit 0 "on 3 ranks, one sequence at a time, nothing read ahead" -- blend 3 three a.h5:0.3,b.h5:0.7 --batch.micro=1 --data.prefetch=0
tap_is "$(pairs three)" "$(pairs two)" "the same samples"
close_to loss two three 1e-5 "the same losses"
tap_like "$(cat three/config.used.yaml)" 'train: \["a.h5:0.3", "b.h5:0.7"\]' "config.used.yaml has the list"
for stop in 7 13 0; do
  blend 2 parts a.h5:3,b.h5:7 --run.stop_after=$stop >log 2>&1
done
same two parts "stopped after 7 and 13: the same bits"
tap_is "$(pairs parts)" "$(pairs two)" "of the same samples"
tap_exit 0 "without weights" -- blend 1 plain a.h5,b.h5,c.h5 --run.steps=10
tap_is "$(counts plain 1 10)" "0:30 1:50 2:20 " "each gives as much as it has"

# ---- another mix from step 8 on, and one more dataset from step 16 on; a rests from step 24 on ----
blend 2 moved a.h5:3,b.h5:7 --run.stop_after=7 >log 2>&1
tap_exit 75 "other weights" -- blend 1 moved b.h5:1,a.h5:1 --run.stop_after=15
tap_like "$tap_err" "changed since .*step-00000007.h5: a.h5 was 30 % of the samples, is 50 % from the next step on" "are logged"
tap_exit 75 "one more dataset" -- blend 3 moved a.h5:1,b.h5:1,c.h5:2 --run.stop_after=23
tap_like "$tap_err" "c.h5 was 0 % of the samples, is 50 %" "is logged"
tap_exit 0 "one less" -- blend 2 moved b.h5:4,c.h5:1
tap_like "$tap_err" "data with checksum [0-9a-f]{16} was 25 % of the samples, is 0 %" "is logged"
tap_is "$(counts moved 1 7)$(counts moved 8 15)$(counts moved 16 23)$(counts moved 24 30)" \
  "0:21 1:49 0:40 1:40 0:20 1:20 2:40 1:56 2:14 " "the shares are those of each time"
for of in 0:30 1:50 2:20; do
  tap_is "$(pairs moved | awk -v s="${of%:*}" '$1 == s { print $2 }')" \
    "$(for s in two plain moved; do pairs $s | awk -v s="${of%:*}" '$1 == s { print $2 }' >"$s.list"; done
      n=$(wc -l <moved.list) && cat "$([ "${of%:*}" = 2 ] && echo plain || echo two).list" | head -n "$n" >want
      [ "$(wc -l <want)" -lt "$n" ] && tail -n +"$(($(wc -l <want) + 1))" moved.list >>want; cat want)" \
    "source ${of%:*} goes on in its own order"
done
awk '{ n[$1]++; w = $1 == 0 ? 30 : $1 == 1 ? 50 : 20; e = int((n[$1] - 1) / w); if (seen[$1, e, $2]++) bad = 1 } END { exit bad }' <(pairs moved)
tap_ok $? "and no window comes twice in an epoch of its dataset"

# ---- what a step trains on, on paper ----
for step in 1 7 8 15 16 23 24 30; do
  "$MPILM" data which config.yaml --run.folder=moved --data.train=b.h5:4,c.h5:1 --batch.global=10 --step $step | tail -n +2 |
    awk '{ print $2 }' >"which.$step"
done
tap_is "$(cat which.{1,7,8,15,16,23,24,30} | grep -v -- - | wc -l)" 59 "data which: 8 steps of 80 samples, 21 of them from a, which is not named any more"
for step in 24 30; do
  tap_is "$(cat which.$step)" "$(list moved samples | sed -n "$((step * 10 - 9)),$((step * 10))p")" "step $step: the windows of the run"
done
"$MPILM" data which config.yaml --run.folder=moved --data.train=a.h5:0,b.h5:4,c.h5:1 --batch.global=10 --step 8 >which.out
tap_is "$(awk 'NR > 1 { print $2 }' which.out)" "$(list moved samples | sed -n 71,80p)" "step 8, with a named at weight 0: all windows"
tap_is "$(awk 'NR > 1 { print $5 }' which.out | sort | uniq -c | awk '{ printf "%s ", $0 }' | tr -s ' ')" " 5 a.h5 5 b.h5 " "and from which file each is"

"$MPILM" data info config.yaml --run.folder=moved --data.train=c.h5:3,b.h5:1 --batch.global=10 --run.steps=40 >info.out 2>&1
tap_is "$(awk '/h5$/ { print $1, $3, $4, $5, $6, $7 }' info.out)" \
  "75.000% 20 54 2.700 6.450 c.h5"$'\n'"25.000% 50 165 3.300 3.800 b.h5" \
  "data info of a config: 100 samples more, 75 from c and 25 from b"

# ---- what is refused ----
refuse() { # REGEX SOURCES OVERRIDES...
  tap_exit 2 "$2" -- blend 2 refused "${@:2}"
  tap_like "$tap_err" "$1" "$1"
}
refuse "'a.h5:3' has a weight, 'b.h5' has none" a.h5:3,b.h5
refuse "weight in 'a.h5:-1' is not a decimal" a.h5:-1
refuse "weight in 'a.h5:1e3' is not a decimal" a.h5:1e3,b.h5:2
refuse "no weight is above 0" a.h5:0,b.h5:0.0
refuse "above 2\^53" a.h5:1000000000000000,b.h5:0.0000001
cp a.h5 again.h5
refuse "a.h5 and again.h5 hold the same data" a.h5:1,again.h5:1
make_text 20 5 >other.txt
"$MPILM" vocab train --size 260 --out other.json other.txt >/dev/null 2>&1
"$MPILM" tokenize --vocab other.json --out other.h5 other.txt >/dev/null 2>&1
refuse "other.h5 was made with another vocabulary.*than a.h5" a.h5:1,other.h5:1
[ ! -e refused ]
tap_ok $? "and nothing was made"
dataset changed 50 9
tap_exit 2 "a dataset that was made again" -- blend 2 parts a.h5:3,changed.h5:7 --run.steps=31
tap_like "$tap_err" "a source that is gone was [0-9a-f]{16} in .*, that of changed.h5 is [0-9a-f]{16}: other data" "is refused"
tap_exit 0 "unless that is wanted" -- blend 2 parts a.h5:3,changed.h5:7 --run.steps=31 --run.allow_change=data
tap_exit 2 "data info of no file" -- "$MPILM" data info nothere.h5
tap_end
