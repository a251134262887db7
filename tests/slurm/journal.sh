#!/usr/bin/env bash
# tests/slurm/journal.sh - every start is told of in the journal; starts that get nowhere end with 76.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

field() { # KEY FOLDER: one value a start
  sed -n 's/.*"'"$1"'": \("[^"]*"\|\[[^]]*\]\|[^,} ]*\)[,} ].*/\1/p' "$2/journal.jsonl" | tr '\n' ' '
}

export SLURM_JOB_ID=41
for count in 0 1 2; do
  SLURM_RESTART_COUNT=$count MPILM_FAULT=die@step8:rank1 train 2 stuck --checkpoint.async=false >log 2>&1
  tap_ok $(($? == 0)) "start $count dies in step 8"
done
tap_is "$(field restart stuck)" "0 1 2 " "the journal has three starts"
tap_is "$(field job stuck)" '"41" "41" "41" ' "of this job"
tap_is "$(field resumed_step stuck)|$(field saved_step stuck)|$(field last_step stuck)|$(field exit stuck)" \
  "0 5 5 |5 5 5 |7 7 7 |null null null " "what each resumed from, saved, reached; a killed one cannot tell how it ended"
tap_like "$(cat log)" "start 3 of this run, job 41, restart 2; the one before .* resumed from step 5, reached step 7, \
saved step 5, and was killed" "a start tells how the one before ended"
SLURM_RESTART_COUNT=3 MPILM_FAULT=die@step8:rank1 train 2 stuck --checkpoint.async=false >log 2>&1
tap_ok $(($? == 0)) "the first start saved a step, so two more are not three"
SLURM_RESTART_COUNT=4 tap_exit 76 "three that saved none are" -- train 2 stuck
tap_like "$tap_err" "stuck: the last 3 starts saved no new step: step 5 .* step 7 .* on $(hostname); .*killed" \
  "steps, hosts and cause are named"
tap_is "$(field restart stuck)" "0 1 2 3 " "a start that is refused leaves no entry"
tap_exit 75 "what is mended goes on" -- train 2 stuck --run.max_stalled=0 --run.stop_after=9
tap_exit 0 "and with progress no option is needed" -- train 2 stuck
tap_is "$(field exit stuck)" "null null null null 75 0 " "ends that were no deaths are told"
unset SLURM_JOB_ID

# An error that the program itself sees is kept, with the host.
for _ in 1 2 3; do
  MPILM_FAULT=grad_inf@step2:rank1 tap_exit 1 "a failure" -- train 2 failing --run.max_skipped=0
done
tap_like "$(cat failing/journal.jsonl)" '"exit": 1, "error": "step 2: 1 updates in a row were left out, the last one: not finite in' \
  "the journal has its sentence"
tap_exit 76 "three failures in a row" -- train 2 failing --run.max_skipped=0
tap_like "$tap_err" "the last error: step 2: 1 updates in a row" "the last error is told again"

# What the user has to mend is said each time, and is no sign of a bad cluster.
tap_exit 0 "a run" -- train 2 refused --run.steps=10
for _ in 1 2 3 4; do train 2 refused --run.seed=2 >log 2>&1; done
tap_like "$(cat log)" "another seed is another run" "refused four times for its seed"
tap_exit 0 "the fifth, with the right one" -- train 2 refused

# Entries are replaced whole; a torn one is a start that got nowhere.
tap_is "$(awk '{ print (length($0) > 1500) }' refused/journal.jsonl | sort -u)" 1 "entries keep their length"
for _ in 1 2 3; do printf '{"start": "2026' && echo; done >>refused/journal.jsonl
tap_exit 76 "three torn entries" -- train 2 refused --run.steps=40
printf '{"start": "2026' >torn
tap_exit 75 "a run" -- train 2 unfinished --run.stop_after=2
cat torn >>unfinished/journal.jsonl
tap_exit 0 "a torn last entry is left behind" -- train 2 unfinished
tap_is "$(grep -c '"exit"' unfinished/journal.jsonl) $(wc -l <unfinished/journal.jsonl)" "2 3" "on a line of its own"

mkdir -p blocked/journal.jsonl
tap_alone lm_journal_open 2 "rank 0 .*blocked/journal.jsonl" "rank 0, which has it, cannot read it" -- train 2 blocked
tap_end
