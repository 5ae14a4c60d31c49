"""Assertions for unit tests of kernels. A failure shows the report; what pytest adds stands in the plugin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _api
from ._api import Policies, cases
from ._declarations import operator
from ._order import Order
from ._verdict import Verdict

__all__ = ["Judged", "assert_close", "assert_matches_golden", "assert_matches_reference", "cases", "observers"]


@dataclass(frozen=True)
class Judged:
    """A golden assertion, for who wants to know of all: the pytest plugin."""

    op: str
    inputs: Any
    outputs: Any
    attributes: Mapping[str, Any]
    verdict: Verdict
    is_operator: bool = True
    """False: `op` is the name of a function, whose call no case can hold."""


_plugin: Any = sys.modules.get("assay_pytest")

observers: list[Callable[[Judged], str | None]] = [] if _plugin is None else _plugin.observers
"""Called with each assertion before it fails. What one returns is the command that repeats the call."""


def _required(verdict: Verdict, msg: str) -> Verdict:
    __tracebackhide__ = True
    if not verdict:
        raise AssertionError(f"{msg}\n{verdict.report()}")
    return verdict


def assert_matches_golden(
    op: str,
    inputs: Any,
    outputs: Any,
    *,
    tolerance: Policies = "derived",
    level: str = "fp64",
    accumulator: str | Order = "",
    intermediate: str | None = None,
    whole: bool = False,
    prove: bool = False,
    msg: str = "",
    **attributes: Any,
) -> Verdict:
    """Passes what ``assay check`` passes: each element within the error that a correct kernel may have made.

    Args:
        op, inputs, outputs: as for `assay.judge`.
        attributes: those of the operator that are not the defaults: ``eps=1e-6``.
        msg: stands before the report.

    Raises:
        AssertionError: with the report, if an output is wrong or proves nothing.
        Error: for what is no call of the operator.

    >>> _ = assay.testing.assert_matches_golden("relu", [-1.0, 2.0], [0.0, 2.0])
    """
    __tracebackhide__ = True
    verdict = _api.judge(
        op,
        inputs,
        outputs,
        attributes,
        tolerance=tolerance,
        level=level,
        accumulator=accumulator,
        intermediate=intermediate,
        whole=whole,
        prove=prove or (_plugin is not None and _plugin.prove),
    )
    judged = Judged(operator(op).name, inputs, outputs, attributes, verdict)
    for observe in observers:
        if (repeat := observe(judged)) is not None:
            verdict._report.set_repeat(repeat)
    return _required(verdict, msg)


def assert_matches_reference(
    function: Callable[..., Any],
    inputs: Any,
    outputs: Any,
    *,
    intermediate: str | None = None,
    accumulator: str | Order = "",
    msg: str = "",
) -> Verdict:
    """Passes outputs that are those of a PyTorch function, which is run in float64: each element within the error
    that a correct kernel of these calls may make (`assay.reference`).

    Args:
        function: any function of torch, or a module.
        inputs: its argument, a tuple of them, or a mapping for its keywords.
        outputs: what the kernel made: a tensor, a tuple or a mapping, as the function returns.
        intermediate, accumulator: as for `assay.bound`.

    Raises:
        AssertionError: with the report, if an output is wrong.
        UnknownBound: if an output follows from a call whose bound is not known; the calls are named.
    """
    __tracebackhide__ = True
    from .reference import reference

    args = inputs if isinstance(inputs, (tuple, list)) else () if isinstance(inputs, Mapping) else (inputs,)
    named = inputs if isinstance(inputs, Mapping) else {}
    found = reference(function, *args, intermediate=intermediate, accumulator=accumulator, **named)
    verdict = found.judge(outputs)
    name = getattr(function, "__name__", type(function).__name__)
    for observe in observers:
        observe(Judged(name, inputs, outputs, {}, verdict, is_operator=False))
    return _required(verdict, msg)


def assert_close(actual: Any, expected: Any, *, tolerance: Policies = "telechat3", msg: str = "") -> Verdict:
    """Passes two arrays, or mappings of arrays, that are equal within a tolerance table.

    >>> _ = assay.testing.assert_close({"w": [1.0]}, {"w": [1.0]})
    """
    __tracebackhide__ = True
    if not isinstance(actual, Mapping) and not isinstance(expected, Mapping):
        actual, expected = {"actual": actual}, {"actual": expected}
    verdict = _api.diff(actual, expected, tolerance=tolerance)
    return _required(verdict, msg)
