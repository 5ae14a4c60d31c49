"""Reductions, scans, order, pooling, shapes and indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .call import Call, Convert, NotACall, entries, listed, of

Tensor = torch.Tensor


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
        with_index = settings.get("return_indices", False)
        return Call(op, {"x": x}, settings, ("y", "index") if with_index else ("y",))

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
