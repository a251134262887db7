#!/usr/bin/env bash
# tests/repo/collective.sh - for each Collective function that can fail there is a test in which one rank alone does.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 99

# "HEADER FUNCTION KIND": every function of a header that returns a status. A comment speaks for the declarations below
# it, up to an empty line. KIND is what it says of itself: Local, Collective, or - where it says neither.
functions() {
  find src hdf5 kernels slurm -name '*.h' | sort | xargs awk '
    FNR == 1 || /^$/ { comment = ""; declaration = "" }
    /^ *\/\*/ { comment = ""; inside = 1 }
    inside { comment = comment $0 " "; if (/\*\//) inside = 0; next }
    declaration != "" || /^lm_status / {
      declaration = declaration $0 " "
      if (!/;$/) next
      if (match(declaration, /lm_[a-z0-9_]+\(/)) {
        kind = comment ~ /Collective/ ? "Collective" : comment ~ /Local/ ? "Local" : "-"
        takes_ranks = declaration ~ /lm_comm \*/ ? "ranks" : ""
        print FILENAME, substr(declaration, RSTART, RLENGTH - 1), kind, takes_ranks
      }
      declaration = ""
    }'
}

untested() {
  functions | while read -r header name kind _; do
    [ "$kind" = Collective ] || continue
    grep -rqE "\btap_alone(_no_memory\(|\(| )$name\b" --include='*.c' --include='*.sh' tests ||
      echo "$header: $name is Collective, and no test has one rank alone failing in it: add a tap_alone($name, ...) or" \
        "tap_alone_no_memory($name, ...) of tests/tap.h to a test, or a 'tap_alone $name ...' of tests/tap.sh to a script"
  done
}
tap_is "$(untested)" "" "each Collective function that can fail has a test in which one rank alone fails"

silent() {
  functions | while read -r header name kind ranks; do
    [ "$kind$ranks" != "-ranks" ] || echo "$header: $name takes the ranks; its comment says neither Local nor Collective"
  done
}
tap_is "$(silent)" "" "a function that takes the ranks says whether it is Local or Collective"
[ "$(functions | grep -c ' Collective ')" -gt 20 ]
tap_ok $? "the headers were read"
tap_end
