#!/usr/bin/env python3
"""What tests/align/optimizer_test.cpp expects: optimizers on drawn gradients, and steps of a model whose losses are averaged in
both ways, by PyTorch in float64.

    python3 tests/data/replay/make_training.py
"""
import json
import math
import tomllib

import torch

from make import HERE, LENGTH, SEQUENCES, Step, drawn, initial, sums

LR, BETAS, DECAY, MOMENTUM = 1e-3, (0.9, 0.95), 0.1, 0.95
SHAPES = {
    "model.embed_tokens.weight": (7, 4),
    "model.norm.weight": (4,),
    "model.layers.0.self_attn.o_proj.weight": (4, 6),
    "model.layers.0.self_attn.q_proj.weight": (9, 4),
    "model.layers.1.mlp.gate.weight": (3, 4),
    "model.layers.1.mlp.experts.*.up_proj.weight": (3, 5, 4),
    "lm_head.weight": (7, 4),
}


def newton_schulz(g):
    """Moonlight's orthogonalization, without its bfloat16."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (torch.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon(p, g, buffer):
    """p: [.., rows, columns]; Nesterov's momentum, an update of AdamW's size."""
    buffer.mul_(MOMENTUM).add_(g)
    direction = g + MOMENTUM * buffer
    p.mul_(1 - LR * DECAY)
    if p.dim() == 2:
        p.sub_(LR * 0.2 * math.sqrt(max(p.shape)) * newton_schulz(direction))
        return
    for k in range(p.shape[0]):
        p[k].sub_(LR * 0.2 * math.sqrt(max(p.shape[1:])) * newton_schulz(direction[k]))


def of_muon(name, p, routers=True):
    return p.dim() > 1 and name not in ("model.embed_tokens.weight", "lm_head.weight") and (
        routers or not name.endswith(".gate.weight"))


class Formula:
    """p -= lr (update(m, v, step) + decay p), of what PyTorch does not have."""

    def __init__(self, update, decay, betas):
        self.update, self.decay, self.betas, self.state = update, decay, betas, {}

    def step(self, name, p, g, step):
        m, v = self.state.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
        m.mul_(self.betas[0]).add_((1 - self.betas[0]) * g)
        v.mul_(self.betas[1]).add_((1 - self.betas[1]) * g * g)
        p.sub_(LR * (self.update(m, v, 1 - self.betas[0]**step, 1 - self.betas[1]**step) + self.decay(p) * p))


def vectors_do_not(p):
    return DECAY if p.dim() > 1 else 0.0


def torch_optimizer(kind, decay, eps=1e-8):
    def make(parameters):
        return kind([{"params": [p], "weight_decay": decay(p)} for p in parameters], lr=LR, betas=BETAS, eps=eps)
    return make


def formula_optimizer(update, decay, betas=BETAS):
    return lambda parameters: Formula(update, decay, betas)


class Muon:
    def __init__(self, parameters, routers=True):
        self.rest = torch_optimizer(torch.optim.AdamW, vectors_do_not)(parameters)
        self.buffers, self.routers = {}, routers

    def step(self, parameters):
        for name, p in parameters.items():
            if p.grad is not None and of_muon(name, p, self.routers):
                muon(p, p.grad, self.buffers.setdefault(name, torch.zeros_like(p)))
                p.grad = None
        self.rest.step()


def nothing(p):
    return 0.0


OPTIMIZERS = {
    "adamw": formula_optimizer(lambda m, v, c1, c2: m / c1 / (torch.sqrt(v / c2) + 1e-8), vectors_do_not),
    "adam-l2": torch_optimizer(torch.optim.Adam, vectors_do_not),
    "torch-adamw": torch.optim.AdamW,
    "torch-adam": torch.optim.Adam,
    "torch-adamw,beta2=0.95,eps=0.1,weight_decay=0.1,decay=matrices": torch_optimizer(torch.optim.AdamW, vectors_do_not, 0.1),
    "mindspore-adamw": formula_optimizer(lambda m, v, c1, c2: m / (torch.sqrt(v) + 1e-6), nothing, (0.9, 0.999)),
    "eps-hat,eps=0.1": formula_optimizer(
        lambda m, v, c1, c2: math.sqrt(c2) / c1 * m / (torch.sqrt(v) + 0.1), vectors_do_not),
    "muon": Muon,
    "muon,muon_routers=0": lambda parameters: Muon(parameters, routers=False),
}


def optimize(make, steps=3):
    parameters = {name: initial(name, shape).requires_grad_() for name, shape in SHAPES.items()}
    optimizer = make(list(parameters.values()))
    with torch.no_grad():
        for step in range(1, steps + 1):
            for name, p in parameters.items():
                p.grad = torch.from_numpy(drawn(f"gradient {step} of {name}", p.numel()).reshape(p.shape))
                if isinstance(optimizer, Formula):
                    optimizer.step(name, p, p.grad, step)
            if isinstance(optimizer, Muon):
                optimizer.step(parameters)
            elif not isinstance(optimizer, Formula):
                optimizer.step()
    return {name: sums("gradient of " + name, p) for name, p in parameters.items()}


def train(model, by_token, micro_batches=2, prompt=1.0):
    """One step of Muon, after clipping."""
    parameters, runs = {}, []
    for number in range(micro_batches):
        step = Step(model, number, prompt, parameters)
        runs.append((*step.run(), step.valid_targets))
    targets = sum(n for _, _, n in runs)
    total = 0
    for of_targets, of_routers, n in runs:
        if by_token:
            total = total + (n * of_targets + SEQUENCES * LENGTH * of_routers) / targets
        else:
            total = total + (of_targets + of_routers) / micro_batches
    total.backward()
    with torch.no_grad():
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0).item()
        Muon(list(parameters.values())).step(parameters)
    return {"valid_targets": [n for _, _, n in runs], "total": total.item(), "norm": norm,
            "updated": {name: sums("gradient of " + name, p) for name, p in parameters.items()}}


def main():
    model = tomllib.loads((HERE.parent / "models" / "everything.toml").read_text())
    expected = {"optimizers": {name: optimize(make) for name, make in OPTIMIZERS.items()},
                "averages": {name: train(model, name == "tokens") for name in ("micro_batches", "tokens")}}
    (HERE / "training.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
