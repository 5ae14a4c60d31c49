"""Running error analysis of aten calls: every value has the error that a correct kernel may have made on its way."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from . import _core
from ._arrays import tensor
from ._aten import EXACT, MOVES, OPERATORS


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


class KernelEpsilon(TorchFunctionMode):
    """rms_norm without an epsilon takes that of the dtype in which it computes: of the kernel's, not of float64."""

    def __init__(self, eps: float | None) -> None:
        super().__init__()
        self.eps = eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.rms_norm, torch.nn.functional.rms_norm) and self.eps is not None:
            given = dict(zip(("input", "normalized_shape", "weight", "eps"), args, strict=False)) | kwargs
            if given.get("eps") is None:
                given["eps"] = self.eps
            args, kwargs = (given.pop("input"), given.pop("normalized_shape")), given
        return func(*args, **kwargs)


class Bounds(TorchDispatchMode):
    """Keeps an error beside each element in memory: views share theirs, and changes in place reach all of them."""

    def __init__(self, intermediate: str | None, accumulator: str) -> None:
        super().__init__()
        # Words that it does not know are an error here: later that would be one of a call.
        _core.bound("exp", [("x", tensor(1.0))], {}, accumulator, intermediate, "float32", [])
        if intermediate:
            intermediate = tensor(0.0, intermediate).dtype  # "bf16" as torch has it
        self.intermediate = intermediate
        self.accumulator = accumulator
        info = torch.finfo(getattr(torch, intermediate)) if intermediate else None
        self.kept = info.eps / 2 if info else 0.0
        self.smallest = info.smallest_normal * info.eps / 2 if info else 0.0  # half of the smallest subnormal
        self.errors: dict[int, tuple[StorageWeakRef, Tensor]] = {}
        self.calls: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.is_lost = False
        """Whether a number with an error left the tensors of floating point: what comes of it is not followed."""

    def error_of(self, x: Tensor) -> Tensor:
        """The errors of its elements, where they lie: to be read and written."""
        memory = StorageWeakRef(x.untyped_storage())
        if memory.cdata not in self.errors:
            for gone in [k for k, (kept, _) in self.errors.items() if kept.expired()]:
                del self.errors[gone]
            count = x.untyped_storage().nbytes() // x.element_size()
            self.errors[memory.cdata] = (memory, torch.zeros(count, dtype=torch.float64))
        return self.errors[memory.cdata][1].as_strided(x.size(), x.stride(), x.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        in_place = name.endswith("_") and not name.startswith("_")
        plain = name.removesuffix("_") if in_place else name
        # No call rounds to a narrower dtype: what a kernel rounds is in its bound.
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_floating_point:
            kwargs["dtype"] = torch.float64
        if not in_place:  # what the function brings along
            args, kwargs = tree_map(lambda x: x.double() if _is_float(x) else x, (args, kwargs))
        self.follow(plain, args, kwargs)
        if plain in ("addmm", "baddbmm"):
            return self.added_product(plain, *args, **kwargs)
        if plain in MOVES:
            return self.move(plain, func, args, kwargs, in_place)
        given = list(args)
        if in_place:
            given[0] = args[0].clone()
            self.error_of(given[0]).copy_(self.error_of(args[0]))
        out = func(*args, **kwargs)
        self.take(plain, given, kwargs, out)
        return out

    def follow(self, plain: str, args: Any, kwargs: dict[str, Any]) -> None:
        target = kwargs.get("dtype") if plain == "_to_copy" else args[0].dtype if plain == "copy" else None
        leaves = plain == "_local_scalar_dense" or (target is not None and not target.is_floating_point)
        source = args[1 if plain == "copy" else 0] if leaves else None
        if _is_float(source) and bool(self.error_of(source).any()):
            self.unknown[plain] = self.unknown.get(plain, 0) + 1
            self.is_lost = True

    def added_product(self, plain: str, x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        parts = []
        product = torch.mm(a, b) if plain == "addmm" else torch.bmm(a, b)
        self.take("mm", [a, b], {}, product)
        for part, factor in ((product, alpha), (x, beta)):
            parts.append(part if factor == 1 else part * factor)
            if factor != 1:
                self.take("mul", [part, factor], {}, parts[-1])
        out = parts[0] + parts[1]
        self.take("add", parts, {}, out)
        return out

    def move(self, plain: str, func: Any, args: Any, kwargs: dict[str, Any], in_place: bool) -> Any:
        names = [a.name for a in func._schema.arguments]
        # Terms that are added or multiplied are more than moved.
        added = "accumulate" in names and (kwargs.get("accumulate") or True in args[names.index("accumulate") :])
        if added or kwargs.get("reduce") or "reduce" in names[: len(args)]:
            out = func(*args, **kwargs)
            self.take(plain, args, kwargs, out)
            return out

        def errors(x: Any, name: str) -> Any:
            if name == "value" and not isinstance(x, Tensor):
                return 0.0
            return tree_map(lambda e: self.error_of(e) if _is_float(e) else e, x)

        def moved() -> Any:
            named = {k: errors(v, k) for k, v in kwargs.items()}
            return func(*(errors(x, n) for x, n in zip(args, names, strict=False)), **named)

        if in_place:  # fill_ and zero_ put in what is exact, and so have no error of their own
            moved()
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        sources = {StorageWeakRef(x.untyped_storage()).cdata for x in tree_leaves((args, kwargs)) if _is_float(x)}
        made = [o for o in tree_leaves(out) if _is_float(o)]
        # A view has the errors of its memory, and what no tensor was is exact.
        if sources and any(StorageWeakRef(o.untyped_storage()).cdata not in sources for o in made):
            for o, error in zip(made, tree_leaves(moved()), strict=True):
                self.error_of(o).copy_(error)
        return out

    def take(self, plain: str, args: list[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Writes down the errors of what a call made."""
        made = [o for o in tree_leaves(out) if _is_float(o)]
        if not made or plain in EXACT:
            return
        errors = self.bound(plain, args, kwargs, made)
        counts = self.unknown if errors is None else self.calls
        counts[plain] = counts.get(plain, 0) + 1
        for i, o in enumerate(made):
            # What an operator has no bound of is a count of its terms.
            error = torch.tensor(math.inf) if errors is None else errors[i] if i < len(errors) else torch.tensor(0.0)
            if plain == "_safe_softmax":  # a row without any key is 0
                error = torch.where((o == 0) & error.isnan(), 0.0, error)
            self.error_of(o).copy_(error + self.kept * (o.abs() + error) + self.smallest if self.kept else error)

    def bound(self, plain: str, args: list[Any], kwargs: dict[str, Any], made: list[Tensor]) -> list[Tensor] | None:
        if plain in _core.functions:
            x = args[0]
            found = _core.bound_of_function(plain, tensor(x.contiguous()), tensor(self.error_of(x).contiguous()))
            return [torch.from_dlpack(found)]
        try:
            call = OPERATORS[plain](*args, **kwargs) if plain in OPERATORS else None
        except TypeError:  # an overload with other arguments
            call = None
        if call is None:
            return None
        try:
            errors = self.of_operator(call.op, call.inputs, call.attributes)
        except _core.Error:  # what the operator does not do
            return None
        return [errors[k].reshape(o.shape) for k, o in zip(call.outputs, made, strict=False)]

    def of_operator(self, op: str, given: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Tensor]:
        inputs = {k: v if isinstance(v, Tensor) else torch.tensor(v) for k, v in given.items() if v is not None}
        found = _core.bound(
            op,
            [(k, tensor(v)) for k, v in inputs.items()],
            {k: v for k, v in attributes.items() if v is not None},
            self.accumulator,
            self.intermediate,
            "float32",
            [(k, tensor(self.error_of(v))) for k, v in inputs.items() if v.is_floating_point()],
        )
        return {k: torch.from_dlpack(v) for k, v in found}
