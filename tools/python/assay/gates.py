"""What other gates let through: outputs that no kernel may make, judged by somebody else's rule.

A gate is a function of (actual, expected): it raises AssertionError, or returns something false, for what it
rejects. `rules` has those of benchmarks and libraries in the field.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import _core
from ._api import _first_input, _flat, generate, judge
from ._arrays import like, named, tensor, to_numpy
from ._declarations import operator
from ._verdict import Verdict

Gate = Callable[[Any, Any], object]

__all__ = ["Audit", "Gate", "Rule", "Trial", "audit", "baselines", "prove", "rules", "trials"]


@dataclass(frozen=True)
class Rule:
    """A rule over elements, as data. An element is close by |a - e| <= atol + rtol |e|."""

    name: str
    source: str
    tolerances: Mapping[str, tuple[float, float]]
    """(rtol, atol) by the dtype of the output; ``""`` for all others."""
    either: bool = False
    """An element is close where its absolute or its relative error is within its own tolerance."""
    floor: float = 0.0
    """Is added to |e| in a relative error."""
    share: float = 1.0
    """The part of the elements that must be close."""
    nan_is_equal: bool = False

    def __call__(self, actual: Any, expected: Any) -> bool:
        import numpy

        a, e = (to_numpy(tensor(x)) for x in (actual, expected))
        if a.shape != e.shape:
            return False
        rtol, atol = self.tolerances.get(e.dtype.name, self.tolerances.get("", (0.0, 0.0)))
        a, e = a.astype(numpy.float64), e.astype(numpy.float64)
        with numpy.errstate(invalid="ignore", over="ignore"):
            error = numpy.abs(a - e)
            if self.either:
                close = (error <= atol) | (error <= rtol * (numpy.abs(e) + self.floor))
            else:
                close = (error <= atol + rtol * numpy.abs(e)) & numpy.isfinite(error)
        close |= a == e
        if self.nan_is_equal:
            close |= numpy.isnan(a) & numpy.isnan(e)
        return bool(close.size == 0 or close.mean() >= self.share)


rules: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "torch.testing",
            "torch.testing.assert_close, its defaults (torch 2.13, torch/testing/_comparison.py)",
            {
                "float64": (1e-7, 1e-7),
                "float32": (1.3e-6, 1e-5),
                "float16": (1e-3, 1e-5),
                "bfloat16": (1.6e-2, 1e-5),
            },
        ),
        Rule(
            "KernelBench",
            "ScalingIntelligence/KernelBench@423217d9, src/kernelbench/eval.py",
            {"float32": (1e-4, 1e-4), "": (1e-2, 1e-2)},
        ),
        Rule("robust-kbench", "SakanaAI/robust-kbench@078f5bab, 1e-5 forward and backward", {"": (1e-5, 1e-5)}),
        Rule(
            "BackendBench",
            "meta-pytorch/BackendBench@66e0dbc0, BackendBench/eval.py",
            {"": (1e-2, 1e-2)},
            nan_is_equal=True,
        ),
        Rule(
            "FlashInfer-Bench",
            "flashinfer-ai/flashinfer-bench@06323a42, bench/evaluators/default.py and bench/utils.py",
            {"": (1e-2, 1e-2)},
            either=True,
            floor=1e-8,
        ),
        Rule(
            "GPU MODE mixed-mla",
            "gpu-mode/reference-kernels@f83cb92a, problems/amd_202602/mixed-mla",
            {"": (0.1, 0.1)},
            share=0.95,
        ),
        Rule(
            "mlir-air flash attention",
            "Xilinx/mlir-air#1427: an absolute tolerance of 0.5",
            {"": (0.0, 0.5)},
        ),
    )
}
"""Rules of the field by name, each with its source."""

baselines: Mapping[str, str] = {"flash-attention, 2x": "flash", "Ascend L1": "ascend-l1"}
"""Rules that allow a multiple of what a plain kernel in the same dtype errs by, as policies of assay: `assay tolerance`
shows them with their sources."""


@dataclass(frozen=True)
class Trial:
    """An output that no gate should accept."""

    fault: str
    output: str
    is_trivial: bool
    """It has nothing of the call: zeros, a constant, NaN, an input. Else a kernel with a fault made it."""
    actual: Any
    expected: Any
    """The golden output in the dtype of the kernel's."""


