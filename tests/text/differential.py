#!/usr/bin/env python3
"""tests/text/differential.py - random texts through mpilm encode and through tiktoken: the ids must be the same.

    python3 tests/text/differential.py MPILM TOKENIZERS [TEXTS [SEED]]

TOKENIZERS is a folder with gpt2.tiktoken, cl100k_base.tiktoken and o200k_base.tiktoken. Where the module tokenizers is
there too, what mpilm vocab export writes is loaded by it and compared as well. Exit code 77: a module is missing.
"""
# SPDX-License-Identifier: BSD-3-Clause
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tiktoken
except ImportError:
    print("the Python module tiktoken is not here")
    sys.exit(77)
try:
    import tokenizers
except ImportError:
    tokenizers = None

WORDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k_base": WORDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k_base": "|".join([
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + WORDS + "?",
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + WORDS + "?",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]),
}
BITS = [" ", "  ", "\n", "\r\n", "\t", "a", "B", "the", "ing", "é", "e\u0301", "'s", "'S", "'LL", "'ll", "'Ve", "’t", "1",
        "23", "456", "7890", "²", "\u0663", "\u00a0", "\u0085", "\u3000", "\u200b", "\ufeff", "\u180e", "\0", "\x1c", "!",
        "?!", "--", "####", "_", '"', "<|", "|>", "endoftext", "日本", "一", "가", "\u0939", "\u093f", "\u0e17\u0e35\u0e48",
        "\u0645", "\U0001F600", "\U0001F44D\U0001F3FD", "\u200d", "\u2028", "\x0b", "\x0c", "\xad", "x", "Y", "Z9", ".",
        ",", ";", ":", "/", "\\", "{", "}", "=", "ß", "ſ", "'ſ", "ǅ", "ʰ", "\u0301", "Ⅰ", "'", "\n\n", "//", "/\n",
        "Hello", "WORLD", "İ", "\u212a"]


def random_text(rng):
    if rng.random() < 0.7:
        return "".join(rng.choice(BITS) for _ in range(rng.randrange(1, 14)))
    # Characters up to U+30000 that Python's Unicode assigns, so that a newer Unicode elsewhere makes no difference.
    limit = rng.choice([0x7f, 0x3000, 0x30000])
    draws = [chr(rng.randrange(limit)) for _ in range(rng.randrange(1, 12))]
    return "".join(c for c in draws if unicodedata.category(c) not in ("Cn", "Cs"))


def text_of_tokens(rng, tokens):
    """Tokens with bytes beyond ASCII, in long pieces: what could lie across a cut inside one."""
    return b"".join(rng.choice(tokens) for _ in range(rng.randrange(4, 30))).decode(errors="ignore")


def compare(what, texts, got, want):
    bad = [(t, g, w) for t, g, w in zip(texts, got, want) if g != w]
    for t, g, w in bad[:5]:
        print(f"{what}: {ascii(t)}: {g}, want {w}")
    print(f"{what}: {len(texts)} texts, {len(bad)} differ")
    return len(bad)


def compare_nfc(mpilm, name, loaded, lines, texts, plain):
    """The same vocabulary with the normalizer NFC, as Qwen has it."""
    loaded.normalizer = tokenizers.normalizers.NFC()
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tokenizer.json")
        loaded.save(path)
        out = subprocess.run([mpilm, "encode", "--vocab", path, "--jsonl"], input=lines, capture_output=True, check=True)
    got = [[int(x) for x in line.split()] for line in out.stdout.decode().split("\n")]
    # That library's tables are of an older Unicode, in which some marks of today had no combining class.
    plain = [i for i in plain if not any(unicodedata.combining(c) and unicodedata.ucd_3_2_0.category(c) == "Cn"
                                         for c in texts[i])]
    want = [loaded.encode(texts[i], add_special_tokens=False).ids for i in plain]
    return compare(name + " with NFC", [texts[i] for i in plain], [got[i] for i in plain], want)


def main():
    mpilm, folder = sys.argv[1:3]
    count, seed = (int(sys.argv[3]) if len(sys.argv) > 3 else 20000), (int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    rng = random.Random(seed)
    tokens = [base64.b64decode(line.split()[0]) for name in PATTERNS
              for line in open(os.path.join(folder, name + ".tiktoken"), "rb") if line.strip()]
    tokens = [t for t in tokens if max(t) > 0x7f]
    texts = [random_text(rng) if k % 3 else text_of_tokens(rng, tokens) for k in range(count)]
    lines = "\n".join(json.dumps({"text": t}) for t in texts).encode()
    bad = 0
    for name, pattern in PATTERNS.items():
        path = os.path.join(folder, name + ".tiktoken")
        with open(path, "rb") as f:
            ranks = {base64.b64decode(b): int(r) for b, r in (line.split() for line in f if line.strip())}
        oracle = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        want = [oracle.encode_ordinary(t) for t in texts]
        out = subprocess.run([mpilm, "encode", "--vocab", path, "--jsonl"], input=lines, capture_output=True, check=True)
        got = [[int(x) for x in line.split()] for line in out.stdout.decode().split("\n")]
        bad += compare(name, texts, got, want)
        if tokenizers is not None:
            with tempfile.TemporaryDirectory() as scratch:
                saved = os.path.join(scratch, "tokenizer.json")
                subprocess.run([mpilm, "vocab", "export", path, "--out", saved], check=True)
                loaded = tokenizers.Tokenizer.from_file(saved)
            plain = [i for i, t in enumerate(texts) if "<|" not in t]  # it always looks for special tokens
            got = [loaded.encode(texts[i], add_special_tokens=False).ids for i in plain]
            bad += compare(name + " exported", [texts[i] for i in plain], got, [want[i] for i in plain])
            bad += compare_nfc(mpilm, name, loaded, lines, texts, plain)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
