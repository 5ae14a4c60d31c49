"""Norms of channels, activations, and losses of pairs. Run in this folder."""
import torch
import torch.nn.functional as F

from case import values, write_autograd


# batch_norm and instance_norm, with the statistics that torch's kernels keep
def statistics(x, dims, eps):
    return x.detach().mean(dims), 1 / (x.detach().var(dims, correction=0) + eps).sqrt()


def batch_norm(momentum, eps, running=None):
    def f(x, weight=None, bias=None):
        moved = [t.clone() for t in running or ()]
        y = F.batch_norm(x, *(moved or (None, None)), weight, bias, True, momentum, eps)
        return y, *statistics(x, [d for d in range(x.ndim) if d != 1], eps), *moved

    return f


affine = {"weight": (values(3, low=0.5, high=2, seed=1), "param"), "bias": (values(3, seed=2), "param")}
mean, var = values(3, seed=3), values(3, low=0.5, high=2, seed=4)
given = [("running_mean", mean, "input"), ("running_var", var, "input")]
x = values(4, 3, 2, 3, low=-8, high=8, seed=5)
attributes = {"training": True, "momentum": 0.3, "eps": 1e-3}
new = ("new_running_mean", "new_running_var")
write_autograd("batch_norm", "training", attributes, batch_norm(0.3, 1e-3, (mean, var)), {"x": (x, "input")} | affine,
               ("y", "mean", "rstd", *new), {"y": 24, "grad_x": 24, "grad_weight": 24, "grad_bias": 24}, given)
write_autograd("batch_norm", "training_rows_plain", {"training": True}, batch_norm(0.1, 1e-5),
               {"x": (x[:, :, 0, 0], "input")}, ("y", "mean", "rstd"), {"y": 4})
write_autograd("batch_norm", "eval", {"eps": 1e-3},
               lambda x, w, b: (F.batch_norm(x, mean, var, w, b, False, 0.1, 1e-3), mean, 1 / (var + 1e-3).sqrt()),
               {"x": (x, "input")} | affine, ("y", "mean", "rstd"), {"y": 1, "grad_x": 1, "grad_weight": 24}, given)
write_autograd("instance_norm", "pixels", {"eps": 1e-3},
               lambda x, w, b: (F.instance_norm(x, weight=w, bias=b, eps=1e-3), *statistics(x, (2, 3), 1e-3)),
               {"x": (x, "input")} | affine, ("y", "mean", "rstd"), {"y": 6, "grad_x": 6, "grad_weight": 24})
write_autograd("instance_norm", "plain", {}, lambda x: (F.instance_norm(x), *statistics(x, (2, 3), 1e-5)),
               {"x": (x, "input")}, ("y", "mean", "rstd"), {"y": 6})

# Activations at their corners, near 0 and far away
corners = torch.tensor([-30.0, -6, -3, -2.96875, -1, -0.5, -(2.0**-20), 0, 2.0**-20, 0.5, 1, 2.96875, 3, 6, 30],
                       dtype=torch.float64)
for op, f, attributes in (
    ("logsigmoid", F.logsigmoid, {}),
    ("softsign", F.softsign, {}),
    ("mish", F.mish, {}),
    ("leaky_relu", F.leaky_relu, {"negative_slope": 0.1}),
    ("elu", F.elu, {"alpha": 0.7}),
    ("celu", F.celu, {"alpha": 0.5}),  # torch has 1 / alpha in float32
    ("selu", F.selu, {}),
    ("hardtanh", F.hardtanh, {"min_val": -0.5, "max_val": 3.0}),
    ("hardsigmoid", lambda x: F.relu6(x + 3) / 6, {}),  # torch's own gradient has 1 / 6 in float32
    ("hardswish", F.hardswish, {}),
):
    write_autograd(op, "corners", attributes, lambda x: f(x, **attributes), {"x": (corners, "input")})

