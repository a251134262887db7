#!/usr/bin/env bash
# tests/repo/scripts.sh - shell scripts pass shellcheck.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 99

mapfile -t scripts < <(
  find quickstart .ci tests slurm benchmarks -type f 2>/dev/null | sort | while read -r f; do
    [[ $f == *.sh ]] || head -n 1 "$f" | grep -aqE '^#!.*\b(ba)?sh\b' && echo "$f"
  done
)
if command -v shellcheck >/dev/null; then
  tap_is "$(shellcheck --shell=bash --severity=warning --exclude=SC1091,SC2034,SC2154 "${scripts[@]}" 2>&1)" "" \
    "${#scripts[@]} scripts pass shellcheck"
else
  tap_skip "no shellcheck" "scripts pass shellcheck"
fi
tap_end
