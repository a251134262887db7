#!/usr/bin/env bash
# tests/checkpoint/runs.sh - the life of a run folder: what is kept, what is resumed, what is refused.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state

save() { # RANKS RUN KEEP STEP...
  ranks "$1" "$run_state" save "${@:2}" >save.out 2>save.err
}
steps() { # RUN: the steps of its files, in the order that ls gives
  "$MPILM" ckpt ls "$1" | awk 'NR > 1 { printf "%s%s", sep, $1; sep = " " }'
}
resumed() { # RANKS RUN
  ranks "$1" "$run_state" resume "$2" 2>resume.err
}

tap_exit 0 "a run that does not exist yet has nothing to resume" -- ranks 2 "$run_state" resume none
tap_is "$tap_out" "nothing to resume" "and says so"

# ---- order, retention ----
save 2 a 2 8 9 10 11
tap_is "$(steps a)" "10 11" "two are kept, by number: 9 is older than 10"
save 2 b 0 900 1000 1100 99999999 100000000
tap_is "$(steps b)" "900 1000 1100 99999999 100000000" "0 keeps all; ls is in the order of numbers, whatever their digits"
tap_is "$(resumed 3 b)" "resumed 100000000" "the highest number is resumed, by another number of ranks"
touch -d 2035-01-01 b/checkpoints/step-00000900.h5
touch -d 2001-01-01 b/checkpoints/step-100000000.h5
tap_is "$(resumed 1 b)" "resumed 100000000" "times of files mean nothing to resume"
tap_exit 0 "prune" -- "$MPILM" ckpt prune b --keep 2
tap_is "$(steps b)" "99999999 100000000" "nor to prune"
tap_is "$tap_out" "$(printf 'b/checkpoints/step-%08d.h5\n' 900 1000 1100)" "it names what it removed"
save 1 b 1 5
tap_is "$(steps b)" "5" "keep 1: what was just saved is what stays"
tap_exit 2 "prune needs a number" -- "$MPILM" ckpt prune b
tap_exit 2 "of at least 1" -- "$MPILM" ckpt prune b --keep 0
MPILM_FAULT=fail_write@ckpt3 save 2 c 1 1 2 3
tap_is "$(steps c)" "2" "a save that fails removes nothing"
tap_is "$(ls -A c/checkpoints)" "step-00000002.h5" "and leaves nothing"
tap_like "$(cat save.err)" "step-00000003.h5.part: cannot write" "it is reported with its path"
MPILM_FAULT=fail_write@ckpt3 save 2 c 1 3 4 5 6
tap_is "$(steps c)" "6" "the next save is as good as any"

