"""PyTorch's OpInfo entries as calls of assay's operators: what torch was asked, in assay's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor


@dataclass
class Call:
    """An operator with its inputs by name; `outputs` names torch's results in their order, None: not compared."""

    op: str
    inputs: dict[str, Tensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str | None] = ("y",)


class NotACall(Exception):
    """What torch was asked has no counterpart; the reason."""


Convert = Callable[..., Call]
entries: dict[str, Convert] = {}
"""By OpInfo.full_name."""


def of(*names: str) -> Callable[[Convert], Convert]:
    def add(convert: Convert) -> Convert:
        entries.update(dict.fromkeys(names, convert))
        return convert

    return add


def tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, complex):
        raise NotACall("complex numbers")
    return torch.tensor(value, dtype=torch.float64)


def given(**inputs: Tensor | None) -> dict[str, Tensor]:
    return {name: t for name, t in inputs.items() if t is not None}


def listed(dims: Any, rank: int) -> list[int] | None:
    """torch's dim of a reduction as assay's dims."""
    if dims is None or (isinstance(dims, Sequence) and len(dims) == 0):
        return None
    return [dims] if isinstance(dims, int) else list(dims)


def extents(sizes: Sequence[Any]) -> list[int]:
    return list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)


# Elementwise.


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


@of("nn.functional.layer_norm", "native_layer_norm")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Call:
    return Call(
        "layer_norm",
        given(x=x, weight=weight, bias=bias),
        {"eps": eps, "normalized_shape": list(shape)},
        ("y", None, None),
    )


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


# Reductions, scans, order, pooling.


