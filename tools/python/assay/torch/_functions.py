"""Functions that modules call between their submodules, as the operators of the library that they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from .. import _core

if TYPE_CHECKING:
    from ._recorder import Recorder


class Known(NamedTuple):
    """An operator with its names for a function's tensors, in the order of the function's parameters."""

    op: str
    inputs: tuple[str, ...]
    """Empty for what is no tensor."""
    outputs: tuple[str, ...] = ("y",)
    names: tuple[str, ...] = ("input", "other")
    """What the function calls them."""
    then: tuple[float, ...] = ()
    """Numbers that the operator takes and the function has in its name."""

    def takes_numbers(self, arg: str) -> bool:
        """Whether a number of the program is an operand as a tensor is one."""
        return arg in (("a", "b") if "a" in self.inputs else ("min", "max"))


_UNARY = "exp log sqrt rsqrt reciprocal abs neg relu sigmoid tanh softplus gelu silu softmax log_softmax".split()
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "truediv": "div",
    "pow": "pow",
    "maximum": "maximum",
    "minimum": "minimum",
}
_PRODUCTS = ("matmul", "bmm", "mm")

# By the name of the function, of the method and of the method behind an operator of Python (__mul__).
FUNCTIONS: dict[str, Known] = {
    **{name: Known(name, ("x",)) for name in _UNARY},
    **{name: Known(op, ("a", "b")) for name, op in _BINARY.items()},
    **{name: Known("matmul", ("a", "b"), names=("input", "mat2")) for name in _PRODUCTS},
    **{name: Known("clip", ("x", "min", "max"), names=("input", "min", "max")) for name in ("clamp", "clip")},
    "square": Known("pow", ("a", "b"), then=(2,)),
    "rsub": Known("sub", ("b", "a")),
    "rdiv": Known("div", ("b", "a")),
    "masked_fill": Known("where", ("b", "condition", "a"), names=("input", "mask", "value")),
    "linear": Known("linear", ("x", "w", "b"), names=("input", "weight", "bias")),
    "embedding": Known("embedding", ("index", "weight"), names=("input", "weight")),
    "layer_norm": Known(
        "layer_norm", ("x", "", "weight", "bias"), names=("input", "normalized_shape", "weight", "bias")
    ),
    "rms_norm": Known("rms_norm", ("x", "", "weight"), names=("input", "normalized_shape", "weight")),
    "scaled_dot_product_attention": Known(
        "attention", ("q", "k", "v", "mask"), ("out",), ("query", "key", "value", "attn_mask")
    ),
    "cross_entropy": Known("cross_entropy", ("logits", "target"), ("loss",), ("input", "target")),
    "sum": Known("reduce_sum", ("x",)),
    "mean": Known("reduce_mean", ("x",)),
    "logsumexp": Known("logsumexp", ("x",)),
    "cumsum": Known("cumsum", ("x",)),
    "topk": Known("top_k", ("x",), ("y", "index")),
}


@functools.cache
def known_function(name: str) -> Known | None:
    """In-place functions are none: what they were given is gone."""
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name.startswith("i"):
            return None
        name = name.removeprefix("r") if name.removeprefix("r") in ("add", "mul") else name
    return FUNCTIONS.get(name)


@functools.cache
def is_known_class(name: str) -> bool:
    """Whether a module of this class is judged as a whole: what it calls inside says no more."""
    return _core.operator_of_class(name) != ""


class Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is not there where this is checked
    """Is entered while a model is called."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        known = known_function(getattr(func, "__name__", ""))
        if known is None or "out" in kwargs:
            return func(*args, **kwargs)
        return self._recorder.call_function(known, func, args, kwargs)
