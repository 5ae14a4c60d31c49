"""Elementwise functions, products, norms and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .call import Call, Convert, NotACall, entries, given, listed, of, tensor

Tensor = torch.Tensor


def unary(op: str) -> Convert:
    def convert(x: Tensor) -> Call:
        return Call(op, {"x": x})

    return convert


for op in "abs neg sqrt rsqrt reciprocal exp log sigmoid tanh".split():
    entries[op] = unary(op)
entries["nn.functional.silu"] = unary("silu")
entries["nn.functional.relu"] = unary("relu")


def binary(op: str, reverse: bool = False) -> Convert:
    def convert(a: Any, b: Any, *, alpha: Any = None, rounding_mode: str | None = None) -> Call:
        settings = {k: v for k, v in (("alpha", alpha), ("rounding_mode", rounding_mode)) if v is not None}
        pair = (tensor(b), tensor(a)) if reverse else (tensor(a), tensor(b))
        if op == "pow" and not pair[1].isfinite().all():
            raise NotACall("infinite exponents, for which IEEE's pow and torch give infinite gradients another sign")
        return Call(op, dict(zip("ab", pair, strict=True)), settings)

    return convert


for op in "add sub mul pow maximum minimum".split():
    entries[op] = binary(op)
for op in "add mul div pow sub".split():
    entries[f"__r{op}__"] = binary(op, reverse=True)
for name in ("no_rounding_mode", "trunc_rounding", "floor_rounding"):
    entries[f"div.{name}"] = binary("div")
entries |= {
    "true_divide": binary("div"),
    "rsub": binary("sub", reverse=True),
    "max.binary": binary("maximum"),
    "min.binary": binary("minimum"),
    "float_power": binary("pow"),
}


@of("floor_divide")
def floor_divide(a: Tensor, b: Any) -> Call:
    return Call("div", {"a": tensor(a), "b": tensor(b)}, {"rounding_mode": "floor"})


@of("where")
def where(a: Tensor, condition: Tensor, b: Any) -> Call:
    return Call("where", {"condition": condition, "a": a, "b": tensor(b)})


@of("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Call:
    return Call("where", {"condition": mask, "a": tensor(value), "b": x})


def limits(x: Tensor, low: Any, high: Any) -> Call:
    limit = {"min": low, "max": high}
    return Call(
        "clip",
        {"x": x} | {k: v for k, v in limit.items() if isinstance(v, Tensor)},
        {k: float(v) for k, v in limit.items() if v is not None and not isinstance(v, Tensor)},
    )


@of("clamp")
def clamp(x: Tensor, min: Any = None, max: Any = None) -> Call:
    return limits(x, min, max)


@of("clamp_min")
def clamp_min(x: Tensor, low: Any) -> Call:
    return limits(x, low, None)


@of("clamp_max")
def clamp_max(x: Tensor, high: Any) -> Call:
    return limits(x, None, high)


@of("nn.functional.gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Call:
    return Call("gelu", {"x": x}, {"approximate": approximate})


@of("nn.functional.softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Call:
    return Call("softplus", {"x": x}, {"beta": beta, "threshold": threshold})


@of("bfloat16", "half", "float", "double")
def cast(x: Tensor, *, memory_format: Any = None, to: str) -> Call:
    # torch goes from float64 to the 16-bit dtypes through float32, and so rounds other values twice.
    if to in ("bfloat16", "float16") and not torch.equal(x, x.float().double()):
        raise NotACall("what torch rounds twice")
    return Call("cast", {"x": x}, {"to": to})


# Products, norms, losses.


@of("matmul", "mm", "bmm", "mv", "dot", "vdot")
def matmul(a: Tensor, b: Tensor) -> Call:
    return Call("matmul", {"a": a, "b": b})


@of("__rmatmul__")
def rmatmul(b: Tensor, a: Tensor) -> Call:
    return matmul(a, b)


@of("nn.functional.linear")
def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Call:
    return Call("linear", given(x=x, w=w, b=bias))


@of("einsum")
def einsum(operands: Sequence[Tensor], equation: str) -> Call:
    return Call("einsum", {f"x_{i}": x for i, x in enumerate(operands)}, {"equation": equation})


@of("nn.functional.embedding")
def embedding(
    weight: Tensor,
    index: Tensor,
    *,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Call:
    if max_norm is not None or sparse:
        raise NotACall("max_norm changes the weight, and sparse gradients are no tensors")
    settings = {"scale_grad_by_freq": scale_grad_by_freq} | (
        {} if padding_idx is None else {"padding_idx": padding_idx}
    )
    return Call("embedding", {"weight": weight, "index": index}, settings)


def layer_norm(outputs: Sequence[str | None]) -> Convert:
    def convert(
        x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Call:
        settings = {"eps": eps, "normalized_shape": list(shape)}
        return Call("layer_norm", given(x=x, weight=weight, bias=bias), settings, outputs)

    return convert


entries |= {
    "nn.functional.layer_norm": layer_norm(("y",)),
    "native_layer_norm": layer_norm(("y", None, None)),  # mean and 1 / deviation
}


@of("nn.functional.rms_norm")
def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Call:
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return Call("rms_norm", given(x=x, weight=weight), {"eps": eps, "normalized_shape": list(shape)})


@of("nn.functional.group_norm")
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Call:
    return Call("group_norm", given(x=x, weight=weight, bias=bias), {"num_groups": num_groups, "eps": eps})


@of("softmax", "softmax.with_dtype")
def softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Call:
    return Call("softmax", {"x": x}, {"dim": dim})


@of("log_softmax", "log_softmax.with_dtype")
def log_softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Call:
    return Call("log_softmax", {"x": x}, {"dim": dim})


@of("logsumexp")
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Call:
    return Call("logsumexp", {"x": x}, {"dims": listed(dim, x.ndim), "keepdim": keepdim})


@of("nn.functional.cross_entropy")
def cross_entropy(logits: Tensor, target: Tensor, *, weight: Tensor | None = None, **settings: Any) -> Call:
    name = "target_probs" if target.is_floating_point() else "target"
    return Call("cross_entropy", given(logits=logits, weight=weight) | {name: target}, settings, ("loss",))


@of("nn.functional.nll_loss")
def nll_loss(log_probs: Tensor, target: Tensor, *, weight: Tensor | None = None, **settings: Any) -> Call:
    return Call("nll_loss", given(log_probs=log_probs, target=target, weight=weight), settings, ("loss",))


@of("nn.functional.scaled_dot_product_attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    if dropout_p > 0:
        raise NotACall("dropout")
    if q.shape[:-3] != k.shape[:-3]:
        raise NotACall("leading dimensions that broadcast")
    inputs = {"q": q, "k": k, "v": v}
    if attn_mask is not None:
        inputs["mask" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
    return Call("attention", inputs, {"is_causal": is_causal, "scale": scale}, ("out",))


@of("linalg.vector_norm")
def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Call:
    if ord != 2:
        raise NotACall("another order than 2")
    return Call("l2_norm", {"x": x}, {"dim": listed(dim, x.ndim), "keepdim": keepdim})
