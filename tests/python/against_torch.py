"""Operators against what torch makes of their definition in float64, with gradients."""

import assay
import torch


def judged(op, function, inputs, attributes=None, indices=(), result="y"):
    """Judges torch's result, or several, and gradients; a tenth of them off must not pass."""
    given = {k: v if k in indices else v.double().requires_grad_() for k, v in inputs.items()}
    made, names = function(**given), (result,) if isinstance(result, str) else result
    made = (made,) if torch.is_tensor(made) else made
    chance = torch.Generator().manual_seed(7)
    of_made = [torch.randn(y.shape, dtype=torch.float64, generator=chance) for y in made]
    wanted = [k for k in given if k not in indices and k not in ("cos", "sin", "cis")]
    grads = torch.autograd.grad(made, [given[k] for k in wanted], of_made)
    outputs = {name: y.detach() for name, y in zip(names, made, strict=True)}
    outputs |= {f"grad_{k}": g for k, g in zip(wanted, grads, strict=True)}
    call = {k: v.detach() for k, v in given.items()}
    call |= {f"grad_{name}": grad for name, grad in zip(names, of_made, strict=True)}
    for name, value in outputs.items():
        assert not assay.judge(op, call, {name: value * 1.1}, attributes, causes=False), name
    return assay.judge(op, call, outputs, attributes)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def turned(x, cos, sin):
    """The first channels of [B, H, L, D], as transformers' apply_rotary_pos_emb has them."""
    width = cos.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    half = torch.cat([-turning[..., width // 2 :], turning[..., : width // 2]], -1)
    return torch.cat([turning * cos[:, None] + half * sin[:, None], rest], -1)


def tables(tokens, width):
    angles = torch.arange(tokens)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    angles = torch.cat([angles, angles], -1)[None]
    return angles.cos(), angles.sin()