def trials(
    op: str, inputs: Any, attributes: Mapping[str, Any] | None = None, *, dtype: str | None = None
) -> list[Trial]:
    """The wrong outputs of a call. What a fault does not change by more than one unit in the last place is
    left out.

    Args:
        op, inputs, attributes: as for `assay.golden`.
        dtype: of the kernel's outputs; by default that of the first floating-point input.

    >>> [t.fault for t in assay.gates.trials("softmax", [0.0, 1.0, 5.0])][:2]
    ['all zeros', 'their mean everywhere']
    """
    return [_as_given(Trial(*w), inputs) for w in _wrong(op, inputs, attributes, dtype)]


def _as_given(t: Trial, inputs: Any) -> Trial:
    return replace(t, **like([("actual", t.actual), ("expected", t.expected)], inputs))


def _wrong(
    op: str, inputs: Any, attributes: Mapping[str, Any] | None, dtype: str | None
) -> list[tuple[str, str, bool, _core.Tensor, _core.Tensor]]:
    given = named(inputs, _first_input(op, inputs), "input")
    stored = dtype or next((t.dtype for _, t in given if "float" in t.dtype), "float32")
    return _core.wrong_outputs(op, given, _flat(attributes), stored)


@dataclass(frozen=True)
class Audit:
    """What one gate did with the outputs of one call."""

    gate: str
    op: str
    accepted: tuple[Trial, ...]
    """Wrong outputs that it let through."""
    rejected: tuple[Trial, ...]
    rejects_golden: bool
    """Whether it rejects the golden outputs themselves, rounded to the kernel's dtype."""
    says_nothing: tuple[Trial, ...] = ()
    """Wrong outputs that it has no rule for: of another dtype, say."""

    def __bool__(self) -> bool:
        return bool(self.rejected) and not self.accepted and not self.says_nothing and not self.rejects_golden

    def __str__(self) -> str:
        lines = [
            f"{self.gate} on {self.op}: {len(self.accepted)} of {len(self.accepted + self.rejected)} wrong outputs pass"
        ]
        lines += [f"  passes    {t.output}: {t.fault}" for t in self.accepted]
        lines += [f"  rejected  {t.output}: {t.fault}" for t in self.rejected]
        lines += [f"  no rule   {t.output}: {t.fault}" for t in self.says_nothing]
        if self.rejects_golden:
            lines.append("  rejects the golden output itself")
        if not self.accepted + self.rejected + self.says_nothing:
            lines.append("  no wrong output can be made of this call: nothing is proved")
        return "\n".join(lines)


def _accepts(gate: Gate, actual: Any, expected: Any) -> bool:
    try:
        verdict = gate(actual, expected)
    except AssertionError:
        return False
    return verdict is None or bool(verdict)


def prove(
    gate: Gate,
    op: str,
    inputs: Any,
    attributes: Mapping[str, Any] | None = None,
    *,
    dtype: str | None = None,
    name: str = "",
) -> Audit:
    """Puts wrong outputs of a call before a gate.

    >>> def gate(actual, expected):
    ...     return max(abs(a - e) for a, e in zip(actual.tolist(), expected.tolist())) < 0.5
    >>> found = assay.prove(gate, "softmax", [0.0, 0.5, 1.0, 0.25])
    >>> [t.fault for t in found.accepted if t.is_trivial]
    ['all zeros', 'their mean everywhere', 'the outputs of other inputs']
    """
    return _prove(name or getattr(gate, "__name__", "the gate"), gate, op, trials(op, inputs, attributes, dtype=dtype))


def _prove(name: str, gate: Gate, op: str, wrong: Sequence[Trial]) -> Audit:
    return _audited(name, op, wrong, lambda t, x: _accepts(gate, x, t.expected))


def _audited(name: str, op: str, wrong: Sequence[Trial], accepts: Callable[[Trial, Any], bool | None]) -> Audit:
    """None of `accepts`: the gate has no rule for it."""
    found: dict[bool | None, list[Trial]] = {True: [], False: [], None: []}
    for t in wrong:
        found[accepts(t, t.actual)].append(t)
    golden = {t.output: t for t in wrong}
    return Audit(
        name,
        operator(op).name,
        accepted=tuple(found[True]),
        rejected=tuple(found[False]),
        rejects_golden=any(accepts(t, t.expected) is False for t in golden.values()),
        says_nothing=tuple(found[None]),
    )


