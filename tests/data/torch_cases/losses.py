"""Losses over classes, and logsumexp: ignored targets, weights, class probabilities, smoothing, reductions,
vocabulary shards with a target on no rank."""
import torch
import torch.nn.functional as F

from case import values, write_autograd


def write(*arguments, outputs=("loss",), **rest):
    write_autograd(*arguments, outputs, **rest)


def index(*v):
    return torch.tensor(v)


logits = values(4, 5, 3, low=-6, high=6, seed=1)
target = index([0, 4, 2], [1, 1, 3], [2, 0, 0], [4, 3, -100])
weight = values(5, low=0.5, high=2, seed=2)
probs = values(4, 5, 3, low=0, high=1, seed=3)
label, w = ("target", target, "index"), ("weight", weight, "param")

# cross_entropy: what has pixels, class probabilities, or weights with smoothing.
for reduction, count in (("mean", 60), ("sum", 60), ("none", 5)):
    attributes = {"reduction": reduction, "label_smoothing": 0.25}
    write("cross_entropy", f"weight_smoothing_{reduction}", attributes,
          lambda x: F.cross_entropy(x, target, weight, **attributes),
          {"logits": (logits, "input")}, counts={"loss": count}, fixed=[label, w])
    write("cross_entropy", f"probs_{reduction}", attributes,
          lambda x, p: F.cross_entropy(x, p, weight, **attributes),
          {"logits": (logits, "input"), "target_probs": (probs, "input")}, counts={"loss": count}, fixed=[w])
write("cross_entropy", "probs_one_token", {}, F.cross_entropy,
      {"logits": (logits[0, :, 0], "input"), "target_probs": (probs[0, :, 0], "input")})


# As models have their logits before it: Cohere and Granite scale them, Gemma 2 caps them.
def before_loss(x, scale, cap):
    x = x * scale
    return x if cap == 0 else torch.tanh(x / cap) * cap


for name, scale, cap, attributes in (("scaled", 0.0625, 0, {}), ("capped", 1, 3, {"reduction": "sum"}),
                                     ("scaled_capped", 1.5, 5, {"label_smoothing": 0.25, "reduction": "none"})):
    write("cross_entropy", name, {"logit_scale": scale, "softcap": cap} | attributes,
          lambda x: F.cross_entropy(before_loss(x, scale, cap), target, **attributes),
          {"logits": (logits, "input")}, counts={"loss": 5 if "none" in attributes.values() else 60}, fixed=[label])

# nll_loss
log_probs = F.log_softmax(logits, 1).bfloat16().double()
for reduction, count in (("mean", 12), ("sum", 12), ("none", 1)):
    write("nll_loss", f"pixels_{reduction}", {"reduction": reduction},
          lambda x: F.nll_loss(x, target, weight, reduction=reduction),
          {"log_probs": (log_probs, "input")}, counts={"loss": count}, fixed=[label, w])
write("nll_loss", "no_weight_ignored", {"ignore_index": 4}, lambda x: F.nll_loss(x, target[:3, 1], ignore_index=4),
      {"log_probs": (log_probs[:3, :, 1], "input")}, fixed=[("target", target[:3, 1], "index")], grad_y=False)
write("nll_loss", "all_ignored", {"reduction": "sum"}, lambda x: F.nll_loss(x, index(-100, -100), reduction="sum"),
      {"log_probs": (log_probs[:2, :, 1], "input")}, fixed=[("target", index(-100, -100), "index")], grad_y=False)


# Megatron's formula with all ranks in one process; smoothing over the whole vocabulary.
def vocab_parallel(tp, target, s):
    def loss(x):
        top = x.amax(-1).detach()
        shifted = x - top.unsqueeze(-1)
        shards = shifted.exp().unflatten(-1, (tp, -1))
        local_sum = shards.sum(-1).movedim(-1, 0)
        inside = (target >= 0) & (target < x.shape[-1])
        own = torch.gather(shifted, -1, torch.where(inside, target, 0).unsqueeze(-1)).squeeze(-1)
        y = local_sum.sum(0).log() - torch.where(inside, own, 0)
        if s > 0:
            V = x.shape[-1]
            share = s * V / (V - 1)
            y = (1 - share) * y - share * (shifted - local_sum.sum(0).log().unsqueeze(-1)).mean(-1)
        local_max = x.detach().unflatten(-1, (tp, -1)).amax(-1).movedim(-1, 0)
        return y, local_max, top, local_sum

    return loss


wide = values(2, 3, 12, low=-6, high=6, seed=4)
for name, tp, ids, s in (
    ("tp1", 1, [[0, 11, 5], [7, 3, 2]], 0.0),
    ("tp3_smoothing", 3, [[0, 11, 5], [7, 3, 2]], 0.1),
    ("tp4_target_outside", 4, [[-1, 11, 12], [-100, 3, 2]], 0.0),
):
    write("vocab_parallel_cross_entropy", name, {"tp": tp, "label_smoothing": s}, vocab_parallel(tp, torch.tensor(ids), s),
          {"logits": (wide, "input")}, outputs=("loss", "local_max", "global_max", "local_sum_exp"),
          counts={"local_sum_exp": 12 // tp, "loss": 12 // tp + tp, "grad_logits": 12 // tp + tp},
          fixed=[("target", torch.tensor(ids), "index")])

# logsumexp
inf = float("inf")
x = values(3, 4, 5, low=-6, high=6, seed=5)
masked = x.clone()
masked[:, :, 2] = -inf
write_autograd("logsumexp", "two_dims", {"dims": [-1, 0]}, lambda x: x.logsumexp((-1, 0)), {"x": (x, "input")}, ("y",), {"y": 15})
write_autograd("logsumexp", "one_masked", {"dims": [2]}, lambda x: x.logsumexp(2), {"x": (masked, "input")}, ("y",), {"y": 5})
