#!/usr/bin/env bash
# tests/slurm/preflight.sh - mpilm check: looks at nodes in seconds, and names the one that is not like the others.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
tap_exit 0 "3 ranks" -- ranks 3 "$MPILM" check config.yaml --run.folder=run
tap_is "$(grep -cE '^ +[0-2] +[0-2] +'"$(hostname)" <<<"$tap_out")" 3 "a line a rank"
tap_like "$tap_out" "all-reduce [0-9.]+ GB/s" "and the all-reduce"
tap_is "$(find run -type f)" "" "nothing stays in the run folder"
tap_exit 0 "no config, JSON" -- ranks 2 "$MPILM" check --json
tap_like "$tap_out" '"ranks":2.*"gflops":[1-9]' "one object"

first=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
tap_exit 0 "2 threads on a core" -- env OMP_NUM_THREADS=2 taskset -c "$first" "$MPILM" check config.yaml --run.folder=run
tap_like "$tap_err" "2 threads a rank, but 1 core:" "are warned of"

check() { # WORDS...: rank 0 as it should be, rank 1 otherwise
  timeout 60 "${MPIRUN:-mpirun}" -n 1 "$MPILM" check config.yaml --run.folder=run : -n 1 "$@"
}
{ cat "$MPILM" && echo; } >other && chmod +x other
tap_exit 2 "another program on rank 1" -- check ./other check config.yaml --run.folder=run
tap_like "$tap_err" "rank 1 on $(hostname) runs another program .* than rank 0" "is named"
tap_exit 2 "another config on rank 1" -- check "$MPILM" check config.yaml --run.folder=run --optim.lr=2e-3
tap_like "$tap_err" "rank 1 on $(hostname) has another config .* than rank 0" "is named"
tap_alone lm_preflight_run 2 "rank 1 .*elsewhere.h5" "rank 1 has no data" -- \
  check "$MPILM" check config.yaml --run.folder=run --data.train=elsewhere.h5
tap_exit 2 "a run folder on a file system that is not mounted" -- ranks 2 "$MPILM" check config.yaml --run.folder="$PWD/disk/user/run"
tap_like "$tap_err" "$PWD/disk/user: cannot find the folder" "is said"
tap_is "$(ls -d disk 2>/dev/null)" "" "and nothing is made"
tap_exit 2 "validation data that are not there" -- ranks 2 "$MPILM" check config.yaml --run.folder=run --data.val=nothere.h5
tap_like "$tap_err" "nothere.h5: cannot open" "are missed before the run"
tap_exit 2 "a run folder that cannot be" -- ranks 2 "$MPILM" check config.yaml --run.folder=config.yaml/run
tap_like "$tap_err" "config.yaml" "is named"
tap_exit 2 "no such backend" -- ranks 2 "$MPILM" check config.yaml --run.folder=run --backend=cuda
tap_is "$(grep -c '^mpilm: ' <<<"$tap_err")" 1 "in one sentence"
tap_end