# Losses of pairs
a, b = values(4, 5, seed=6), values(4, 5, seed=7)
b[0, 0] = a[0, 0]
inputs = {"input": (a, "input"), "target": (b, "input")}
for reduction, count in (("mean", 20), ("sum", 20), ("none", 1)):
    for op, f, more in (
        ("mse_loss", F.mse_loss, {}),
        ("l1_loss", F.l1_loss, {}),
        ("smooth_l1_loss", F.smooth_l1_loss, {"beta": 0.5}),
        ("huber_loss", F.huber_loss, {"delta": 0.5}),
    ):
        attributes = {"reduction": reduction} | more
        write_autograd(op, reduction, attributes, lambda x, y: f(x, y, **attributes), inputs, ("loss",), {"loss": count})
write_autograd("smooth_l1_loss", "line", {"beta": 0}, lambda x, y: F.smooth_l1_loss(x, y, beta=0), inputs, ("loss",))

logs, probs = values(4, 5, low=-6, high=0, seed=8), values(4, 5, low=0.125, high=1, seed=9)
for name, target, attributes in (
    ("batchmean", probs, {"reduction": "batchmean"}),
    ("mean", probs, {}),
    ("none_log_target", logs.flip(0), {"reduction": "none", "log_target": True}),
):
    settings = {"reduction": "mean"} | attributes
    write_autograd("kl_div", name, attributes, lambda x, y: F.kl_div(x, y, **settings),
                   {"input": (logs, "input"), "target": (target, "input")}, ("loss",))
inner = values(4, 5, low=0.0625, high=0.9375, seed=10)
for reduction in ("mean", "none"):
    attributes = {"reduction": reduction}
    write_autograd("binary_cross_entropy", reduction, attributes, lambda x, y: F.binary_cross_entropy(x, y, **attributes),
                   {"input": (inner, "input"), "target": (probs, "input")}, ("loss",))
    write_autograd("binary_cross_entropy_with_logits", reduction, attributes,
                   lambda x, y: F.binary_cross_entropy_with_logits(x, y, **attributes),
                   {"input": (4 * a, "input"), "target": (probs, "input")}, ("loss",))

c = values(4, 5, seed=11)
for name, attributes in (("mean", {}), ("sum_swap", {"reduction": "sum", "swap": True, "margin": 0.5}),
                         ("none_p1", {"reduction": "none", "p": 1, "margin": 2})):
    write_autograd("triplet_margin_loss", name, attributes, lambda x, y, z: F.triplet_margin_loss(x, y, z, **attributes),
                   {"anchor": (a, "input"), "positive": (b, "input"), "negative": (c, "input")}, ("loss",))
write_autograd("cosine_similarity", "rows", {}, F.cosine_similarity, {"x1": (a, "input"), "x2": (b, "input")}, counts={"y": 5})
write_autograd("cosine_similarity", "first", {"dim": 0, "eps": 0.5}, lambda x, y: F.cosine_similarity(x, y, 0, 0.5),
               {"x1": (a, "input"), "x2": (c, "input")}, counts={"y": 4, "grad_x1": 4})
signs = torch.tensor([1, -1, -1, 1])
for name, attributes in (("mean", {}), ("none_margin", {"reduction": "none", "margin": -0.5})):
    write_autograd("cosine_embedding_loss", name, attributes, lambda x, y: F.cosine_embedding_loss(x, y, signs, **attributes),
                   {"input1": (a, "input"), "input2": (c, "input")}, ("loss",), fixed=[("target", signs, "index")])
many = signs[:, None] * torch.tensor([1, 1, -1, 1, -1])
for name, attributes in (("mean", {}), ("none_margin", {"reduction": "none", "margin": 0.25})):
    write_autograd("hinge_embedding_loss", name, attributes, lambda x: F.hinge_embedding_loss(x, many, **attributes),
                   {"input": (a, "input")}, ("loss",), fixed=[("target", many, "index")])
    write_autograd("margin_ranking_loss", name, attributes, lambda x, y, z: F.margin_ranking_loss(x, y, z, **attributes),
                   {"input1": (a, "input"), "input2": (c, "input"), "target": (many.double(), "input")}, ("loss",))