# ---- damage ----
save 2 d 0 10 20 30
truncate -s -100 d/checkpoints/step-00000030.h5
: >d/checkpoints/step-00000040.h5
tap_is "$(resumed 2 d)" "resumed 20" "the newest that is good is resumed"
tap_like "$(cat resume.err)" "warning: .*passed over: d/checkpoints/step-00000030.h5" "with a warning that names the torn one"
tap_like "$(cat resume.err)" "warning: .*passed over: d/checkpoints/step-00000040.h5" "and the empty one"
tap_is "$(steps d)" "10 20 30 40" "nothing damaged is removed"
table=$("$MPILM" ckpt ls d)
tap_like "$table" "^ +30 +no .*step-00000030" "ls says which is not complete, and why"
tap_exit 1 "verify fails" -- "$MPILM" ckpt verify d
tap_is "$(grep -c ^damaged <<<"$tap_out") $(grep -c ^good <<<"$tap_out")" "2 2" "after it looked at all of them"
tap_is "$(wc -l <<<"$tap_err")" 1 "one line on stderr"
tap_exit 0 "one good file verifies" -- "$MPILM" ckpt verify d/checkpoints/step-00000010.h5
tap_exit 1 "one damaged file does not" -- "$MPILM" ckpt verify d/checkpoints/step-00000030.h5
tap_exit 2 "a missing file is a mistake" -- "$MPILM" ckpt verify d/checkpoints/step-00000031.h5
save 2 d 2 25
tap_is "$(steps d)" "20 25 30 40" "what is damaged counts for nothing in retention, and stays"
save 2 d 0 30
tap_is "$(resumed 2 d)" "resumed 30" "until its step is saved again"
# The description is whole, but an element is not: only reading finds it.
save 2 g 0 26 52
LC_ALL=C sed -i 's/bcdefghijkl/bcdefgXijkl/' g/checkpoints/step-00000052.h5
tap_like "$("$MPILM" ckpt ls g)" '^ +52 +yes' "a damaged element is not seen by ls"
tap_exit 1 "but by verify" -- "$MPILM" ckpt verify g
tap_like "$tap_out" "damaged  g/checkpoints/step-00000052.h5: /config: " "which names the tensor"
tap_is "$(resumed 3 g)" "resumed 26" "and by resume"
tap_like "$(cat resume.err)" "passed over: g/checkpoints/step-00000052.h5: /config: damaged" "which says why"
truncate -s 3000 g/checkpoints/step-*
tap_exit 1 "nothing good is left: an error, not a start from nothing" -- ranks 2 "$run_state" resume g
tap_like "$tap_err" "g: none of its 2 checkpoints is good" "and says so"

# ---- inspection ----
save 3 e 0 26
tap_like "$("$MPILM" ckpt ls e --json | tr -d ' \n')" '"step":26,"complete":true,"hashes":"notread","ranks":3,"loss":null,"validation_loss":null,"bytes":[0-9]+,' "ls --json"
tap_like "$("$MPILM" ckpt verify e --json | tr -d ' \n')" '"good":true' "verify --json"
tap_is "$("$MPILM" ckpt show e/checkpoints/step-00000026.h5 | head -2)" "$(printf '# /config\nabcdefghijklmnopqrstuvwxyz')" "show"
tap_like "$("$MPILM" ckpt show e/checkpoints/step-00000026.h5 --json)" '"config": "abcdefghijklmnopqrstuvwxyz"' "show --json"
tap_exit 2 "an unknown word" -- "$MPILM" ckpt list e
tap_exit 2 "a run that is not there" -- "$MPILM" ckpt ls nowhere
tap_exit 2 "no run" -- "$MPILM" ckpt ls

