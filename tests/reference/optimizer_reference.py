#!/usr/bin/env python3
# tests/reference/optimizer_reference.py - five updates by PyTorch's optimizers in float64, as text for
# tests/optim/test_optimizer.c: python3 optimizer_reference.py > tests/optim/torch_updates.txt
# SPDX-License-Identifier: BSD-3-Clause
import torch

STEPS, SCALE, DECAY = 5, 0.5, 0.1
SHAPES = {"matrix": (5, 7), "vector": (9,)}  # the matrix is decayed, the vector is not


def rates(step):
    return 1e-2 * (step + 1) / 3 if step < 3 else 8e-3


def draw(generator, shape, size):
    """Values that float32 holds exactly."""
    return (size * torch.randn(shape, generator=generator, dtype=torch.float64)).float().double()


def show(name, values):
    print(name, values.numel())
    print(" ".join(f"{x:.17g}" for x in values.flatten().tolist()))


def run(kind, weights, gradients):
    params = {name: torch.nn.Parameter(w.clone()) for name, w in weights.items()}
    if kind == "adamw":
        groups = [{"params": [p], "weight_decay": DECAY if n == "matrix" else 0.0} for n, p in params.items()]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    else:
        optimizer = torch.optim.SGD(params.values(), lr=1.0, momentum=0.0 if kind == "sgd" else 0.9,
                                    nesterov=kind == "sgd_nesterov")
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rates(step)
        for name, p in params.items():
            p.grad = SCALE * gradients[step][name]
            if kind != "adamw" and name == "matrix":  # PyTorch's SGD has no decay apart from the gradient
                p.data.mul_(1 - rates(step) * DECAY)
        optimizer.step()
    for name, p in params.items():
        show(f"{kind} {name}", p.data)
        state = optimizer.state[p]
        for key in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            if state.get(key) is not None:
                show(f"{kind} {name} {key.replace('_buffer', '')}", state[key])


def main():
    generator = torch.Generator().manual_seed(7)
    weights = {name: draw(generator, shape, 0.5) for name, shape in SHAPES.items()}
    gradients = [{name: draw(generator, shape, 2.0) for name, shape in SHAPES.items()} for _ in range(STEPS)]
    for name in SHAPES:
        show(f"start {name}", weights[name])
        for step in range(STEPS):
            show(f"gradient {name} {step}", gradients[step][name])
    for kind in ("adamw", "sgd", "sgd_momentum", "sgd_nesterov"):
        run(kind, weights, gradients)


main()
