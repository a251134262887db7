# benchmarks/tokenize_ratio.py - mpilm encode against tiktoken and tokenizers on the same text, in one run.
# usage: tokenize_ratio.py MPILM RANKS.tiktoken PATTERN TEXT   (needs the Python packages; one thread each)
# SPDX-License-Identifier: BSD-3-Clause
import base64, os, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
mpilm, vocab, pattern, path = sys.argv[1:5]
text = open(path, encoding="utf-8", errors="replace").read()
documents = [text[i:i + 4096] for i in range(0, len(text), 4096)]
mib = sum(len(d.encode()) for d in documents) / 2**20
best = {}


def keep(name, begin):
    best[name] = min(best.get(name, 1e9), time.perf_counter() - begin)


with tempfile.TemporaryDirectory() as folder:
    exported, lines = os.path.join(folder, "v.json"), os.path.join(folder, "t.jsonl")
    subprocess.run([mpilm, "vocab", "export", vocab, "--pattern", pattern, "--out", exported], check=True)
    import json

    with open(lines, "w") as f:
        for d in documents:
            f.write(json.dumps({"text": d}) + "\n")
    for _ in range(3):  # alternately, so that a busy machine is busy for all
        begin = time.perf_counter()
        subprocess.run([mpilm, "encode", "--vocab", vocab, "--pattern", pattern, "--jsonl"], stdin=open(lines),
                       stdout=subprocess.DEVNULL, check=True)
        keep("mpilm encode, whole command", begin)
        try:
            import tiktoken

            ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(vocab, "rb"))}
            regex = next(s["pattern"]["Regex"] for s in json.load(open(exported))["pre_tokenizer"].get(
                "pretokenizers", [{"pattern": {"Regex": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}}])
                if "pattern" in s)
            e = tiktoken.Encoding("x", pat_str=regex, mergeable_ranks=ranks, special_tokens={})
            begin = time.perf_counter()
            for d in documents:
                e.encode_ordinary(d)
            keep("tiktoken", begin)
        except ImportError:
            pass
        try:
            import tokenizers

            t = tokenizers.Tokenizer.from_file(exported)
            begin = time.perf_counter()
            for d in documents:
                t.encode(d, add_special_tokens=False)
            keep("tokenizers", begin)
        except ImportError:
            pass
for name, seconds in best.items():
    print(f"{name:30} {mib / seconds:8.1f} MiB/s  x{seconds / best['mpilm encode, whole command']:.1f}")
