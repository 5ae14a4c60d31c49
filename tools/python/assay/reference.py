"""Any PyTorch function as the reference of a kernel: run in float64, with a bound from the operators behind its calls.

Each aten call that the function makes is one of three: it moves elements, and moves their errors alike; it is an
operator (or a function) whose error bound the C++ library has; or its bound is not known, and it is named.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._arrays import tensor
from ._order import Order, stated
from ._verdict import Verdict

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
    accumulator: str | Order = "",
    **kwargs: Any,
) -> Reference:
    """Runs a function of PyTorch on the CPU in float64, with an error bound of every value.

    Args:
        function: a function, or a module, of which a copy in float64 is taken. It is called with copies of the
            arguments in which floating-point tensors are float64; tensors that a function brings along are widened
            where they are used.
        intermediate: the dtype in which the kernel keeps results between the calls; None: in float32.
        accumulator: how the device adds, as for `assay.bound`.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._pytree import tree_leaves

    from ._bounds import Bounds, KernelEpsilon

    mode = Bounds(intermediate, stated(accumulator))

    def widened(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.detach().cpu()
            return x.double() if x.is_floating_point() else x
        if isinstance(x, Mapping):
            return {k: widened(v) for k, v in x.items()}
        return type(x)(widened(v) for v in x) if isinstance(x, (list, tuple)) else x

    is_wide = any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in tree_leaves((args, kwargs)))
    given, named = widened(args), widened(kwargs)
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).cpu().double()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            KernelEpsilon(None if is_wide else torch.finfo(torch.float32).eps),
            mode,
        ):
            made = _by_name(function(*given, **named))
    finally:
        torch.set_default_dtype(usual)
    values = {k: v.double() if v.is_floating_point() else v for k, v in made.items()}
    errors = {k: mode.error_of(v).clone() for k, v in made.items()}
    if mode.is_lost:
        errors = {k: torch.full_like(e, math.inf) for k, e in errors.items()}
    return Reference(values, errors, mode.calls, mode.unknown)


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
