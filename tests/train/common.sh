# tests/train/common.sh - a small text, its tokens, a config of TINY, and how to compare runs. Sourced after tap.sh.
# shellcheck shell=bash

# Sentences from a small grammar, by a linear congruential generator: learnable, and the same on every machine.
make_text() { # LINES SEED
  awk -v n="$1" -v s="$2" 'function pick(k) { s = (s * 1103515245 + 12345) % 2147483648; return int(s / 256) % k }
    BEGIN { split("the a one every", d); split("cat dog bird fish king child", w); split("sees likes finds follows", v)
      for (i = 0; i < n; i++) print d[pick(4) + 1], w[pick(6) + 1], v[pick(4) + 1], d[pick(4) + 1], w[pick(6) + 1] "." }'
}

make_data() { # train.h5 and val.h5, byte vocabulary
  make_text 400 1 >train.txt
  make_text 40 2 >val.txt
  "$MPILM" tokenize --vocab bytes --out train.h5 train.txt >/dev/null 2>&1 &&
    "$MPILM" tokenize --vocab bytes --out val.h5 val.txt >/dev/null 2>&1
}

# TINY: 2 layers, 2 heads, width 32, context 16, 257 tokens: 34,208 parameters.
make_config() { # FILE
  cat >"$1" <<'YAML'
model:
  preset: tiny
data:
  train: train.h5
  val: val.h5
  vocab: bytes
batch:
  global: 12
  micro: 4
precision: f32
optim:
  lr: 1e-3
schedule:
  warmup: 5
run:
  steps: 20
checkpoint:
  every: 5
  keep: 0
YAML
}

train() { # RANKS FOLDER OVERRIDES...
  local n=$1 folder=$2
  shift 2
  ranks "$n" "$MPILM" train config.yaml --run.folder="$folder" "$@"
}

column() { # KEY FOLDER: one value a step
  sed -n 's/.*"'"$1"'": \([^,}]*\)[,}].*/\1/p' "$2/metrics.jsonl"
}

largest_difference() { # KEY FOLDER-A FOLDER-B: of any step, relative; "inf" where the steps are not as many
  paste <(column "$1" "$2") <(column "$1" "$3") |
    awk 'NF != 2 { print "inf"; bad = 1; exit } { d = ($1 - $2) / $2; d = d < 0 ? -d : d; if (d > m) m = d }
      END { if (!bad) print m + 0 }'
}

close_to() { # KEY FOLDER-A FOLDER-B TOLERANCE WORDS...
  local d
  d=$(largest_difference "$1" "$2" "$3")
  awk -v d="$d" -v t="$4" -v n="$(column "$1" "$2" | wc -l)" 'BEGIN { exit !(d != "inf" && d <= t && n > 0) }'
  tap_ok $? "${*:5} ($1: largest difference $d)"
}

same() { # FOLDER-A FOLDER-B WORDS...: losses, norms and rates of every step, to the last digit
  local key=0 a b
  for key in step loss grad_norm lr tokens; do
    a=$(column $key "$1") b=$(column $key "$2")
    [ -n "$a" ] && [ "$a" = "$b" ] || {
      tap_ok 1 "${*:3} ($key differs)"
      return
    }
  done
  tap_ok 0 "${*:3}"
}

last_checkpoint() { # FOLDER
  find "$1/checkpoints" -name 'step-*.h5' | sort | tail -n 1
}
