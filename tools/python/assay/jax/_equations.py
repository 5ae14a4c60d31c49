"""Equations of a jaxpr as the operators of the library that they are."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Call(NamedTuple):
    """An equation under the operator's names: its operands and results, in their order."""

    op: str
    inputs: list[tuple[str, Any]]
    outputs: list[tuple[str, Any]]
    attributes: dict[str, Any] = {}  # noqa: RUF012  # nobody changes it


_Reader = Callable[[dict[str, Any], Sequence[Any], Sequence[Any]], Call | None]


def call_of(primitive: str, params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
    """None for what is no operator of the library, or only moves values."""
    reader = READERS.get(primitive)
    call = None if reader is None else reader(params, inputs, outputs)
    if call is None or any(not _is_float(x) for name, x in call.inputs if name.split("_")[0] in ("a", "b", "x")):
        return None
    return call


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _unary(op: str) -> _Reader:
    return lambda params, inputs, outputs: Call(op, [("x", inputs[0])], [("y", outputs[0])])


def _binary(op: str) -> _Reader:
    return lambda params, inputs, outputs: Call(op, [("a", inputs[0]), ("b", inputs[1])], [("y", outputs[0])])


def _power(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
    exponent = np.float32(params.get("y", 2))
    return Call("pow", [("a", inputs[0]), ("b", exponent)], [("y", outputs[0])])


def _reduction(op: str) -> _Reader:
    def read(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
        axes = [int(a) for a in params["axes"]]
        if not axes:  # a sum over nothing
            return None
        attributes: dict[str, Any] = {"dims": axes}
        if op in ("argmax", "argmin", "reduce_prod") and len(axes) > 1:
            return None
        if op != "reduce_sum":
            attributes = {"dim": axes[0]} if len(axes) == 1 else {"dim": axes, "ties": "even"}
        return Call(op, [("x", inputs[0])], [("index" if op.startswith("arg") else "y", outputs[0])], attributes)

    return read


def _product(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    a, b = inputs
    if a.ndim + b.ndim > len(string.ascii_lowercase):
        return None
    letters = iter(string.ascii_lowercase)
    of_a = [next(letters) for _ in range(a.ndim)]
    of_b = [""] * b.ndim
    for i, j in [*zip(summed_a, summed_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
        of_b[j] = of_a[i]
    of_b = [letter or next(letters) for letter in of_b]
    free_a = [of_a[i] for i in range(a.ndim) if i not in summed_a and i not in batch_a]
    free_b = [of_b[j] for j in range(b.ndim) if j not in summed_b and j not in batch_b]
    of_y = [*(of_a[i] for i in batch_a), *free_a, *free_b]
    equation = f"{''.join(of_a)},{''.join(of_b)}->{''.join(of_y)}"
    return Call("einsum", [("x_0", a), ("x_1", b)], [("y", outputs[0])], {"equation": equation})


def _select(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
    if len(inputs) != 3 or inputs[0].dtype != np.bool_:
        return None
    condition, otherwise, then = inputs
    return Call("where", [("condition", condition), ("a", then), ("b", otherwise)], [("y", outputs[0])])


def _clip(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
    least, x, most = inputs
    return Call("clip", [("x", x), ("min", least), ("max", most)], [("y", outputs[0])])


def _top_k(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
    attributes = {"k": int(params["k"]), "dim": int(params.get("axis", -1))}
    return Call("top_k", [("x", inputs[0])], [("y", outputs[0]), ("index", outputs[1])], attributes)


def _cumulative(op: str) -> _Reader:
    def read(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
        attributes = {"dim": int(params["axis"]), "reverse": bool(params["reverse"])}
        if op != "cumsum" and attributes.pop("reverse"):
            return None
        return Call(op, [("x", inputs[0])], [("y", outputs[0])], attributes)

    return read


def _gather(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
    """Rows of a table (`embedding`), or an element for each index (`gather`: take_along_axis)."""
    x, starts = inputs
    how = params["dimension_numbers"]
    if starts.ndim == 0 or starts.shape[-1] != 1 or len(how.start_index_map) != 1:
        return None
    dim = how.start_index_map[0]
    index = starts[..., 0]
    of_slice = tuple(params["slice_sizes"])
    others = tuple(d for d in range(x.ndim) if d != dim)
    if x.ndim == 2 and dim == 0 and of_slice == (1, x.shape[1]) and tuple(how.collapsed_slice_dims) == (0,):
        if tuple(how.offset_dims) == (index.ndim,) and not how.operand_batching_dims:
            return Call("embedding", [("weight", x), ("index", index)], [("y", outputs[0])])
        return None
    is_apart = tuple(how.operand_batching_dims) == others == tuple(how.start_indices_batching_dims)
    if is_apart and set(of_slice) == {1} and index.ndim == x.ndim and outputs[0].shape == index.shape:
        return Call("gather", [("x", x), ("index", index)], [("y", outputs[0])], {"dim": int(dim)})
    return None


def _scatter(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call | None:
    """What take_along_axis hands back: each element goes where its index says."""
    x, starts, updates = inputs
    how = params["dimension_numbers"]
    if (
        starts.ndim == 0
        or starts.shape[-1] != 1
        or len(how.scatter_dims_to_operand_dims) != 1
        or how.update_window_dims
    ):
        return None
    dim = how.scatter_dims_to_operand_dims[0]
    others = tuple(d for d in range(x.ndim) if d != dim)
    if tuple(how.operand_batching_dims) != others or tuple(how.scatter_indices_batching_dims) != others:
        return None
    given = [("x", x), ("index", starts[..., 0]), ("src", updates)]
    return Call("scatter_add", given, [("y", outputs[0])], {"dim": int(dim)})


def _concatenation(params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
    parts = [(f"x_{i}", x) for i, x in enumerate(inputs)]
    return Call("concat", parts, [("y", outputs[0])], {"dim": int(params["dimension"])})


READERS: dict[str, _Reader] = {
    **{name: _unary(name) for name in "exp log tanh rsqrt sqrt abs neg".split()},
    "logistic": _unary("sigmoid"),
    **{name: _binary(name) for name in "add sub mul div pow".split()},
    "add_any": _binary("add"),
    "max": _binary("maximum"),
    "min": _binary("minimum"),
    "integer_pow": _power,
    "square": _power,
    **{name: _reduction(name) for name in "reduce_sum reduce_max reduce_min reduce_prod argmax argmin".split()},
    "dot_general": _product,
    "select_n": _select,
    "clamp": _clip,
    "top_k": _top_k,
    "cumsum": _cumulative("cumsum"),
    "cumprod": _cumulative("cumprod"),
    "gather": _gather,
    "scatter-add": _scatter,
    "concatenate": _concatenation,
}
"""By the name of the primitive. What only moves values is none: assay finds copies by what they hold."""
