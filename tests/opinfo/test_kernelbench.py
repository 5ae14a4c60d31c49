"""Each step of KernelBench's problems has a golden operator: torch's float64 results, forward and backward, are within
its bound. How many problems have one is a number that docs/kernels.md names."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from kernelbench import Problem, problems, run_of  # noqa: E402
from test_opinfo import judged  # noqa: E402

ALL = list(problems())


def with_golden(level: int) -> int:
    return sum(p.level == level and bool(p.steps) for p in ALL)


def test_every_problem_is_listed_once() -> None:
    for level in (1, 2):
        numbers = [int(p.name.split("_")[0]) for p in ALL if p.level == level]
        assert sorted(numbers) == list(range(1, 101))
    assert all(p.why_none for p in ALL if not p.steps)


def test_the_page_has_the_numbers() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/kernels.md").read_text().split())
    assert f"{with_golden(1)} of level 1's 100 problems and {with_golden(2)} of level 2's are made" in page
    assert with_golden(1) >= 95 and with_golden(2) >= 80


@pytest.mark.parametrize("problem", [p for p in ALL if p.steps], ids=lambda p: f"{p.level}/{p.name}")
def test_torch_is_within_the_bounds_of_each_step(problem: Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, results in run_of(problem).calls:
            verdict = judged(call, results)
            assert verdict.passed, f"{call.op} {call.attributes}\n{verdict.report()}"
            made = {t for t, y in zip(call.outputs, results, strict=True) if t and y.requires_grad}
            gradients = {f.output for f in verdict.findings if f.output.startswith("grad_")} if made else {"none"}
            assert gradients, f"{call.op}: no gradient was judged"
