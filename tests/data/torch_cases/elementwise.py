"""Elementwise operators of one, two and three tensors: broadcasting, ties, limits, integer powers of negatives."""
import torch

from case import values, write_autograd


def write(op, name, attributes, f, inputs, counts=None, fixed=()):
    write_autograd(op, name, attributes, f, {k: (v, "input") for k, v in inputs.items()}, counts=counts, fixed=fixed)


def t(*v):
    return torch.tensor(v, dtype=torch.float64)


# Two tensors. Both sides broadcast: grad_a collects 3 copies, grad_b 2 x 5.
a, b = values(2, 1, 5, seed=1), values(3, 1, seed=2)
copies = {"y": 1, "grad_a": 3, "grad_b": 10}
write("add", "both_broadcast_alpha", {"alpha": 0.3}, lambda a, b: torch.add(a, b, alpha=0.3), {"a": a, "b": b}, copies)
write("sub", "both_broadcast", {}, torch.sub, {"a": a, "b": b}, copies)
write("sub", "scalars_alpha", {"alpha": -2}, lambda a, b: torch.sub(a, b, alpha=-2), {"a": t(1.5)[0], "b": t(0.25)[0]})
write("mul", "both_broadcast", {}, torch.mul, {"a": a, "b": b}, copies)
write("mul", "empty", {}, torch.mul, {"a": values(0, 3), "b": values(3, seed=1)}, {"grad_a": 0, "grad_b": 0})
write("div", "both_broadcast", {}, torch.div, {"a": a, "b": b}, copies)
signs = {"a": t(7, -7, 7, -7, 6, -6, 0.5, -0.5), "b": t(2, 2, -2, -2, 3, 3, 4, 4)}
for mode in ("floor", "trunc"):
    write("div", mode, {"rounding_mode": mode}, lambda a, b: torch.div(a, b, rounding_mode=mode), signs)
write("pow", "both_broadcast", {}, torch.pow, {"a": a.abs(), "b": b}, copies)
write("pow", "zeros", {}, torch.pow, {"a": t(0, 0, 0, 2, 0.5), "b": t(0, 1, 3, 0, -4)})
ties = {"a": t(1, 2, 3, -1, 0), "b": t(1, 3, 2, -1, 0.5)}
for op in (torch.maximum, torch.minimum):
    write(op.__name__, "both_broadcast", {}, op, {"a": a, "b": b}, {"grad_a": 3, "grad_b": 10})
    write(op.__name__, "ties", {}, op, ties)
mask = values(2, 3, 1, seed=3) > 0
write("where", "all_broadcast", {}, lambda a, b: torch.where(mask, a, b), {"a": values(3, 4, seed=4), "b": values(1, seed=5)},
      {"grad_a": 2, "grad_b": 24}, [("condition", mask.long(), "index")])

# One tensor.
x = values(4, 3, seed=6)
positive = values(4, 3, low=0.125, high=4, seed=7)
write("sqrt", "positive", {}, torch.sqrt, {"x": positive}, {"y": 1, "grad_x": 1})
write("rsqrt", "positive", {}, torch.rsqrt, {"x": positive})
write("reciprocal", "both_signs", {}, torch.reciprocal, {"x": x})
write("exp", "wide", {}, torch.exp, {"x": x * 32})
write("log", "positive", {}, torch.log, {"x": torch.cat([positive.flatten(), t(1, 1.0078125, 0.9921875)])})
write("abs", "zero", {}, torch.abs, {"x": t(-2, -0.0, 0, 0.5)})
write("neg", "plain", {}, torch.neg, {"x": x})
write("relu", "zero", {}, torch.relu, {"x": t(-2, -0.0, 0, 0.5)})

# Limits that are hit exactly, equal, and crossed.
edge = t(-2, -1, -0.5, 0.5, 1, 2)
write("clip", "attributes", {"min": -1, "max": 0.5}, lambda x: torch.clamp(x, -1, 0.5), {"x": edge})
write("clip", "only_max", {"max": 0.5}, lambda x: torch.clamp(x, max=0.5), {"x": edge})
write("clip", "tensors", {}, torch.clamp,
      {"x": edge.reshape(1, 6), "min": t(-1, 1, -1).reshape(3, 1), "max": t(1, 1, -1.5).reshape(3, 1)},
      {"grad_x": 3, "grad_min": 6, "grad_max": 6})
write("clip", "x_is_broadcast", {}, lambda x, min: torch.clamp(x, min=min), {"x": t(0.25), "min": t(0, 0.25, 1)},
      {"grad_x": 3, "grad_min": 1})
