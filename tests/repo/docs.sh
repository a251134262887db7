#!/usr/bin/env bash
# tests/repo/docs.sh - what the documents name is there: files, functions, subcommands, options.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 99
docs=(README.md CONTRIBUTING.md doc/*.md)

missing_files() {
  grep -ohP '(?<!build/)\b(src|hdf5|kernels|tests|doc|presets)/[a-z0-9_/-]+\.[a-z]+\b' "${docs[@]}" | sort -u |
    while read -r f; do
      [ -e "$f" ] || echo "$f"
    done
}
tap_is "$(missing_files)" "" "files that the documents name exist"

missing_names() {
  grep -ohE '\blm_[a-z0-9_]+\b' "${docs[@]}" | sort -u | grep -v '^lm_x_' | while read -r f; do
    grep -rqw "$f" --include='*.h' src hdf5 kernels slurm || echo "$f"
  done
}
tap_is "$(missing_names)" "" "functions and types that the documents name exist"

missing_commands() {
  grep -ohE '\bmpilm [a-z]+' README.md doc/*.md | sort -u | while read -r _ c; do
    "$MPILM" "$c" --help >/dev/null 2>&1 || echo "$c"
  done
}
tap_is "$(missing_commands | grep -vx -e pre -e state -e tokens)" "" \
  "subcommands that the documents name exist"

tap_end
