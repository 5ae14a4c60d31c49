"""Any PyTorch function as the reference of a kernel: run in float64, with a bound from the operators behind its calls.

Each aten call that the function makes is one of three: it moves elements, and moves their errors alike; it is an
operator (or a function) whose error bound the C++ library has; or its bound is not known, and it is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._api import Verdict
from ._arrays import tensor

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Reference", "UnknownBound", "reference"]


class UnknownBound(_core.Error):
    """A reference makes calls whose error bound is not known."""


@dataclass
class Reference:
    """What a function makes in float64, and the error that a correct kernel may make before it stores it."""

    values: dict[str, Tensor]
    errors: dict[str, Tensor]
    calls: dict[str, int] = field(default_factory=dict)
    """How often each aten call was made whose rounding counts."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Calls whose bound is not known; what they lead to has infinite errors."""

    def judge(self, outputs: Any) -> Verdict:
        """Judges outputs of a kernel, each in its own dtype.

        Raises:
            UnknownBound: if an output follows from a call whose bound is not known.
        """
        import torch

        made = _by_name(outputs)
        if set(made) != set(self.values):
            raise TypeError(f"the reference makes {sorted(self.values)}, the kernel {sorted(made)}; expected the same")
        actual, golden, allowed = [], [], []
        for name, output in made.items():
            kernels = tensor(output)
            value, error = self.values[name], self.errors[name]
            if self.unknown and bool(torch.isinf(error).any()):
                raise UnknownBound(
                    f"'{name}' follows from calls whose bound is not known: {', '.join(sorted(self.unknown))}; "
                    "expected a reference of operators that assay has (docs/kernels.md)"
                )
            actual.append((name, kernels))
            golden.append((name, tensor(value)))
            allowed.append((name, tensor(_stored(error, value, kernels.dtype))))
        source = f"derived: error bound of the {sum(self.calls.values())} rounding calls of the reference"
        return Verdict(_core.judge_by_bound(actual, golden, allowed, source))


