#!/usr/bin/env python3
"""tests/reference/model_reference.py - GPT-2 and Llama in PyTorch, float64 and autograd: what tests/model/*.txt hold.

    python3 tests/reference/model_reference.py tests/model

PyTorch is needed only here, to make the files again; testing reads them as they are. Where transformers is installed too,
the Llamas are compared with its LlamaForCausalLM on the way.
A file is a run of tensors, "NAME ROWS COLUMNS" and then the values; weights are multiples of 1/64, so they are exact in
float32. The forward pass is written from the papers that kernels/kernels.h names, with torch's own functions where it has
them; the backward pass is autograd's, the optimizer torch.optim.AdamW.
"""
# SPDX-License-Identifier: BSD-3-Clause
import math
import sys

import torch
import torch.nn.functional as F

B, T, V = 3, 7, 37
IGNORED = -1
STEPS, LR, BETAS, DECAY = 5, 0.01, (0.9, 0.95), 0.1
# Large, because some gradients are 0 but for rounding (those of the keys' biases), and AdamW makes full steps of noise.
EPS = 1e-3

GPT2 = {"L": 2, "H": 2, "H_kv": 2, "C": 10, "F": 40, "n_ctx": 9, "rms": False, "swiglu": False, "rope": False}
LLAMA = {"L": 2, "H": 4, "H_kv": 2, "C": 24, "F": 20, "n_ctx": 9, "rms": True, "swiglu": True, "rope": True}
ROPE = {"base": 20.0, "scaling": False, "factor": 1.0, "low": 1.0, "high": 4.0, "ctx": 32.0}
COMMON = {"tied": False, "bias": False, "qk_norm": False, "eps": 1e-5} | ROPE
MODELS = {
    "gpt2_tied_bias": COMMON | GPT2 | {"tied": True, "bias": True},
    "gpt2_untied_no_bias": COMMON | GPT2,
    "llama_tied": COMMON | LLAMA | {"tied": True, "eps": 1e-6},
    "llama_untied_scaled": COMMON | LLAMA | {"L": 1, "scaling": True, "factor": 8.0},
    "llama_qk_norm_bias": COMMON | LLAMA | {"L": 1, "qk_norm": True, "bias": True, "H_kv": 1},
}
KEYS = ["L", "H", "H_kv", "C", "F", "n_ctx", "tied", "bias", "rms", "swiglu", "rope", "qk_norm", "eps"] + list(ROPE)


def make_weights(c, random):
    def tensor(*shape, deviation, mean=0.0):
        x = mean + deviation * torch.randn(*shape, generator=random, dtype=torch.float64)
        return (torch.round(x * 64) / 64).requires_grad_()

    def norm(name):
        w[name + "/weight"] = tensor(c["C"], deviation=0.3, mean=1.0)
        if c["bias"] and not c["rms"]:
            w[name + "/bias"] = tensor(c["C"], deviation=0.3)

    def linear(name, n_out, n_in):
        w[name + "/weight"] = tensor(n_out, n_in, deviation=1.2 / n_in**0.5)
        if c["bias"]:
            w[name + "/bias"] = tensor(n_out, deviation=0.3)

    C, D = c["C"], c["C"] // c["H"]
    w = {"token_embedding/weight": tensor(V, C, deviation=0.5)}
    if not c["rope"]:
        w["position_embedding/weight"] = tensor(c["n_ctx"], C, deviation=0.5)
    for i in range(c["L"]):
        norm(f"layers/{i}/attention_norm")
        linear(f"layers/{i}/attention/qkv", (c["H"] + 2 * c["H_kv"]) * D, C)
        if c["qk_norm"]:
            w[f"layers/{i}/attention/q_norm/weight"] = tensor(D, deviation=0.3, mean=1.0)
            w[f"layers/{i}/attention/k_norm/weight"] = tensor(D, deviation=0.3, mean=1.0)
        linear(f"layers/{i}/attention/out", C, C)
        norm(f"layers/{i}/mlp_norm")
        linear(f"layers/{i}/mlp/gate_up" if c["swiglu"] else f"layers/{i}/mlp/up", c["F"] * (1 + c["swiglu"]), C)
        linear(f"layers/{i}/mlp/down", C, c["F"])
    norm("final_norm")
    if not c["tied"]:
        w["head/weight"] = tensor(V, C, deviation=0.5)
    return w