tap_like "$("$MPILM" ckpt ls e --json --full | tr -d ' \n')" '"hashes":"good"' "ls --full reads all"
LC_ALL=C sed 's/bcdefghijkl/bcdefgXijkl/' e/checkpoints/step-00000026.h5 >bad.h5
tap_exit 1 "a damaged file is not copied" -- "$MPILM" ckpt copy bad.h5 copy.h5
tap_exit 0 "a good one is" -- "$MPILM" ckpt copy e/checkpoints/step-00000026.h5 copy.h5
cmp e/checkpoints/step-00000026.h5 copy.h5
tap_ok $? "to the last byte"
tap_exit 2 "but not over another" -- "$MPILM" ckpt copy e/checkpoints/step-00000026.h5 copy.h5
tap_is "$(ls ./*.part 2>/dev/null)" "" "and nothing is left"
tap_exit 0 "diff: the same" -- "$MPILM" ckpt diff e/checkpoints/step-00000026.h5 copy.h5
tap_is "$(grep -c ^equal <<<"$tap_out") $(wc -l <<<"$tap_out")" "11 11" "in all tensors"
save 1 e 0 27
tap_exit 1 "diff: other values" -- "$MPILM" ckpt diff copy.h5 e/checkpoints/step-00000027.h5
tap_like "$tap_out" "^differs  /model/embedding/weight: max [0-9.e+]+, rms [0-9.e+]+" "by how much"
tap_like "$tap_out" "^equal    /model/layers/0/empty" "and what is equal"
if python3 -c 'import h5py, numpy' 2>/dev/null; then
  want=$(python3 -c 'import h5py, numpy as np, sys
a, b = (h5py.File(f)["/optimizer/exp_avg/layers/0/attention/qkv/weight"][()].astype("f8") for f in sys.argv[1:])
print("max %.6g, rms %.6g" % (abs(a - b).max(), np.sqrt(((a - b) ** 2).mean())))' copy.h5 e/checkpoints/step-00000027.h5)
  tap_like "$tap_out" "^differs  /optimizer/exp_avg/layers/0/attention/qkv/weight: $want" "as NumPy computes it"
else
  tap_skip "no h5py" "as NumPy computes it"
fi

# ---- milestones, the best ----
RUN_STATE_POLICY=async,milestone=3 save 2 m 2 1 2 3 4 5 6 7 8
tap_is "$(steps m)" "3 6 7 8" "milestones stay besides the newest two"
tap_exit 0 "prune" -- "$MPILM" ckpt prune m --keep 1 --milestone_every 6 --json
tap_is "$(tr -d ' \n' <<<"$tap_out")" '{"run":"m","removed":["m/checkpoints/step-00000003.h5","m/checkpoints/step-00000007.h5"]}' \
  "prune --json names what went"
tap_is "$(steps m)" "6 8" "has milestones too"
inode() { stat -c %i "$1"; }
export RUN_STATE_LOSS_1=5 RUN_STATE_LOSS_2=4 RUN_STATE_LOSS_3=4.5
RUN_STATE_POLICY=best save 2 best 1 1 2
tap_is "$(inode best/checkpoints/best.h5)" "$(inode best/checkpoints/step-00000002.h5)" "the best is a hard link"
RUN_STATE_POLICY=best save 2 best 1 3 4
tap_is "$(steps best)" "4" "its other name goes as any"
tap_like "$("$MPILM" ckpt diff best/checkpoints/best.h5 best/checkpoints/step-00000004.h5)" "^differs  /progress/step" \
  "and it stays over a restart, while worse ones come"
tap_exit 0 "it is good" -- "$MPILM" ckpt verify best/checkpoints/best.h5
RUN_STATE_LOSS_5=1 RUN_STATE_POLICY=best save 2 best 1 5
tap_is "$(inode best/checkpoints/best.h5)" "$(inode best/checkpoints/step-00000005.h5)" "until a better one"
RUN_STATE_LOSS_6=0.5 RUN_STATE_POLICY=best MPILM_FAULT=fail_write@ckpt1 save 2 best 1 6
tap_is "$(inode best/checkpoints/best.h5)" "$(inode best/checkpoints/step-00000005.h5)" "a save that fails is not the best"

# ---- folders ----
touch file
tap_exit 2 "a run folder below a file is refused before any step" -- ranks 2 "$run_state" save file/run 0 1
tap_like "$tap_err" "file.*(Not a directory|is not a folder)" "by name"
tap_exit 2 "the parent of an absolute path must be there" -- ranks 2 "$run_state" save "$PWD/no/such/run" 0 1
tap_like "$tap_err" "$PWD/no/such: .*No such file or directory" "by name"
tap_is "$(ls -d no 2>/dev/null)" "" "and nothing is made"
save 1 f 0 1
if command -v setpriv >/dev/null && [ "$(id -u)" = 0 ]; then
  chmod 755 . f f/checkpoints
  tap_exit 2 "a folder that may not be written is refused before any step" -- \
    setpriv --reuid=65534 --regid=65534 --clear-groups "$run_state" save f 0 2
elif [ "$(id -u)" != 0 ]; then
  chmod a-w f/checkpoints
  tap_exit 2 "a folder that may not be written is refused before any step" -- "$run_state" save f 0 2
  chmod u+w f/checkpoints
else
  tap_skip "root writes anywhere" "a folder that may not be written is refused before any step"
fi
tap_end
