"""Optimizer steps: cases from torch.optim in float64 where it has the variant, else from the plain formula (optax's
eps_root, TensorFlow's epsilon hat, Muon, whose torch version iterates in bfloat16). Run in this folder."""
import math

import torch
from case import values, write_case

SHAPE, STEPS = (3, 4), 4


def case(op, name, attributes, states, start=None, shape=SHAPE, counts=None):
    """states(param, grads) yields per step a dict of the state, in the order of the outputs."""
    param, grads = values(*shape, seed=1), values(STEPS, *shape, seed=2)
    inputs = [("param", param, "param"), ("grads", grads, "input")] + [(n, v, "input") for n, v in (start or {}).items()]
    outputs = []
    for k, state in enumerate(states(param, grads), 1):
        outputs += [(f"{n}_{k}", v.clone(), "output") for n, v in state.items()]
    write_case(op, name, {"steps": STEPS, **attributes}, inputs, outputs, counts)


def from_torch(make, keys, start=None, before=0):
    """The states of a torch.optim optimizer; keys: of its state, by output name."""

    def states(param, grads):
        p = param.clone().requires_grad_()
        optimizer = make([p])
        if start:
            optimizer.state[p] = {k: v.clone() for k, v in start.items()} | {"step": torch.tensor(float(before))}
        for g in grads:
            p.grad = g.clone()
            optimizer.step()
            yield {"param": p.detach()} | {k: optimizer.state[p][k] for k in keys}

    return states


def adam_states(decoupled, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True, eps_placement="outside"):
    def states(p, grads):
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        for t, g in enumerate(grads, 1):
            if not decoupled:
                g = g + weight_decay * p
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
            c1, c2 = (1 - betas[0] ** t, 1 - betas[1] ** t) if bias_correction else (1, 1)
            root = {"outside": lambda: (v / c2).sqrt() + eps, "inside": lambda: (v / c2 + eps).sqrt(), "hat": lambda: (v.sqrt() + eps) / math.sqrt(c2)}
            p = p * (1 - lr * weight_decay if decoupled else 1) - lr * (m / c1) / root[eps_placement]()
            yield {"param": p, "exp_avg": m, "exp_avg_sq": v}

    return states


moments = ["exp_avg", "exp_avg_sq"]
for op, make in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
    common = dict(lr=0.01, betas=[0.8, 0.95], weight_decay=0.1)
    plain = {**common, "maximize": True}
    case(op, "maximize", plain, from_torch(lambda p: make(p, **plain), moments))
    largest = {**common, "amsgrad": True, "eps": 1e-3}
    case(op, "amsgrad_large_eps", largest, from_torch(lambda p: make(p, **largest), moments + ["max_exp_avg_sq"]))
    start = {"exp_avg": values(*SHAPE, seed=3), "exp_avg_sq": values(*SHAPE, low=0.25, seed=4)}
    case(op, "after_seven_steps", {**common, "step": 7}, from_torch(lambda p: make(p, **common), moments, start, 7), start)
    for name, more in {"no_bias_correction": {"bias_correction": False}, "eps_inside": {"eps_placement": "inside"}, "eps_hat": {"eps_placement": "hat"}}.items():
        attributes = {**common, "eps": 0.01, **more}
        case(op, name, attributes, adam_states(op == "adamw", **attributes))

for name, attributes in {
    "plain": dict(lr=0.1),
    "decay_maximize": dict(lr=0.1, weight_decay=0.2, maximize=True),
    "dampened": dict(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
}.items():
    keys = ["momentum_buffer"] if "momentum" in attributes else []
    case("sgd", name, attributes, from_torch(lambda p: torch.optim.SGD(p, **attributes), keys))
buffer = {"momentum_buffer": values(*SHAPE, seed=3)}
nesterov = dict(lr=0.1, momentum=0.8, nesterov=True)
case("sgd", "nesterov_carried_over", nesterov, from_torch(lambda p: torch.optim.SGD(p, **nesterov), ["momentum_buffer"], buffer), buffer)

QUINTIC = [3.4445, -4.775, 2.0315]


def muon_states(lr=0.02, momentum=0.95, dampening=None, nesterov=True, weight_decay=0.0, ns_steps=5, coefficients=QUINTIC, eps=1e-7,
                eps_is_floor=False, scale="sqrt_max_1_rows_over_cols", scale_factor=1.0):
    def states(p, grads):
        rows, cols = p.shape
        factors = {"sqrt_max_1_rows_over_cols": max(1, rows / cols), "sqrt_max_rows_cols": max(rows, cols), "sqrt_rows_over_cols": rows / cols, "none": 1}
        buffer, taken = torch.zeros_like(p), 1 - (momentum if dampening is None else dampening)
        for g in grads:
            buffer = momentum * buffer + taken * g
            x = taken * g + momentum * buffer if nesterov else buffer
            x = x / (max(x.norm(), eps) if eps_is_floor else x.norm() + eps)
            x = x.T if rows > cols else x
            for k in range(ns_steps):
                a, b, c = coefficients if len(coefficients) == 3 else coefficients[3 * k : 3 * k + 3]
                gram = x @ x.T
                x = a * x + (b * gram + c * gram @ gram) @ x
            x = x.T if rows > cols else x
            p = p * (1 - lr * weight_decay) - lr * scale_factor * math.sqrt(factors[scale]) * x
            yield {"momentum": buffer, "orthogonal": x, "param": p}

    return states


polar = [3.5, -5, 2.5, 3, -3.5, 1.5, 2, -1.5, 0.5]
for name, shape, attributes in (
    ("wide", (3, 8), {}),
    ("square_moonlight", (4, 4), dict(momentum=0.9, dampening=0, weight_decay=0.1, scale="sqrt_max_rows_cols", scale_factor=0.2)),
    ("tall_step_by_step", (6, 3), dict(nesterov=False, ns_steps=3, coefficients=polar, scale="sqrt_rows_over_cols", eps=0.5, eps_is_floor=True)),
    ("one_row", (1, 5), dict(eps=0.5, scale="none")),
    ("not_iterated", (2, 3), dict(ns_steps=0)),
):
    case("muon", name, attributes, muon_states(**attributes), shape=shape, counts={"momentum_2": 2, "orthogonal_1": max(shape)})
