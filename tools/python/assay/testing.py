"""Assertions for unit tests of kernels. A failure shows the report; what pytest adds stands in the plugin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _api
from ._api import Tolerance, Verdict, cases

__all__ = ["Judged", "assert_close", "assert_matches_golden", "cases", "observers"]


@dataclass(frozen=True)
class Judged:
    """A golden assertion, for who wants to know of all: the pytest plugin."""

    op: str
    inputs: Any
    outputs: Any
    attributes: Mapping[str, Any]
    verdict: Verdict


_plugin: Any = sys.modules.get("assay_pytest")

observers: list[Callable[[Judged], str | None]] = [] if _plugin is None else _plugin.observers
"""Called with each assertion before it fails. What one returns is the command that repeats the call."""


def assert_matches_golden(
    op: str,
    inputs: Any,
    outputs: Any,
    *,
    tolerance: Tolerance = "derived",
    level: str = "fp64",
    accumulator: str = "",
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
    judged = Judged(_api.operator(op).name, inputs, outputs, attributes, verdict)
    for observe in observers:
        if (repeat := observe(judged)) is not None:
            verdict._report.set_repeat(repeat)
    if not verdict:
        raise AssertionError(f"{msg}\n{verdict.report()}" if msg else f"\n{verdict.report()}")
    return verdict


def assert_close(actual: Any, expected: Any, *, tolerance: Tolerance = "telechat3", msg: str = "") -> Verdict:
    """Passes two arrays, or mappings of arrays, that are equal within a tolerance table.

    >>> _ = assay.testing.assert_close({"w": [1.0]}, {"w": [1.0]})
    """
    __tracebackhide__ = True
    if not isinstance(actual, Mapping) and not isinstance(expected, Mapping):
        actual, expected = {"actual": actual}, {"actual": expected}
    verdict = _api.diff(actual, expected, tolerance=tolerance)
    if not verdict:
        raise AssertionError(f"{msg}\n{verdict.report()}" if msg else f"\n{verdict.report()}")
    return verdict
