# tests/tap.sh - checks in TAP for scripts. Source it; end with `tap_end`.
# shellcheck shell=bash
tap_n=0 tap_failed=0

tap_ok() { # STATUS WORDS...: ok where STATUS is 0
  local status=$1
  shift
  tap_n=$((tap_n + 1))
  if [ "$status" -eq 0 ]; then
    echo "ok $tap_n - $*"
  else
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_n - $*"
  fi
}

tap_is() { # GOT WANT WORDS...: ok where both are the same text
  if [ "$1" = "$2" ]; then tap_ok 0 "${@:3}"; else
    tap_ok 1 "${@:3}"
    printf '# got  %s\n# want %s\n' "${1//$'\n'/$'\n#      '}" "${2//$'\n'/$'\n#      '}"
  fi
}

tap_like() { # TEXT REGEX WORDS...: ok where the extended regular expression is found in the text
  if grep -Eq -- "$2" <<<"$1"; then tap_ok 0 "${@:3}"; else
    tap_ok 1 "${@:3}"
    printf '# got  %s\n# want %s\n' "${1//$'\n'/$'\n#      '}" "$2"
  fi
}

tap_exit() { # WANTED-CODE WORDS... -- COMMAND...: run it; ok where it exits so; output in $tap_out, errors in $tap_err
  local want=$1 words=()
  shift
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  "$@" >tap.out 2>tap.err
  local got=$?
  tap_out=$(tr -d '\0' <tap.out) tap_err=$(cat tap.err)
  if [ $got -eq "$want" ]; then tap_ok 0 "${words[*]}"; else
    tap_ok 1 "${words[*]}"
    printf '# exit code %s, want %s: %s\n' "$got" "$want" "$*"
    sed 's/^/# /' tap.err | tail -n 20
  fi
}

tap_alone() { # FUNCTION CODE REGEX WORDS... -- COMMAND...: a Collective function fails on one rank alone of COMMAND; ok where
  # all ranks end, with the exit code CODE, and the sentence is said once (tests/repo/collective.sh wants these)
  local function=$1 want=$2 regex=$3 words=()
  shift 3
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  tap_exit "$want" "$function, one rank alone: ${words[*]}" -- "$@"
  [ "$(grep -cE -- "^mpilm: .*($regex)" <<<"$tap_err")" -eq 1 ]
  tap_ok $? "one sentence says why: $(grep -m 1 '^mpilm: ' <<<"$tap_err")"
}

tap_skip_all() {
  echo "1..0 # SKIP $*"
  exit 0
}

tap_skip() { # REASON WORDS...: one check that this machine cannot make
  tap_n=$((tap_n + 1))
  echo "ok $tap_n - ${*:2} # SKIP $1"
}

ranks() { # N COMMAND...: the command on N ranks
  local n=$1
  shift
  # shellcheck disable=SC2086
  timeout --kill-after=10 "${MPILM_TEST_TIMEOUT:-120}" ${MPIRUN:-mpirun} -n "$n" ${MPIRUN_FLAGS-} "$@"
}

tap_end() {
  echo "1..$tap_n"
  exit $((tap_failed > 0))
}
