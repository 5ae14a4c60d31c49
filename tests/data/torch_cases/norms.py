"""Norms over rows, groups of channels and several dimensions."""
import torch
import torch.nn.functional as F

from case import values, write_autograd

rows = values(3, 4, seed=6)
rows[1] = 0
write_autograd("l2_norm", "zero_row_keepdim", {"dim": 1, "keepdim": True},
      lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True), {"x": (rows, "input")}, ("y",), {"y": 4})
write_autograd("l2_norm", "all", {}, torch.linalg.vector_norm, {"x": (rows, "input")}, ("y",), {"y": 12})


# group_norm
def group_norm(groups, eps):
    def f(x, weight=None, bias=None):
        grouped = x.detach().reshape(x.shape[0], groups, -1)
        rstd = 1 / (grouped.var(-1, correction=0) + eps).sqrt()
        return F.group_norm(x, groups, weight, bias, eps), grouped.mean(-1), rstd

    return f


affine = {"weight": (values(6, low=0.5, high=2, seed=7), "param"), "bias": (values(6, seed=8), "param")}
x = values(2, 6, 2, 3, low=-8, high=8, seed=9)
write_autograd("group_norm", "pixels", {"num_groups": 3, "eps": 1e-6}, group_norm(3, 1e-6), {"x": (x, "input")} | affine,
      ("y", "mean", "rstd"), {"y": 12, "grad_x": 12, "grad_weight": 12, "grad_bias": 12})
write_autograd("group_norm", "no_pixels_plain", {"num_groups": 2}, group_norm(2, 1e-5), {"x": (x[:, :, 0, 0], "input")},
      ("y", "mean", "rstd"), {"y": 3})

# rms_norm over two dimensions; x's rstd keeps them with extent 1.
x = values(4, 2, 5, low=-8, high=8, seed=10)
rstd = 1 / ((x * x).mean((-2, -1), keepdim=True) + 1e-5).sqrt()
write_autograd("rms_norm", "two_dims", {"eps": 1e-5}, lambda x, w: (F.rms_norm(x, (2, 5), w, 1e-5), rstd),
      {"x": (x, "input"), "weight": (values(2, 5, low=0.5, high=2, seed=11), "param")}, ("y", "rstd"),
      {"y": 10, "rstd": 10, "grad_x": 10, "grad_weight": 4})
