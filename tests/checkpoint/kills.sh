#!/usr/bin/env bash
# tests/checkpoint/kills.sh - training killed at any moment, one rank or all: what was announced as saved is resumed.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
make_config config.yaml
make_data
tap_ok $? "a dataset is made"
kills=${KILLS:-8} # KILLS=200 for a night
RANDOM=${KILLS_SEED:-1}

pids_of() { # FOLDER: the ranks that train in it
  local p
  for p in /proc/[0-9]*; do
    { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "^$MPILM train config.yaml --run.folder=$1 " && echo "${p#/proc/}"
  done
}

# The ways: saved between steps or in the background, one rank killed or all. A run goes on from kill to kill.
one_kill() { # I: sets announced (the last step said to be saved), may count in bad, worse, hung, anew
  local i=$1 async=true folder victims pids job from
  [ $((i % 2)) = 0 ] || async=false
  folder=run-$async
  announced=$(cat "$folder.announced" 2>/dev/null || echo 0)
  train 3 $folder --run.steps=1000000 --run.max_stalled=1000000 --checkpoint.every=2 --checkpoint.keep=3 \
    --checkpoint.async=$async >log 2>&1 &
  job=$!
  sleep $((RANDOM % 3)).$((RANDOM % 10))
  for _ in $(seq 100); do pids=$(pids_of $folder); [ -n "$pids" ] && break; sleep 0.1; done
  victims=3
  [ $((i % 4)) -lt 2 ] || victims=1
  # shellcheck disable=SC2046,SC2086
  kill -9 $(shuf -n $victims --random-source=<(yes $RANDOM) <<<"$pids") 2>/dev/null
  wait $job
  [ $? != 124 ] || hung=$((hung + 1))
  from=$(sed -n 's/^resumed from step \([0-9]*\).*/\1/p' log | head -n 1)
  if [ -n "$from" ]; then
    resumed=$((resumed + 1))
    [ "$from" -ge "$announced" ] || worse=$((worse + 1))
  elif grep -q "step .* loss" log && [ "$announced" -gt 0 ]; then
    anew=$((anew + 1))
  fi
  last=$(sed -n 's/.*step *\([0-9]*\)  saved.*/\1/p' log | tail -n 1)
  [ -z "$last" ] || echo "$last" >"$folder.announced"
  newest=$("$MPILM" ckpt ls $folder 2>/dev/null | awk 'END { print $1 + 0 }')
  [ "$newest" -ge "${last:-$announced}" ] || worse=$((worse + 1))
  if compgen -G "$folder/checkpoints/step-*" >/dev/null; then
    "$MPILM" ckpt verify $folder >verify.out 2>&1 || bad=$((bad + 1))
  fi
}

bad=0 worse=0 hung=0 anew=0 resumed=0
for i in $(seq "$kills"); do one_kill "$i"; done
tap_ok $((resumed < kills / 4)) "$kills times killed, $resumed of them after it had resumed"
tap_is $bad 0 "nothing with a final name is damaged"
tap_is $worse 0 "the newest, and what is resumed, is never older than the last announced"
tap_is $anew 0 "never from the beginning once a save was announced"
tap_is $hung 0 "no job hangs"
for async in true false; do
  [ -s run-$async.announced ] || { tap_ok 1 "saves with checkpoint.async=$async"; continue; }
  tap_exit 75 "checkpoint.async=$async: in the end it goes on" -- train 2 run-$async --run.steps=1000000 --run.max_stalled=1000000 \
    --run.stop_after=$(($("$MPILM" ckpt ls run-$async | awk 'END { print $1 + 0 }') + 1))
  tap_is "$(find run-$async/checkpoints -name '.*')" "" "and nothing is left of killed saves"
done
tap_end
