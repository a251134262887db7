#!/usr/bin/env bash
# tests/text/differential.sh - random texts: the ids of tiktoken and of Hugging Face's tokenizers, where Python has them.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
[ -r "${MPILM_SHARED:-}/tokenizers/o200k_base.tiktoken" ] || tap_skip_all "the vocabularies are not here (MPILM_SHARED)"
"${PYTHON:-python3}" "$srcdir/tests/text/differential.py" "$MPILM" "$MPILM_SHARED/tokenizers" 5000 >differential.out 2>&1
status=$?
[ $status -eq 77 ] && tap_skip_all "$(cat differential.out)"
sed 's/^/# /' differential.out
tap_ok $status "no text of 5000 has other ids"
tap_end