def norm(c, w, name, x):
    if c["rms"]:
        return F.rms_norm(x, (c["C"],), w[name + "/weight"], eps=c["eps"])
    return F.layer_norm(x, (c["C"],), w[name + "/weight"], w.get(name + "/bias"), eps=c["eps"])


def linear(w, name, x):
    return F.linear(x, w[name + "/weight"], w.get(name + "/bias"))


def frequencies(c):
    """Radians a position of each pair; slowed down by the rule of Llama 3.1's model card, in terms of wavelengths."""
    D = c["C"] // c["H"]
    plain = [c["base"] ** (-2 * d / D) for d in range(D // 2)]
    if not c["scaling"]:
        return plain
    scaled = []
    for f in plain:
        wavelength = 2 * math.pi / f
        if wavelength < c["ctx"] / c["high"]:
            scaled.append(f)
        elif wavelength > c["ctx"] / c["low"]:
            scaled.append(f / c["factor"])
        else:
            smooth = (c["ctx"] / wavelength - c["low"]) / (c["high"] - c["low"])
            scaled.append((1 - smooth) * f / c["factor"] + smooth * f)
    return scaled


def turn(c, x):
    """x [B,heads,T,D] by its positions: a complex number for each pair (x[d], x[d + D/2])."""
    half = x.shape[3] // 2
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), torch.tensor(frequencies(c), dtype=torch.float64))
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], dim=3)


