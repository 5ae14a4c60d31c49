"""aten calls as operators of the library, those that move elements, and those that round nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

# They move elements, and errors alike. An argument called "value" is a number that is put in.
MOVES = frozenset(
    "view reshape _unsafe_view _reshape_alias permute transpose t expand slice select cat stack clone contiguous "
    "detach squeeze unsqueeze index_select gather index flip roll repeat unbind split split_with_sizes chunk alias "
    "lift_fresh masked_fill where tril triu constant_pad_nd narrow diagonal unfold as_strided movedim _to_copy copy "
    "fill zero index_put index_copy index_fill scatter slice_scatter select_scatter".split()
)
# Made from nothing, or not of floating point.
EXACT = frozenset(
    "zeros ones full empty arange zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty eye "
    "scalar_tensor empty_strided new_empty_strided".split()
)


@dataclass
class Call:
    """An operator of the library for an aten call: inputs by its names, attributes, which output it is."""

    op: str
    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)


def _unary(op: str) -> Callable[..., Call]:
    return lambda x: Call(op, {"x": x})


def _dims(dim: Any) -> list[int] | None:
    return None if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)


def _reduction(op: str, name: str = "dims", **attributes: Any) -> Callable[..., Call]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Call:
        return Call(op, {"x": x}, {name: _dims(dim), "keepdim": keepdim, **attributes})

    return call


def _clip(x: Any, min: Any = None, max: Any = None) -> Call:
    limits = {"min": min, "max": max}
    inputs = {k: v for k, v in limits.items() if hasattr(v, "shape")}
    return Call("clip", {"x": x} | inputs, {k: v for k, v in limits.items() if k not in inputs})


def _norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Call | None:
    op = {1: "reduce_l1", 2: "l2_norm"}.get(int(ord)) if float(ord).is_integer() else None
    name = "dims" if op == "reduce_l1" else "dim"
    return Call(op, {"x": x}, {name: _dims(dim), "keepdim": keepdim}) if op else None


def _add(op: str) -> Callable[..., Call]:
    return lambda a, b, *, alpha=1: Call(op, {"a": a, "b": b}, {"alpha": alpha} if alpha != 1 else {})


def _rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Call:
    eps = 2.0**-52 if eps is None else eps  # of inputs in float64; `reference` gives that of the others
    return Call("rms_norm", {"x": x, "weight": weight}, {"eps": eps, "normalized_shape": list(shape)}, ("y", "rstd"))


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
) -> Call:
    inputs = {"x": x, "weight": weight, "bias": bias}
    attributes = {"stride": list(stride), "padding": list(padding), "dilation": list(dilation), "groups": groups}
    if transposed:
        return Call("conv_transpose", inputs, attributes | {"output_padding": list(more)})
    return Call("conv", inputs, attributes)


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Call | None:
    if scale == 1 and input_scale == 1:
        return Call("elu", {"x": x}, {"alpha": alpha})
    return Call("selu", {"x": x}) if input_scale == 1 else None  # what calls it otherwise is F.selu alone


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Call:
    inputs = {"x": x, "weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    attributes = {"training": training, "momentum": momentum, "eps": eps}
    return Call("batch_norm", inputs, attributes, ("y", "mean", "rstd") if training else ("y",))


def _loss(op: str, name: str = "") -> Callable[..., Call]:
    def call(x: Any, target: Any, how: int = 1, value: float = 1) -> Call:
        attributes = {"reduction": ("none", "mean", "sum")[how]} | ({name: value} if name else {})
        return Call(op, {"input": x, "target": target}, attributes, ("loss",))

    return call


OPERATORS: dict[str, Callable[..., Call | None]] = {
    **{name: _unary(name) for name in "exp log sqrt rsqrt reciprocal neg abs relu sigmoid tanh silu".split()},
    **{name: _unary(name) for name in "hardsigmoid hardswish mish".split()},
    "log_sigmoid_forward": _unary("logsigmoid"),
    "leaky_relu": lambda x, slope=0.01: Call("leaky_relu", {"x": x}, {"negative_slope": slope}),
    "elu": _elu,
    "celu": lambda x, alpha=1: Call("celu", {"x": x}, {"alpha": alpha}),
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "mse_loss": _loss("mse_loss"),
    "smooth_l1_loss": _loss("smooth_l1_loss", "beta"),
    "huber_loss": _loss("huber_loss", "delta"),
    "_adaptive_avg_pool2d": lambda x, size: Call("adaptive_avg_pool", {"x": x}, {"output_size": list(size)}),
    "_adaptive_avg_pool3d": lambda x, size: Call("adaptive_avg_pool", {"x": x}, {"output_size": list(size)}),
    "add": _add("add"),
    "sub": _add("sub"),
    "rsub": lambda a, b, alpha=1: Call("sub", {"a": b, "b": a}, {"alpha": alpha} if alpha != 1 else {}),
    "mul": lambda a, b: Call("mul", {"a": a, "b": b}),
    "div": lambda a, b, *, rounding_mode=None: None if rounding_mode else Call("div", {"a": a, "b": b}),
    "pow": lambda a, b: Call("pow", {"a": a, "b": b}),
    "maximum": lambda a, b: Call("maximum", {"a": a, "b": b}),
    "minimum": lambda a, b: Call("minimum", {"a": a, "b": b}),
    "clamp": _clip,
    "clamp_min": lambda x, low: _clip(x, low),
    "clamp_max": lambda x, high: _clip(x, None, high),
    "hardtanh": lambda x, low=-1, high=1: _clip(x, low, high),
    "gelu": lambda x, *, approximate="none": Call("gelu", {"x": x}, {"approximate": approximate}),
    "softplus": lambda x, beta=1, threshold=20: Call("softplus", {"x": x}, {"beta": beta, "threshold": threshold}),
    "mm": lambda a, b: Call("matmul", {"a": a, "b": b}),
    "bmm": lambda a, b: Call("matmul", {"a": a, "b": b}),
    "mv": lambda a, b: Call("matmul", {"a": a, "b": b}),
    "dot": lambda a, b: Call("matmul", {"a": a, "b": b}),
    "_softmax": lambda x, dim, half: Call("softmax", {"x": x}, {"dim": dim}),
    "_safe_softmax": lambda x, dim, dtype=None: Call("softmax", {"x": x}, {"dim": dim}),
    "_log_softmax": lambda x, dim, half: Call("log_softmax", {"x": x}, {"dim": dim}),
    "logsumexp": _reduction("logsumexp"),
    "sum": _reduction("reduce_sum"),
    "mean": _reduction("reduce_mean"),
    "amax": _reduction("reduce_max", "dim", ties="even"),
    "amin": _reduction("reduce_min", "dim", ties="even"),
    "max": _reduction("reduce_max", "dim", ties="even"),
    "min": _reduction("reduce_min", "dim", ties="even"),
    "linalg_vector_norm": _norm,
    "cumsum": lambda x, dim, *, dtype=None: Call("cumsum", {"x": x}, {"dim": dim}),
    "embedding": lambda weight, index, *_: Call("embedding", {"weight": weight, "index": index}),
    "nll_loss_forward": lambda x, target, weight, how, ignored: Call(
        "nll_loss",
        {"log_probs": x, "target": target, "weight": weight},
        {"reduction": ("none", "mean", "sum")[how], "ignore_index": ignored},
        ("loss",),
    ),
    "native_layer_norm": lambda x, shape, weight, bias, eps: Call(
        "layer_norm",
        {"x": x, "weight": weight, "bias": bias},
        {"eps": eps, "normalized_shape": list(shape)},
        ("y", "mean", "rstd"),
    ),
    "native_group_norm": lambda x, weight, bias, n, c, hw, groups, eps: Call(
        "group_norm",
        {"x": x, "weight": weight, "bias": bias},
        {"eps": eps, "num_groups": groups},
        ("y", "mean", "rstd"),
    ),
    "_fused_rms_norm": _rms_norm,
    "rms_norm": _rms_norm,
}
