# benchmarks/vocab_ratio.py - mpilm vocab train against Hugging Face's BpeTrainer on the same text, in one run.
# usage: vocab_ratio.py MPILM TEXT [SIZE [RUNS]]   (needs the Python package tokenizers)
# SPDX-License-Identifier: BSD-3-Clause
import os, resource, subprocess, sys, tempfile, time

mpilm, text = sys.argv[1:3]
size, runs = (int(sys.argv[3]) if len(sys.argv) > 3 else 32768), (int(sys.argv[4]) if len(sys.argv) > 4 else 2)
folder = tempfile.TemporaryDirectory()
path, out = os.path.join(folder.name, "text.txt"), os.path.join(folder.name, "v.json")
with open(text, encoding="utf-8", errors="replace") as f, open(path, "w", encoding="utf-8") as g:
    g.write(f.read())  # their reader takes no bytes that are not UTF-8
theirs = f"""
import tokenizers
t = tokenizers.Tokenizer(tokenizers.models.BPE())
t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = tokenizers.trainers.BpeTrainer(vocab_size={size}, special_tokens=["<|endoftext|>"], show_progress=False,
                                         initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
t.train([{path!r}], trainer)
assert t.get_vocab_size() == {size}
"""
best = {}


def timed(name, command, **more):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **more)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    best[name] = tuple(map(min, best.get(name, (1e9, 1e9)), (wall, cpu)))


train = [mpilm, "vocab", "train", "--size", str(size), "--out", out, path]
one = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
two = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS="2")
for _ in range(runs):  # alternately, so that a busy machine is busy for all
    timed("mpilm, 1 rank", train, env=one)
    timed("tokenizers, 1 thread", [sys.executable, "-c", theirs], env=one)
    timed("mpilm, 2 ranks", ["mpirun", "--oversubscribe", "-n", "2"] + train, env=two)
    timed("tokenizers, 2 threads", [sys.executable, "-c", theirs], env=two)
print(f"{size} ids from {os.path.getsize(path) / 2**20:.1f} MiB; the best of {runs} runs")
for name, (wall, cpu) in best.items():
    other = best["tokenizers, 1 thread" if "1 rank" in name else "tokenizers, 2 threads"] if "mpilm" in name else None
    ratio = f"  {other[0] / wall:.2f} times as fast, {other[1] / cpu:.2f} by processor time" if other else ""
    print(f"{name:24} {wall:7.2f} s  processor {cpu:7.2f} s{ratio}")
