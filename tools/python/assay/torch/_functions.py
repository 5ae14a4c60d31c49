"""Functions that modules call between their submodules, as the operators of the library that they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .. import _core
from ._edges import Edges
from ._guards import harmless
from ._modules import in_backward

if TYPE_CHECKING:
    from ._calls import Caller, Calls


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
    attributes: tuple[tuple[str, str], ...] = ()
    """The operator's attribute of each parameter that is one."""
    only: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Values of parameters with which it is that operator."""
    unused_with: tuple[str, tuple[str, ...]] = ("", ())
    """A flag, and the parameters that have no part in a result if it is set."""

    def takes_numbers(self, arg: str) -> bool:
        """Whether a number of the program is an operand as a tensor is one."""
        return arg in (("a", "b") if "a" in self.inputs else ("min", "max"))

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
        """Returns what a call was given, under the operator's names; None for a call that the operator is not."""
        kwargs = {_OTHER_NAMES.get(name, name): value for name, value in kwargs.items()}
        if "x_#" in self.inputs:
            first = self.inputs.index("x_#")
            operands = args[first] if len(args) == first + 1 and isinstance(args[first], list | tuple) else args[first:]
            inputs = [(f"x_{i}", x) for i, x in enumerate(operands)]
            given = dict(zip(self.names, args[:first], strict=False)) | kwargs
        else:
            given = dict(zip(self.names, args, strict=False)) | kwargs
            places = dict(zip(self.names, self.inputs, strict=False))
            inputs = [(places[name], x) for name, x in given.items() if places.get(name)]
            inputs += list(zip(self.inputs[len(inputs) :], self.then, strict=False))
        flag, unused = self.unused_with
        if given.get(flag):
            inputs = [(arg, x) for arg, x in inputs if arg not in unused]
        if any(given.get(name, values[0]) not in values for name, values in self.only):
            return None
        attributes = {attribute: given[name] for name, attribute in self.attributes if given.get(name) is not None}
        return Given(inputs, {name: value for name, value in attributes.items() if is_plain(value)})


class Given(NamedTuple):
    inputs: list[tuple[str, Any]]
    attributes: dict[str, Any]


def is_plain(value: Any) -> bool:
    """Whether a dump has words for it."""
    if isinstance(value, list | tuple):
        return all(isinstance(v, int) for v in value)
    return isinstance(value, bool | int | float | str)


_OTHER_NAMES = {"axis": "dim", "keepdims": "keepdim"}
"""torch takes numpy's."""
_UNARY = (
    "exp log sqrt rsqrt reciprocal abs neg relu sigmoid tanh softplus gelu silu "
    "logsigmoid mish selu softsign hardsigmoid hardswish"
).split()
_BINARY = {"mul": "mul", "truediv": "div", "pow": "pow", "maximum": "maximum", "minimum": "minimum"}
_IN_PLACE = ("add", "sub", "mul", "truediv", "pow")
_PRODUCTS = {"matmul": "other", "bmm": "mat2", "mm": "mat2", "mv": "vec", "dot": "tensor"}
_ALONG = ("softmax", "log_softmax", "cumsum")
_REDUCTIONS = {"sum": "reduce_sum", "mean": "reduce_mean", "logsumexp": "logsumexp"}
_NORM = Known(
    "l2_norm",
    ("x",),
    names=("input", "p", "dim", "keepdim"),
    attributes=(("dim", "dim"), ("keepdim", "keepdim")),
    only=(("p", (2, "fro", None)),),
)


_WINDOWS = ("stride", "padding", "dilation", "groups")
_CONVOLUTION = Known(
    "conv",
    ("x", "weight", "bias"),
    names=("input", "weight", "bias", *_WINDOWS),
    attributes=tuple((name, name) for name in _WINDOWS),
)


def _all_of(*names: str) -> tuple[tuple[str, str], ...]:
    """Attributes that the operator and the function call alike."""
    return tuple((name, name) for name in names)


_POOLING = ("kernel_size", "stride", "padding")
_MAX_POOLING = (*_POOLING, "dilation", "ceil_mode", "return_indices")
_AVERAGES = (*_POOLING, "ceil_mode", "count_include_pad", "divisor_override")
_MAX_POOL = Known("max_pool", ("x",), ("y", "index"), ("input", *_MAX_POOLING), attributes=_all_of(*_MAX_POOLING))
_ADAPTIVE = ("output_size", "return_indices")
_STATISTICS = ("running_mean", "running_var", "weight", "bias")


