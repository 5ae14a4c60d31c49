"""Records training steps of JAX into dumps that `assay diff` and `assay align` read.

    step = assay.jax.record(step, out="dump", params=0, results=("params", "states", "loss"))

before the first step; the dump is there when the steps that were asked for are over, or when the program ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._selection import Selection
from ._recorder import Recorded

__all__ = ["Recorded", "record"]


def record(
    function: Callable[..., Any],
    *,
    out: str | os.PathLike[str] | None = None,
    params: int | str = 0,
    results: Any = None,
    micro_batches: int = 1,
    steps: str = "0-1",
    functions: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Returns the function with a recording of its first calls: a training step, or a loss with its gradients.

    It may be jitted. Its calls that are recorded run as one other compiled program, which returns what the equations
    make beside the results. Scopes of jax.named_scope are the modules, as flax names its own.

    Args:
        function: each call is a step. Its arguments and results are pytrees of arrays.
        out: a new folder; else what the variable ASSAY_RECORD says; without both nothing is recorded.
        params: the argument that holds the parameters, by position or keyword.
        results: what the results are, as a prefix of their tree, of the words loss, grads, params and states:
            ``("params", "states", "loss")``; None where nothing of them is recorded.
        micro_batches: calls that make a step; what a jax.lax.scan takes gradients of counts by itself.
        steps: those that are recorded: ``"0"``, ``"0-3,100"``.
        functions: also every product, sum, .. that modules are made of, in the backward pass too.
        settings: of the optimizer: ``{"lr": 1e-3, "weight_decay": 0.1}``, for the dump's manifest.

    Raises:
        ValueError: for results or steps that say nothing.
    """
    folder = os.fspath(out) if out is not None else os.environ.get("ASSAY_RECORD", "")
    if not folder:
        return function
    selection = Selection(steps=steps, functions=functions)
    return Recorded(function, Path(folder), params, results, micro_batches, selection, dict(settings or {}))