def audit(
    op: str,
    inputs: Any,
    attributes: Mapping[str, Any] | None = None,
    *,
    dtype: str | None = None,
    gates: Mapping[str, Gate] = rules,
    policies: Mapping[str, str] = baselines,
) -> list[Audit]:
    """What each of these gates lets through for a call, and what ``assay`` itself does, last.

    Args:
        policies: tolerance policies of assay by the name that the table gives them.

    >>> found = assay.audit("softmax", [[0.001 * i for i in range(64)]] * 8, dtype="bfloat16")
    >>> [a.gate for a in found if any(t.fault == "all zeros" for t in a.accepted)]  # 1/64 is below them
    ['GPU MODE mixed-mla', 'mlir-air flash attention']
    """
    own = [Trial(*w) for w in _wrong(op, inputs, attributes, dtype)]
    wrong = [_as_given(t, inputs) for t in own]

    def judged(t: Trial, x: Any, tolerance: str) -> Verdict:
        return judge(op, inputs, {t.output: x}, attributes, tolerance=tolerance, causes=False)

    def accepts(tolerance: str) -> Callable[[Trial, Any], bool | None]:
        # What the rule itself says: that zeros would pass, too, is assay's remark.
        def one(t: Trial, x: Any) -> bool | None:
            verdicts = [f.verdict for f in judged(t, x, tolerance).findings]
            return None if "no rule" in verdicts else "failed" not in verdicts

        return one

    return [
        *(_prove(name, gate, op, wrong) for name, gate in gates.items()),
        *(_audited(name, op, own, accepts(policy)) for name, policy in policies.items()),
        _audited("assay", op, own, lambda t, x: judged(t, x, "derived").passed),
    ]


def table(audits: Sequence[Sequence[Audit]], calls: Sequence[str]) -> str:
    """One line for each gate: how many trivial outputs and how many faults of each call it lets through."""
    gates_ = [a.gate for a in audits[0]]
    width = max(map(len, gates_))
    lines = [f"{'GATE':<{width}}  " + "  ".join(f"{c:>{max(12, len(c))}}" for c in calls)]
    for g, gate in enumerate(gates_):
        cells = []
        for c, call in zip(audits, calls, strict=True):
            trivial = sum(t.is_trivial for t in c[g].accepted)
            faults = len(c[g].accepted) - trivial
            cell = f"{trivial} + {faults}" + ("!" if c[g].rejects_golden else "")
            if c[g].says_nothing and not c[g].accepted + c[g].rejected:
                cell = "no rule"
            cells.append(f"{cell:>{max(12, len(call))}}")
        lines.append(f"{gate:<{width}}  " + "  ".join(cells))
    return "\n".join(lines)


CALLS: tuple[tuple[str, Mapping[str, int | Sequence[int]], str], ...] = (
    ("softmax", {"A": [4], "C": [65536], "B": []}, "float32"),
    ("softmax", {"A": [16], "C": [1024], "B": []}, "bfloat16"),
    ("rms_norm", {"N": [16], "C": [1024]}, "bfloat16"),
    ("matmul", {"A": [], "M": [32], "K": 512, "B": [], "N": [32]}, "bfloat16"),
    ("attention", {"B": [1], "H": [2], "L": 64, "D": 64, "G": [2], "S": 512, "V": 64}, "bfloat16"),
)
"""The calls of the table: operator, sizes, dtype. Optional inputs are not given."""


def main(arguments: Sequence[str]) -> int:
    """``assay audit``: the table of the gates of the field."""
    parser = argparse.ArgumentParser(prog="assay audit", description=main.__doc__)
    parser.add_argument("op", nargs="?", help="one operator of the table; by default all of them")
    parser.add_argument("--all", action="store_true", help="also name what each gate lets through")
    given = parser.parse_args(arguments)
    chosen = [c for c in CALLS if given.op in (None, c[0])]
    if not chosen:
        parser.error(f"{given.op} is not in the table; expected one of {', '.join(sorted({c[0] for c in CALLS}))}")
    audits, calls = [], []
    for op, sizes, dtype in chosen:
        optional = [a.name for a in operator(op).args if a.optional and a.is_given]
        made = generate(op, sizes, dtype=dtype, leave_out=optional)
        inputs = {k: v for k, v in made.items() if not k.startswith("grad_")}
        if dtype == "float32":  # KernelBench's values, from 0 to 1
            inputs = {k: ((v - v.min()) / (v.max() - v.min())).astype(dtype) for k, v in inputs.items()}
        audits.append(audit(op, inputs, dtype=dtype))
        calls.append(f"{op} {dtype}")
    print("wrong outputs that pass: trivial ones + those of kernels with a fault; !: golden itself is rejected")
    print(table(audits, calls))
    if given.all:
        for found in audits:
            for one in found:
                print(one)
    return 0