def reduction(op: str) -> Convert:
    def convert(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Call:
        return Call(op, {"x": x}, {"dims": listed(dim, x.ndim), "keepdim": keepdim})

    return convert


entries |= {"sum": reduction("reduce_sum"), "mean": reduction("reduce_mean")}


@of("prod")
def prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Call:
    return Call("reduce_prod", {"x": x}, {"dim": dim, "keepdim": keepdim})


def extreme(op: str, outputs: Sequence[str] = ("y", "index")) -> Convert:
    def convert(x: Tensor, dim: Any = None, keepdim: bool = False) -> Call:
        if outputs == ("index",):
            return Call(op, {"x": x}, {"dim": dim, "keepdim": keepdim}, outputs)
        if dim is None:  # all elements: ties share the gradient, no index
            return Call(op, {"x": x}, {"keepdim": keepdim, "ties": "even"})
        return Call(op, {"x": x}, {"dim": dim, "keepdim": keepdim}, outputs)

    return convert


for which in ("max", "min"):
    entries[f"{which}.reduction_with_dim"] = entries[f"{which}.reduction_no_dim"] = extreme(f"reduce_{which}")
    entries[f"arg{which}"] = extreme(f"arg{which}", ("index",))


def extreme_of_many(op: str) -> Convert:
    def convert(x: Tensor, dim: Any = None, keepdim: bool = False) -> Call:
        return Call(op, {"x": x}, {"dim": listed(dim, x.ndim), "keepdim": keepdim, "ties": "even"})

    return convert


entries |= {"amax": extreme_of_many("reduce_max"), "amin": extreme_of_many("reduce_min")}


@of("cumsum")
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Call:
    return Call("cumsum", {"x": x}, {"dim": dim})


@of("cumprod")
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Call:
    return Call("cumprod", {"x": x}, {"dim": dim})


@of("topk")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Call:
    return Call("top_k", {"x": x}, {"k": k, "dim": dim, "largest": largest, "sorted": sorted}, ("y", "index"))


@of("sort")
def sort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Call:
    return Call("sort", {"x": x}, {"dim": dim, "descending": descending, "stable": stable}, ("y", "index"))


@of("msort")
def msort(x: Tensor) -> Call:
    return Call("sort", {"x": x}, {"dim": 0})


@of("argsort")
def argsort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Call:
    return Call("sort", {"x": x}, {"dim": dim, "descending": descending, "stable": stable}, ("index",))


def pool(op: str, rank: int) -> Convert:
    names = ("kernel_size", "stride", "padding") + (
        ("ceil_mode", "count_include_pad", "divisor_override")
        if op == "avg_pool"
        else ("dilation", "ceil_mode", "return_indices")
    )

    def convert(x: Tensor, *positions: Any, **settings: Any) -> Call:
        settings |= dict(zip(names, positions, strict=False))
        for name in ("kernel_size", "stride", "padding", "dilation"):
            value = settings.get(name)
            if isinstance(value, int):
                settings[name] = [value] * rank
            elif isinstance(value, Sequence):
                settings[name] = list(value) * (rank if len(value) == 1 else 1) or None
        settings = {k: v for k, v in settings.items() if v is not None}
        return Call(op, {"x": x}, settings, ("y", "index"))

    return convert


for rank in (1, 2, 3):
    entries[f"nn.functional.avg_pool{rank}d"] = pool("avg_pool", rank)
    entries[f"nn.functional.max_pool{rank}d"] = pool("max_pool", rank)


# Shapes and indices.


@of("permute", "permute_copy")
def permute(x: Tensor, dims: Sequence[int]) -> Call:
    return Call("transpose", {"x": x}, {"perm": [d % x.ndim for d in dims]})


@of("transpose", "transpose_copy")
def transpose(x: Tensor, dim0: int, dim1: int) -> Call:
    return Call("transpose", {"x": x}, {"dim0": dim0, "dim1": dim1})


@of("t", "T", "mT")
def swapped(x: Tensor) -> Call:
    if x.ndim < 2:
        return Call("transpose", {"x": x}, {"perm": list(range(x.ndim))})
    return Call("transpose", {"x": x}, {"dim0": -2, "dim1": -1})


@of("reshape", "view", "view_copy")
def reshape(x: Tensor, shape: Sequence[int]) -> Call:
    return Call("reshape", {"x": x}, {"shape": list(shape)})


@of("reshape_as", "view_as")
def reshape_as(x: Tensor, other: Tensor) -> Call:
    return reshape(x, other.shape)


@of("expand", "broadcast_to", "expand_copy")
def expand(x: Tensor, shape: Sequence[int]) -> Call:
    return Call("expand", {"x": x}, {"shape": list(shape)})


@of("expand_as")
def expand_as(x: Tensor, other: Tensor) -> Call:
    return expand(x, other.shape)


@of("cat")
def cat(pieces: Sequence[Tensor], dim: int = 0) -> Call:
    if any(p.ndim == 1 and p.numel() == 0 for p in pieces) and any(p.ndim > 1 for p in pieces):
        raise NotACall("an empty tensor of one dimension among others, which torch takes for nothing")
    return Call("concat", {f"x_{i}": x for i, x in enumerate(pieces)}, {"dim": dim})


def many(x: Tensor, sections: Mapping[str, Any], dim: int, results: int) -> Call:
    return Call("split", {"x": x}, {**sections, "dim": dim}, [f"y_{i}" for i in range(results)])


@of("split", "split.list_args", "split_with_sizes", "unsafe_split", "split_with_sizes_copy")
def split(x: Tensor, size: Any, dim: int = 0) -> Call:
    pieces = -(-x.shape[dim] // size) if isinstance(size, int) else len(size)
    return many(x, {"split_size": size} if isinstance(size, int) else {"sections": list(size)}, dim, pieces)


@of("tile", "repeat")
def tile(x: Tensor, repeats: Sequence[int]) -> Call:
    return Call("tile", {"x": x}, {"repeats": list(repeats)})


@of("narrow")
def narrow(x: Tensor, dim: int, start: Any, length: int) -> Call:
    start = int(start) + (x.shape[dim] if start < 0 else 0)
    return Call("slice", {"x": x}, {"starts": [start], "ends": [start + length], "dims": [dim]})


@of("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Call:
    return Call("pad", {"x": x}, {"pad": list(pad), "value": value})


@of(*(f"nn.functional.pad.{m}" for m in ("constant", "reflect", "replicate", "circular", "replicate_negative")))
def padded(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Call:
    return Call("pad", {"x": x}, {"pad": list(pad), "mode": mode, "value": value or 0.0})


@of("gather")
def gather(x: Tensor, dim: int, index: Tensor, **_: Any) -> Call:
    if x.ndim != index.ndim:
        raise NotACall("ranks that differ, of empty or single elements")
    return Call("gather", {"x": x, "index": index}, {"dim": dim})


@of("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Call:
    return Call("scatter_add", {"x": x, "index": index, "src": src}, {"dim": dim})


@of("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Call:
    return Call("index_select", {"x": x, "index": index}, {"dim": dim})


def leaves(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for v in value:
            yield from leaves(v)
