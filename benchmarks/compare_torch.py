#!/usr/bin/env python3
"""benchmarks/compare_torch.py - a GPT-2 training step here and in PyTorch, in turns, in one run.

    python3 benchmarks/compare_torch.py build/benchmarks/step [--T 64] [--B 4] [--precision f32|bf16] [--layers 12] [--rounds 3]

Both compute forward, backward, the gradient's norm and AdamW of GPT-2 124M (or fewer layers) on the same threads, PyTorch
with its fused attention and its fused AdamW; bf16 there is autocast with f32 weights. The best step of all rounds counts,
rounds take turns. Needs torch; prints one line a round and the ratio.
"""
import argparse
import json
import os
import subprocess
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.H, self.n1, self.n2 = H, nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (a.view(B, T, self.H, C // self.H).transpose(1, 2) for a in self.qkv(self.n1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, V, T, C, H, L):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H) for _ in range(L))
        self.norm = nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        z = self.norm(x) @ self.wte.weight.T
        return F.cross_entropy(z.float().view(-1, z.shape[-1]), targets.reshape(-1))


def make_torch_step(a):
    torch.manual_seed(1)
    model = GPT2(50257, a.T, 768, 12, a.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (a.B, a.T + 1))

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def best_of(step, n):
    best = float("inf")
    for _ in range(n):
        began = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - began)
    return best


def ours(a):
    command = [a.step, "--json", "--model.preset=gpt2-124m", f"--model.n_layer={a.layers}", f"--model.n_ctx={a.T}",
               "--model.vocab_size=50257", f"--batch.micro={a.B}", f"--precision={a.precision}", f"--run.steps={a.steps}"]
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    result = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    return a.B * a.T / result["tokens_per_s"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("step")
    p.add_argument("--T", type=int, default=64)
    p.add_argument("--B", type=int, default=4)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    step = make_torch_step(a)
    step()
    here, there = float("inf"), float("inf")
    for i in range(a.rounds):
        here = min(here, ours(a))
        there = min(there, best_of(step, a.steps))
        print(f"round {i + 1}: mpilm {1e3 * here:.1f} ms, PyTorch {torch.__version__} {1e3 * there:.1f} ms", flush=True)
    print(f"GPT-2 of {a.layers} layers, B={a.B} T={a.T}, {a.precision}, {a.threads} threads: "
          f"PyTorch / mpilm = {there / here:.2f}")


main()
