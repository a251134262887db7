#!/usr/bin/env python3
"""tests/reference/gpt2_reference.py - a GPT-2 in PyTorch, float64 and autograd: what tests/model/*.txt hold.

    python3 tests/reference/gpt2_reference.py tests/model

PyTorch is needed only here, to make the files again; testing reads them as they are.
A file is a run of tensors, "NAME ROWS COLUMNS" and then the values; weights are multiples of 1/64, so they are exact in
float32. The forward pass is written from Radford et al. 2019 and torch's own functions, the backward pass is autograd's.
"""
# SPDX-License-Identifier: BSD-3-Clause
import sys

import torch
import torch.nn.functional as F

B, T, V, L, H, C, N_CTX = 3, 7, 37, 2, 2, 10, 9
IGNORED = -1


def make_weights(tied, bias, random):
    def tensor(*shape, deviation, mean=0.0):
        x = mean + deviation * torch.randn(*shape, generator=random, dtype=torch.float64)
        return (torch.round(x * 64) / 64).requires_grad_()

    def norm(name):
        w[name + "/weight"] = tensor(C, deviation=0.3, mean=1.0)
        if bias:
            w[name + "/bias"] = tensor(C, deviation=0.3)

    def linear(name, n_out, n_in):
        w[name + "/weight"] = tensor(n_out, n_in, deviation=1.2 / n_in**0.5)
        if bias:
            w[name + "/bias"] = tensor(n_out, deviation=0.3)

    w = {"token_embedding/weight": tensor(V, C, deviation=0.5), "position_embedding/weight": tensor(N_CTX, C, deviation=0.5)}
    for i in range(L):
        norm(f"layers/{i}/attention_norm")
        linear(f"layers/{i}/attention/qkv", 3 * C, C)
        linear(f"layers/{i}/attention/out", C, C)
        norm(f"layers/{i}/mlp_norm")
        linear(f"layers/{i}/mlp/up", 4 * C, C)
        linear(f"layers/{i}/mlp/down", C, 4 * C)
    norm("final_norm")
    if not tied:
        w["head/weight"] = tensor(V, C, deviation=0.5)
    return w


def norm(w, name, x):
    return F.layer_norm(x, (C,), w[name + "/weight"], w.get(name + "/bias"), eps=1e-5)


def linear(w, name, x):
    return F.linear(x, w[name + "/weight"], w.get(name + "/bias"))


def forward(w, tokens):
    x = w["token_embedding/weight"][tokens] + w["position_embedding/weight"][:T]
    for i in range(L):
        layer = f"layers/{i}"
        qkv = linear(w, layer + "/attention/qkv", norm(w, layer + "/attention_norm", x))
        q, k, v = (part.reshape(B, T, H, C // H).transpose(1, 2) for part in qkv.split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(w, layer + "/attention/out", y.transpose(1, 2).reshape(B, T, C))
        up = linear(w, layer + "/mlp/up", norm(w, layer + "/mlp_norm", x))
        x = x + linear(w, layer + "/mlp/down", F.gelu(up, approximate="tanh"))
    return F.linear(norm(w, "final_norm", x), w.get("head/weight", w["token_embedding/weight"]))


def write(path, tensors):
    with open(path, "w", encoding="ascii") as f:
        for name, x in tensors.items():
            x = x.detach()
            x = x.reshape(x.shape[0] if x.dim() > 0 else 1, -1)
            f.write(f"{name} {x.shape[0]} {x.shape[1]}\n")
            for row in x.tolist():
                f.write(" ".join(f"{value:.9g}" for value in row) + "\n")


def main():
    for seed, (tied, bias) in enumerate([(True, True), (False, False)]):
        random = torch.Generator().manual_seed(seed)
        w = make_weights(tied, bias, random)
        tokens = torch.randint(0, V, (B, T), generator=random)
        targets = torch.randint(0, V, (B, T), generator=random)
        targets[0, 2] = targets[2, T - 1] = IGNORED
        logits = forward(w, tokens)
        loss = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=IGNORED, reduction="sum")
        loss.backward()
        tensors = {"config": torch.tensor([V, L, H, C, N_CTX, tied, bias]), "tokens": tokens, "targets": targets}
        tensors |= {"weight:" + name: x for name, x in w.items()}
        tensors |= {"logits": logits.reshape(B * T, V), "loss": loss}
        tensors |= {"gradient:" + name: x.grad for name, x in w.items()}
        name = f"gpt2_{'tied' if tied else 'untied'}_{'bias' if bias else 'no_bias'}.txt"
        write(f"{sys.argv[1]}/{name}", tensors)


main()