def _loss(op: str, *own: str) -> Known:
    unweighted = ("weight", "pos_weight", "size_average", "reduce")
    return Known(
        op,
        ("input", "target"),
        ("loss",),
        attributes=_all_of("reduction", *own),
        names=("input", "target"),
        only=tuple((name, (None,)) for name in unweighted),
    )


def _by_index(op: str) -> Known:
    return Known(op, ("x", "", "index"), names=("input", "dim", "index"), attributes=(("dim", "dim"),))


# By the name of the function, of the method and of the method behind an operator of Python (__mul__).
FUNCTIONS: dict[str, Known] = {
    **{name: Known(name, ("x",)) for name in _UNARY},
    **{name: Known(op, ("a", "b")) for name, op in _BINARY.items()},
    **{name: Known(name, ("a", "b"), attributes=(("alpha", "alpha"),)) for name in ("add", "sub")},
    "div": Known("div", ("a", "b"), only=(("rounding_mode", (None,)),)),
    **{name: Known("matmul", ("a", "b"), names=("input", second)) for name, second in _PRODUCTS.items()},
    "addmm": Known("addmm", ("b", "x", "w"), names=("input", "mat1", "mat2"), only=(("beta", (1,)), ("alpha", (1,)))),
    "where": Known("where", ("condition", "a", "b"), names=("condition", "input", "other")),
    "scatter_add": Known(
        "scatter_add", ("x", "", "index", "src"), names=("input", "dim", "index", "src"), attributes=(("dim", "dim"),)
    ),
    "group_norm": Known(
        "group_norm",
        ("x", "", "weight", "bias"),
        names=("input", "num_groups", "weight", "bias", "eps"),
        attributes=(("num_groups", "num_groups"), ("eps", "eps")),
    ),
    **{name: Known("clip", ("x", "min", "max"), names=("input", "min", "max")) for name in ("clamp", "clip")},
    **{f"conv{rank}d": _CONVOLUTION for rank in (1, 2, 3)},
    **{
        f"conv_transpose{rank}d": Known(
            "conv_transpose",
            ("x", "weight", "bias"),
            names=("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
            attributes=_all_of("stride", "padding", "output_padding", "groups", "dilation"),
        )
        for rank in (1, 2, 3)
    },
    **{
        f"avg_pool{rank}d": Known("avg_pool", ("x",), names=("input", *_AVERAGES), attributes=_all_of(*_AVERAGES))
        for rank in (1, 2, 3)
    },
    **{f"max_pool{rank}d{indices}": _MAX_POOL for rank in (1, 2, 3) for indices in ("", "_with_indices")},
    **{
        f"adaptive_avg_pool{rank}d": Known(
            "adaptive_avg_pool", ("x",), names=("input", "output_size"), attributes=_all_of("output_size")
        )
        for rank in (1, 2, 3)
    },
    **{
        f"adaptive_max_pool{rank}d{indices}": Known(
            "adaptive_max_pool", ("x",), ("y", "index"), ("input", *_ADAPTIVE), attributes=_all_of(*_ADAPTIVE)
        )
        for rank in (1, 2, 3)
        for indices in ("", "_with_indices")
    },
    "batch_norm": Known(
        "batch_norm",
        ("x", *_STATISTICS),
        names=("input", *_STATISTICS, "training", "momentum", "eps"),
        attributes=_all_of("training", "momentum", "eps"),
        unused_with=("training", _STATISTICS[:2]),
    ),
    "instance_norm": Known(
        "instance_norm",
        ("x", "", "", "weight", "bias"),
        names=("input", *_STATISTICS, "use_input_stats", "momentum", "eps"),
        attributes=_all_of("eps"),
        only=(("use_input_stats", (True,)),),
    ),
    **{name: Known(name, ("x",), names=("input", "alpha"), attributes=_all_of("alpha")) for name in ("elu", "celu")},
    "hardtanh": Known(
        "hardtanh", ("x",), names=("input", "min_val", "max_val"), attributes=_all_of("min_val", "max_val")
    ),
    "relu6": Known("clip", ("x", "min", "max"), names=("input",), then=(0, 6)),
    **{name: _loss(name) for name in ("mse_loss", "l1_loss", "binary_cross_entropy")},
    "binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits"),
    "smooth_l1_loss": _loss("smooth_l1_loss", "beta"),
    "huber_loss": _loss("huber_loss", "delta"),
    "kl_div": _loss("kl_div", "log_target"),
    "leaky_relu": Known(
        "leaky_relu", ("x",), names=("input", "negative_slope"), attributes=(("negative_slope", "negative_slope"),)
    ),
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
    **{name: Known(name, ("x",), names=("input", "dim"), attributes=(("dim", "dim"),)) for name in _ALONG},
    **{
        name: Known(op, ("x",), names=("input", "dim", "keepdim"), attributes=(("dim", "dims"), ("keepdim", "keepdim")))
        for name, op in _REDUCTIONS.items()
    },
    "topk": Known(
        "top_k",
        ("x",),
        ("y", "index"),
        ("input", "k", "dim", "largest"),
        attributes=(("k", "k"), ("dim", "dim"), ("largest", "largest")),
    ),
    "einsum": Known("einsum", ("", "x_#"), names=("equation",), attributes=(("equation", "equation"),)),
    "gather": _by_index("gather"),
    "index_select": _by_index("index_select"),
    "norm": _NORM,
    "linalg_vector_norm": _NORM._replace(names=("input", "ord", "dim", "keepdim"), only=(("ord", (2,)),)),
}


