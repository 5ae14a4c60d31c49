"""What training reports name beside the usual layers: the causal convolution of Mamba, the gradient of experts'
weights that is added up, MuonClip's QK-Clip. Run in this folder."""
import numpy as np
import torch
import torch.nn.functional as F

from case import values, write_autograd, write_case


def causal(activation, past=None):
    def f(x, weight, bias=None, past_state=None):
        width = weight.shape[1]
        before = past_state if past_state is not None else x.new_zeros(*x.shape[:2], width - 1)
        longer = torch.cat([before, x], 2)
        y = F.conv1d(longer, weight[:, None], bias, groups=len(weight))
        return F.silu(y) if activation == "silu" else y, longer[:, :, longer.shape[2] - width + 1 :]

    return f


x, weight = (values(2, 3, 6, seed=1), "input"), (values(3, 4, seed=2), "param")
bias, past = (values(3, seed=3), "param"), (values(2, 3, 3, seed=4), "input")
for name, inputs, activation, count in (
    ("plain", {"x": x, "weight": weight}, "none", 4),
    ("silu", {"x": x, "weight": weight, "bias": bias}, "silu", 5),
    ("state", {"x": x, "weight": weight, "bias": bias, "past_state": past}, "silu", 5),
):
    write_autograd("causal_conv1d", name, {"activation": activation}, causal(activation), inputs,
                   ("y", "present_state"), {"y": count, "grad_weight": 12})

x, dy, acc = values(9, 4, seed=5), values(9, 3, seed=6), values(4, 4, 3, seed=7)
sizes = [3, 0, 5, 1]
parts = zip(x.split(sizes), dy.split(sizes), acc, strict=True)
write_case("grouped_matmul_add", "an_empty_group", {},
           [("x", x, "input"), ("dy", dy, "input"), ("acc", acc, "input"), ("group_sizes", np.array(sizes), "index")],
           [("y", torch.stack([c + a.T @ b for a, b, c in parts]), "output")], {"y": 6})

w_q, w_k, w_rot = values(4, 3, 5, seed=8), values(4, 3, 5, seed=9), values(4, 2, 5, seed=10)
largest = torch.tensor([50.0, 100, 160, 400], dtype=torch.float64)
for name, tau, alpha in (("default", 100.0, 0.5), ("latent", 75.0, 0.25)):
    gamma = (tau / largest).clamp(max=1)[:, None, None]
    inputs = [("w_q", w_q, "param"), ("w_k", w_k, "param"), ("max_logits", largest, "input")]
    outputs = [("gamma", gamma.flatten(), "output"), ("new_w_q", w_q * gamma**alpha, "output"),
               ("new_w_k", w_k * gamma ** (1 - alpha), "output")]
    if name == "latent":
        inputs.append(("w_q_rot", w_rot, "param"))
        outputs.append(("new_w_q_rot", w_rot * gamma, "output"))
    write_case("qk_clip", name, {"tau": tau, "alpha": alpha}, inputs, outputs)