def attention(c, w, name, x):
    D, H, H_kv = c["C"] // c["H"], c["H"], c["H_kv"]
    q, k, v = linear(w, name + "/qkv", x).split([H * D, H_kv * D, H_kv * D], dim=2)
    q, k, v = (part.reshape(B, T, -1, D).transpose(1, 2) for part in (q, k, v))
    if c["qk_norm"]:
        q = F.rms_norm(q, (D,), w[name + "/q_norm/weight"], eps=c["eps"])
        k = F.rms_norm(k, (D,), w[name + "/k_norm/weight"], eps=c["eps"])
    if c["rope"]:
        q, k = turn(c, q), turn(c, k)
    k, v = (part.repeat_interleave(H // H_kv, dim=1) for part in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(w, name + "/out", y.transpose(1, 2).reshape(B, T, c["C"]))


def mlp(c, w, name, x):
    if c["swiglu"]:
        gate, up = linear(w, name + "/gate_up", x).chunk(2, dim=2)
        return linear(w, name + "/down", F.silu(gate) * up)
    return linear(w, name + "/down", F.gelu(linear(w, name + "/up", x), approximate="tanh"))


def forward(c, w, tokens):
    x = w["token_embedding/weight"][tokens]
    if not c["rope"]:
        x = x + w["position_embedding/weight"][:T]
    for i in range(c["L"]):
        x = x + attention(c, w, f"layers/{i}/attention", norm(c, w, f"layers/{i}/attention_norm", x))
        x = x + mlp(c, w, f"layers/{i}/mlp", norm(c, w, f"layers/{i}/mlp_norm", x))
    return F.linear(norm(c, w, "final_norm", x), w.get("head/weight", w["token_embedding/weight"]))


def loss_of(logits, targets, reduction):
    return F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=IGNORED, reduction=reduction)


def trained(c, w, tokens, targets):
    """The weights after STEPS updates with the gradient of the mean loss; matrices are decayed, nothing else."""
    w = {name: x.detach().clone().requires_grad_() for name, x in w.items()}
    matrices = [x for x in w.values() if x.dim() == 2]
    vectors = [x for x in w.values() if x.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=EPS
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(forward(c, w, tokens), targets, "mean").backward()
        optimizer.step()
    return w


def check_transformers(c, w, tokens, logits):
    """Its Llama computes norms and angles in float32: no closer than that."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return "not compared with transformers, which is not installed"
    if not c["rope"] or c["qk_norm"]:
        return "not a model of transformers' Llama"
    rope = {"rope_type": "default", "rope_theta": c["base"]}
    if c["scaling"]:
        rope |= {"rope_type": "llama3", "factor": c["factor"], "low_freq_factor": c["low"], "high_freq_factor": c["high"]}
        rope |= {"original_max_position_embeddings": int(c["ctx"])}
    config = LlamaConfig(
        vocab_size=V, hidden_size=c["C"], intermediate_size=c["F"], num_hidden_layers=c["L"], num_attention_heads=c["H"],
        num_key_value_heads=c["H_kv"], max_position_embeddings=64, rms_norm_eps=c["eps"], tie_word_embeddings=c["tied"],
        rope_theta=c["base"], rope_scaling=rope if c["scaling"] else None, rope_parameters=rope,
    )
    D, H, H_kv = c["C"] // c["H"], c["H"], c["H_kv"]
    state = {"model.embed_tokens.weight": w["token_embedding/weight"], "model.norm.weight": w["final_norm/weight"]}
    state["lm_head.weight"] = w.get("head/weight", w["token_embedding/weight"])
    for i in range(c["L"]):
        ours, its = f"layers/{i}/", f"model.layers.{i}."
        q, k, v = w[ours + "attention/qkv/weight"].split([H * D, H_kv * D, H_kv * D])
        gate, up = w[ours + "mlp/gate_up/weight"].chunk(2)
        state |= {its + "self_attn.q_proj.weight": q, its + "self_attn.k_proj.weight": k, its + "self_attn.v_proj.weight": v}
        state |= {its + "self_attn.o_proj.weight": w[ours + "attention/out/weight"]}
        state |= {its + "mlp.gate_proj.weight": gate, its + "mlp.up_proj.weight": up}
        state |= {its + "mlp.down_proj.weight": w[ours + "mlp/down/weight"]}
        state |= {its + "input_layernorm.weight": w[ours + "attention_norm/weight"]}
        state |= {its + "post_attention_layernorm.weight": w[ours + "mlp_norm/weight"]}
    model = LlamaForCausalLM(config).double()
    model.load_state_dict({name: x.detach() for name, x in state.items()})
    distance = (model(tokens).logits - logits).abs().max().item()
    assert distance < 1e-5, f"transformers' logits differ by {distance}"
    return f"transformers' logits differ by {distance:.1e}"


def write(path, tensors):
    with open(path, "w", encoding="ascii") as f:
        for name, x in tensors.items():
            x = x.detach()
            x = x.reshape(x.shape[0] if x.dim() > 0 else 1, -1)
            f.write(f"{name} {x.shape[0]} {x.shape[1]}\n")
            for row in x.tolist():
                f.write(" ".join(f"{value:.9g}" for value in row) + "\n")


def main():
    for seed, (name, c) in enumerate(MODELS.items()):
        random = torch.Generator().manual_seed(seed)
        w = make_weights(c, random)
        tokens = torch.randint(0, V, (B, T), generator=random)
        targets = torch.randint(0, V, (B, T), generator=random)
        targets[0, 2] = targets[2, T - 1] = IGNORED
        logits = forward(c, w, tokens)
        loss = loss_of(logits, targets, "sum")
        loss.backward()
        tensors = {"config": torch.tensor([V] + [float(c[key]) for key in KEYS], dtype=torch.float64)}
        tensors |= {"tokens": tokens, "targets": targets}
        tensors |= {"weight:" + name: x for name, x in w.items()}
        tensors |= {"logits": logits.reshape(B * T, V), "loss": loss}
        tensors |= {"gradient:" + name: x.grad for name, x in w.items()}
        tensors |= {"trained:" + name: x for name, x in trained(c, w, tokens, targets).items()}
        write(f"{sys.argv[1]}/{name}.txt", tensors)
        print(f"{name}: loss {loss.item():.6f}; {check_transformers(c, w, tokens, logits)}")


main()