@functools.cache
def known_function(name: str) -> Known | None:
    """One that works in place is the same function: what it is given is copied before."""
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        bare = name[1:]
        name = bare if (name[0] == "i" and bare in _IN_PLACE) or (name[0] == "r" and bare in ("add", "mul")) else name
    elif name.endswith("_"):
        name = name[:-1]
    return FUNCTIONS.get(name)


@functools.cache
def is_known_class(name: str) -> bool:
    """Whether a module of this class is judged as a whole: what it calls inside says no more."""
    return _core.operator_of_class(name) != ""


class Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is not there where this is checked
    """Is entered while a model is called: a function that the innermost module calls is recorded as if it were a module
    of its own, "mlp.silu()".
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls, self.remarks = calls, calls.remarks

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        known = known_function(getattr(func, "__name__", ""))
        if known is None or "out" in kwargs:
            return func(*args, **kwargs)
        call = self._before(known, args, kwargs)
        output = func(*args, **kwargs)
        if call is not None:
            self._after(call, known, output)
        return output

    @harmless
    def _before(self, known: Known, args: Any, kwargs: Any) -> Caller | None:
        """None: it is not recorded."""
        caller = self._calls.innermost
        if caller is None or caller.is_whole or in_backward() or not torch.is_grad_enabled():
            return None
        given = known.read(args, kwargs)
        if given is None:
            return None
        values = [x for _, x in given.inputs]
        operands = [(arg, as_operand(x, values) if known.takes_numbers(arg) else x) for arg, x in given.inputs]
        tensors = [(arg, x) for arg, x in operands if torch.is_tensor(x)]
        required = {"a", "b"} if "a" in known.inputs else {"x"} & set(known.inputs)
        if (
            not tensors
            or not required <= {arg for arg, _ in tensors}
            or any(not x.dtype.is_floating_point and arg.split("_")[0] in ("a", "b", "x") for arg, x in tensors)
        ):
            return None
        path = f"{caller.path}.{known.op}()".lstrip(".")
        wanted = [(arg, x) for arg, x in tensors if not isinstance(x, nn.Parameter)]
        place = replace(self._calls.place(caller.root, path, known.op), attributes=given.attributes)
        edges = Edges(wanted if self._calls.wants_gradients else ())
        call = replace(caller, path=path, is_whole=True, place=place, edges=edges, layouts={})
        for arg, x in tensors:
            self._calls.take_input(call, arg, x)
        return call

    @harmless
    def _after(self, call: Caller, known: Known, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        for arg, y in zip(known.outputs, outputs, strict=False):
            if torch.is_tensor(y):
                self._calls.take_output(call.place, arg, y, within=True)
        self._calls.watch(call, [y for y in outputs if torch.is_tensor(y)], within=True)


def as_operand(x: Any, beside: list[Any]) -> Any:
    """What is no tensor of floating-point numbers as kernels have it: a number in float32, whatever narrower dtype they
    compute with, integers and booleans in the dtype of the result.
    """
    floats = [t for t in beside if torch.is_tensor(t) and t.is_floating_point()]
    if torch.is_tensor(x):
        return x if x.is_floating_point() or x.is_complex() or not floats else x.to(torch.result_type(x, floats[0]))
    if not isinstance(x, (int, float)) or isinstance(x, bool):
        return x
    is_wide = any(t.dtype == torch.float64 for t in floats)
    return torch.tensor(float(x), dtype=torch.float64 if is_wide else torch.float32, device="cpu")