def reference(
    function: Callable[..., Any],
    *args: Any,
    intermediate: str | None = None,
    accumulator: str = "",
    **kwargs: Any,
) -> Reference:
    """Runs a function of PyTorch on the CPU in float64, with an error bound of every value.

    Args:
        function: a function or a module. It is called with copies of the arguments in which floating-point
            tensors are float64; tensors that it brings along (weights) are widened where they are used.
        intermediate: the dtype in which the kernel keeps results between the calls; None: in float32.
        accumulator: how the device adds, as for `assay.bound`.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mode = _mode(intermediate, accumulator)

    def widened(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.detach().cpu()
            return x.double() if x.is_floating_point() else x
        if isinstance(x, Mapping):
            return {k: widened(v) for k, v in x.items()}
        return type(x)(widened(v) for v in x) if isinstance(x, (list, tuple)) else x

    given, named = widened(args), widened(kwargs)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), mode:
            made = _by_name(function(*given, **named))
    finally:
        torch.set_default_dtype(usual)
    values = {k: v.double() if v.is_floating_point() else v for k, v in made.items()}
    return Reference(values, {k: mode.error_of(v) for k, v in made.items()}, mode.calls, mode.unknown)


def _by_name(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, (list, tuple)):
        return {f"output_{i}": o for i, o in enumerate(outputs) if o is not None}
    return {"output": outputs}


def _stored(error: Tensor, value: Tensor, dtype: str) -> Tensor:
    """With the rounding of the final store to a narrower dtype than float32."""
    import torch

    info = torch.finfo(getattr(torch, dtype)) if hasattr(torch, dtype) and "float" in dtype else None
    if info is None or info.eps <= torch.finfo(torch.float32).eps:
        return error
    return error + info.eps / 2 * (value.abs() + error) + info.smallest_normal * info.eps / 2


# aten calls that only move elements: their errors move alike. Of _to_copy only integers change.
_MOVES = frozenset(
    "view reshape _unsafe_view _reshape_alias permute transpose t expand slice select cat stack clone contiguous "
    "detach squeeze unsqueeze index_select gather index flip roll repeat unbind split split_with_sizes chunk alias "
    "lift_fresh masked_fill where tril triu constant_pad_nd narrow diagonal unfold as_strided movedim take_along_dim "
    "_conj resolve_conj resolve_neg expand_as view_as flatten unflatten".split()
)
# What has no error: made from nothing, or not of floating point.
_EXACT = frozenset(
    "zeros ones full empty arange zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty eye "
    "scalar_tensor eq ne lt le gt ge logical_and logical_or logical_not isnan isinf argmax argmin argsort one_hot "
    "bitwise_and bitwise_or bitwise_not any all new_empty_strided empty_strided sym_size".split()
)
_FUNCTIONS = frozenset("sin cos erf erfc expm1 log1p floor".split())


@dataclass
class _Call:
    """An operator of the library for an aten call: inputs by its names, attributes, which output it is."""

    op: str
    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)


def _unary(op: str) -> Callable[..., _Call]:
    return lambda x: _Call(op, {"x": x})


def _dims(dim: Any) -> list[int] | None:
    return None if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)


def _reduction(op: str, name: str = "dims", **attributes: Any) -> Callable[..., _Call]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> _Call:
        return _Call(op, {"x": x}, {name: _dims(dim), "keepdim": keepdim, **attributes})

    return call


def _clip(x: Any, min: Any = None, max: Any = None) -> _Call:
    return _Call("clip", {"x": x}, {"min": min, "max": max})


def _norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> _Call | None:
    op = {1: "reduce_l1", 2: "l2_norm"}.get(int(ord)) if float(ord).is_integer() else None
    name = "dims" if op == "reduce_l1" else "dim"
    return _Call(op, {"x": x}, {name: _dims(dim), "keepdim": keepdim}) if op else None


def _add(op: str) -> Callable[..., _Call]:
    return lambda a, b, *, alpha=1: _Call(op, {"a": a, "b": b}, {"alpha": alpha} if alpha != 1 else {})


def _rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> _Call:
    eps = 2.0**-52 if eps is None else eps
    return _Call("rms_norm", {"x": x, "weight": weight}, {"eps": eps, "normalized_shape": list(shape)}, ("y", "rstd"))


_OPERATORS: dict[str, Callable[..., _Call | None]] = {
    **{name: _unary(name) for name in "exp log sqrt rsqrt reciprocal neg abs relu sigmoid tanh silu".split()},
    "add": _add("add"),
    "sub": _add("sub"),
    "rsub": lambda a, b, alpha=1: _Call("sub", {"a": b, "b": a}, {"alpha": alpha} if alpha != 1 else {}),
    "mul": lambda a, b: _Call("mul", {"a": a, "b": b}),
    "div": lambda a, b, *, rounding_mode=None: None if rounding_mode else _Call("div", {"a": a, "b": b}),
    "pow": lambda a, b: _Call("pow", {"a": a, "b": b}),
    "maximum": lambda a, b: _Call("maximum", {"a": a, "b": b}),
    "minimum": lambda a, b: _Call("minimum", {"a": a, "b": b}),
    "clamp": _clip,
    "clamp_min": lambda x, low: _clip(x, low),
    "clamp_max": lambda x, high: _clip(x, None, high),
    "hardtanh": lambda x, low=-1, high=1: _clip(x, low, high),
    "gelu": lambda x, *, approximate="none": _Call("gelu", {"x": x}, {"approximate": approximate}),
    "softplus": lambda x, beta=1, threshold=20: _Call("softplus", {"x": x}, {"beta": beta, "threshold": threshold}),
    "mm": lambda a, b: _Call("matmul", {"a": a, "b": b}),
    "bmm": lambda a, b: _Call("matmul", {"a": a, "b": b}),
    "mv": lambda a, b: _Call("matmul", {"a": a, "b": b}),
    "dot": lambda a, b: _Call("matmul", {"a": a, "b": b}),
    "_softmax": lambda x, dim, half: _Call("softmax", {"x": x}, {"dim": dim}),
    "_safe_softmax": lambda x, dim, dtype=None: _Call("softmax", {"x": x}, {"dim": dim}),
    "_log_softmax": lambda x, dim, half: _Call("log_softmax", {"x": x}, {"dim": dim}),
    "logsumexp": _reduction("logsumexp"),
    "sum": _reduction("reduce_sum"),
    "mean": _reduction("reduce_mean"),
    "amax": _reduction("reduce_max", "dim", ties="even"),
    "amin": _reduction("reduce_min", "dim", ties="even"),
    "max": _reduction("reduce_max", "dim", ties="even"),
    "min": _reduction("reduce_min", "dim", ties="even"),
    "linalg_vector_norm": _norm,
    "cumsum": lambda x, dim, *, dtype=None: _Call("cumsum", {"x": x}, {"dim": dim}),
    "embedding": lambda weight, index, *_: _Call("embedding", {"weight": weight, "index": index}),
    "nll_loss_forward": lambda x, target, weight, how, ignored: _Call(
        "nll_loss",
        {"log_probs": x, "target": target, "weight": weight},
        {"reduction": ("none", "mean", "sum")[how], "ignore_index": ignored},
        ("loss",),
    ),
    "native_layer_norm": lambda x, shape, weight, bias, eps: _Call(
        "layer_norm",
        {"x": x, "weight": weight, "bias": bias},
        {"eps": eps, "normalized_shape": list(shape)},
        ("y", "mean", "rstd"),
    ),
    "native_group_norm": lambda x, weight, bias, n, c, hw, groups, eps: _Call(
        "group_norm",
        {"x": x, "weight": weight, "bias": bias},
        {"eps": eps, "num_groups": groups},
        ("y", "mean", "rstd"),
    ),
    "_fused_rms_norm": _rms_norm,
    "rms_norm": _rms_norm,
}


def _mode(intermediate: str | None, accumulator: str) -> Any:
    """The dispatch mode; torch is imported by whoever has a reference, so the class is made here."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map
    from torch.utils.weak import WeakTensorKeyDictionary

    aten = torch.ops.aten
    kept = torch.finfo(getattr(torch, intermediate)).eps / 2 if intermediate else 0.0

    class Bounds(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.errors = WeakTensorKeyDictionary()
            self.calls: dict[str, int] = {}
            self.unknown: dict[str, int] = {}

        def error_of(self, x: Tensor) -> Tensor:
            known = self.errors.get(x)
            return known if known is not None else torch.zeros(x.shape, dtype=torch.float64)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            name = func._schema.name.removeprefix("aten::")
            in_place = name.endswith("_") and not name.startswith("_") and name[:-1] not in ("", "_")
            plain = name[:-1] if in_place else name
            # No call rounds to a narrower dtype: what a kernel rounds is in its bound.
            if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_floating_point:
                kwargs["dtype"] = torch.float64
            if not in_place:  # what the function brings along: the weights of a module
                args, kwargs = tree_map(lambda x: self.wide(x) if _is_float(x) else x, (args, kwargs))
            if plain in ("addmm", "baddbmm"):
                return self.added_product(plain, *args, **kwargs)
            given = list(args)
            if in_place:
                given[0] = args[0].clone()
                self.errors[given[0]] = self.error_of(args[0]).clone()
            out = func(*args, **kwargs)
            self.take(plain, func, given, kwargs, out)
            if in_place:
                self.forget_views(plain, args[0])
            return out

        def wide(self, x: Tensor) -> Tensor:
            if x.dtype == torch.float64:
                return x
            wide = x.double()
            if (known := self.errors.get(x)) is not None:
                self.errors[wide] = known
            return wide

        def forget_views(self, plain: str, changed: Tensor) -> None:
            """Other tensors of the same memory have other values now, with errors that nobody knows."""
            memory = changed.untyped_storage().data_ptr()
            for other in list(self.errors):
                if other is not changed and other.untyped_storage().data_ptr() == memory:
                    self.errors[other] = torch.full(other.shape, math.inf, dtype=torch.float64)
                    name = f"{plain}_ of a tensor that has views"
                    self.unknown[name] = self.unknown.get(name, 0) + 1

        def added_product(self, plain: str, x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
            product = aten.mm(a, b) if plain == "addmm" else aten.bmm(a, b)
            self.take("mm", None, [a, b], {}, product)
            parts = []
            for part, factor in ((product, alpha), (x, beta)):
                scaled = aten.mul(part, factor) if factor != 1 else part
                if factor != 1:
                    self.take("mul", None, [part, factor], {}, scaled)
                parts.append(scaled)
            out = aten.add(*parts)
            self.take("add", None, parts, {}, out)
            return out

        def take(self, plain: str, func: Any, args: list[Any], kwargs: dict[str, Any], out: Any) -> None:
            """Finds the errors of what a call made."""
            made = [o for o in tree_leaves(out) if isinstance(o, torch.Tensor) and o.is_floating_point()]
            if not made or plain in _EXACT:
                return
            if plain in _MOVES or plain in ("_to_copy", "copy", "fill", "zero"):
                self.move(plain, func, args, kwargs, made)
                return
            errors = self.bound(plain, args, kwargs, made)
            if errors is None:
                self.unknown[plain] = self.unknown.get(plain, 0) + 1
                errors = [torch.full(o.shape, math.inf, dtype=torch.float64) for o in made]
            else:
                self.calls[plain] = self.calls.get(plain, 0) + 1
            for o, error in zip(made, errors, strict=True):
                if plain == "_safe_softmax":  # a row without any key is 0
                    error = torch.where((o == 0) & error.isnan(), 0.0, error)
                self.errors[o] = error + kept * (o.abs() + error) if kept else error

        def move(self, plain: str, func: Any, args: list[Any], kwargs: dict[str, Any], made: list[Tensor]) -> None:
            if plain in ("_to_copy", "copy"):
                source = args[0] if plain == "_to_copy" else args[1]
                moved: list[Any] = [self.error_of(source).expand(made[0].shape).clone()]
            elif plain in ("fill", "zero"):
                moved = [torch.zeros(made[0].shape, dtype=torch.float64)]
            elif plain in ("masked_fill", "where", "constant_pad_nd"):
                # A number that is put in is exact.
                last = len(args) - 1
                args = [
                    self.error_of(a) if _is_float(a) else 0.0 if _is_number(a, i, last) else a
                    for i, a in enumerate(args)
                ]
                moved = tree_leaves(func(*args, **kwargs))
            else:
                moved = tree_leaves(func(*tree_map(lambda a: self.error_of(a) if _is_float(a) else a, args), **kwargs))
            for o, error in zip(made, moved, strict=True):
                self.errors[o] = error.clone()

        def bound(self, plain: str, args: list[Any], kwargs: dict[str, Any], made: list[Tensor]) -> list[Tensor] | None:
            if plain in _FUNCTIONS:
                of_one = _core.bound_of_function(
                    plain, tensor(args[0].contiguous()), tensor(self.error_of(args[0]).contiguous())
                )
                return [torch.from_dlpack(of_one)]
            if plain == "convolution":
                return self.convolution(args, made[0])
            make = _OPERATORS.get(plain)
            try:
                call = make(*args, **kwargs) if make else None
            except TypeError:  # an overload with other arguments
                call = None
            if call is None:
                return None
            inputs = {
                k: v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64)
                for k, v in call.inputs.items()
                if v is not None
            }
            given = [(k, tensor(v)) for k, v in inputs.items()]
            errors = [
                (k, tensor(self.error_of(v).contiguous()))
                for k, v in inputs.items()
                if v.is_floating_point() and v in self.errors
            ]
            attributes = {k: v for k, v in call.attributes.items() if v is not None}
            try:
                found = dict(_core.bound(call.op, given, attributes, accumulator, intermediate, "float32", errors))
            except _core.Error:  # what the operator does not do
                return None
            # What has no bound of its own is a count.
            none = torch.zeros((), dtype=torch.float64)
            names = [*call.outputs, *[""] * len(made)]
            return [
                torch.from_dlpack(found[k]).reshape(o.shape) if k else none.expand(o.shape)
                for k, o in zip(names, made, strict=False)
            ]

        def convolution(self, args: list[Any], out: Tensor) -> list[Tensor] | None:
            """A product of matrices, of the windows of x."""
            x, weight, bias, stride, padding, dilation, is_transposed, _, groups = args
            if is_transposed or groups != 1 or weight.dim() not in (3, 4):
                return None
            flat = weight.dim() == 3

            def windows(t: Tensor) -> Tensor:
                return torch.nn.functional.unfold(
                    t.unsqueeze(-2) if flat else t,
                    [1, weight.shape[-1]] if flat else list(weight.shape[2:]),
                    dilation=[1, *dilation] if flat else list(dilation),
                    padding=[0, *padding] if flat else list(padding),
                    stride=[1, *stride] if flat else list(stride),
                )

            rows = weight.flatten(1)
            parts = [("a", tensor(rows.contiguous())), ("b", tensor(windows(x).contiguous()))]
            errors = [("a", self.error_of(weight).flatten(1)), ("b", windows(self.error_of(x)))]
            given = [(k, tensor(e.contiguous())) for k, e in errors]
            found = dict(_core.bound("matmul", parts, {}, accumulator, intermediate, "float32", given))
            error = torch.from_dlpack(found["y"]).reshape(out.shape)
            if bias is None:
                return [error]
            shape = [1, -1, *[1] * (out.dim() - 2)]
            inputs = [
                ("a", tensor((out - bias.reshape(shape)).contiguous())),
                ("b", tensor(bias.reshape(shape).contiguous())),
            ]
            errors = [("a", error), ("b", self.error_of(bias).reshape(shape))]
            given = [(k, tensor(e.contiguous())) for k, e in errors]
            found = dict(_core.bound("add", inputs, {}, accumulator, intermediate, "float32", given))
            return [torch.from_dlpack(found["y"]).reshape(out.shape)]

    def _is_float(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.is_floating_point()

    def _is_number(x: Any, at: int, last: int) -> bool:
        return at == last and isinstance(x, (int, float)) and not isinstance(x, bool)

    return Bounds()
