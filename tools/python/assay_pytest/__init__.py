"""The pytest plugin of assay. It imports assay only where a test has: a run without it pays nothing.

Golden assertions (`assay.testing.assert_matches_golden`) find this module and tell it what they judged.
"""

from __future__ import annotations

import base64
import os
import re
import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest

observers: list[Callable[[Any], str | None]] = []
prove = False

Row = tuple[str, str, str, float, bool]
"""Of an output: operator, dtype, verdict, error/allowed, whether it was injected."""

_KEY = pytest.StashKey["Golden"]()
_ROWS = pytest.StashKey[list[Row]]()
_PACKED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "golden assertions (assay)")
    for name, kind, text in (
        ("html", "FILE", "write what all golden assertions found as one page"),
        ("json", "FILE", "write what all golden assertions found as JSON"),
        ("save", "DIR", "write the calls of failing golden assertions as folders for 'assay check'"),
    ):
        group.addoption(f"--assay-{name}", metavar=kind, help=text)
        parser.addini(f"assay_{name}", f"default of --assay-{name}")
    group.addoption("--assay-prove", action="store_true", help="prove each golden assertion able to fail")
    parser.addini("assay_prove", "default of --assay-prove", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    golden = Golden(config)
    config.stash[_KEY] = golden
    config.pluginmanager.register(golden, "assay-golden")


def pytest_unconfigure(config: pytest.Config) -> None:
    golden = config.stash.get(_KEY, None)
    if golden is not None:
        golden.end()


class Golden:
    """What the golden assertions of one process found. The workers of xdist hand theirs to the controller, of each
    test with its report."""

    def __init__(self, config: pytest.Config) -> None:
        global prove
        self.config = config
        self.item: pytest.Item | None = None
        self.packed: list[bytes] = []
        self.rows: list[Row] = []
        self.saved = 0
        self.before = prove
        prove = bool(config.getoption("assay_prove") or config.getini("assay_prove"))
        observers.append(self.observe)

    def end(self) -> None:
        global prove
        prove = self.before
        if self.observe in observers:
            observers.remove(self.observe)

    def option(self, name: str) -> str | None:
        given = self.config.getoption(f"assay_{name}") or self.config.getini(f"assay_{name}")
        return os.fspath(self.config.rootpath / given) if given else None

    @property
    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.item = item
        try:
            return (yield)
        finally:
            self.item = None

    def observe(self, judged: Any) -> str | None:
        """Takes an assertion; returns the command that repeats it, if its call was saved."""
        repeat = None
        if not judged.verdict and judged.is_operator and (folder := self.option("save")) is not None:
            try:
                repeat = self.save(judged, folder)
            except (OSError, ValueError) as error:  # the verdict is what the test is for
                warnings.warn(f"--assay-save: {error}", stacklevel=2)
        if self.item is not None:
            rows = self.item.stash.setdefault(_ROWS, [])
            for f in judged.verdict.findings:
                rows.append((judged.op, f.dtype, f.verdict, f.ratio, f.injected))
                if not f.injected:
                    text = f"{f.verdict}, error/allowed {f.ratio:.3g}"
                    self.item.user_properties.append((f"assay {judged.op} {f.output} {f.dtype}", text))
        if self.option("html") or self.option("json"):
            packed = judged.verdict._report.packed(self.item.nodeid if self.item else "")
            if self.item is None:
                self.packed.append(packed)
            else:  # a worker may crash in a later test
                self.item.stash.setdefault(_PACKED, []).append(base64.b64encode(packed).decode("ascii"))
        return repeat

    def save(self, judged: Any, folder: str) -> str:
        import assay

        test = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.item.nodeid if self.item else judged.op).strip("_")
        name = test
        while os.path.exists(os.path.join(folder, name)):
            self.saved += 1
            name = f"{test}_{self.saved}"
        path = os.path.join(folder, name)
        os.makedirs(folder, exist_ok=True)
        assay.save_case(path, judged.op, judged.inputs, judged.outputs, judged.attributes)
        return f"assay check {path}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # xdist hands attributes of reports to the controller.
        report.assay_rows = item.stash.get(_ROWS, [])  # type: ignore[attr-defined]
        report.assay_packed = item.stash.get(_PACKED, [])  # type: ignore[attr-defined]
        item.stash[_ROWS], item.stash[_PACKED] = [], []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self.is_worker:
            self.rows.extend(tuple(row) for row in getattr(report, "assay_rows", []))
            self.packed.extend(base64.b64decode(text) for text in getattr(report, "assay_packed", []))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self.packed.extend(getattr(node, "workeroutput", {}).get("assay", []))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.is_worker:
            self.config.workeroutput["assay"] = self.packed  # type: ignore[attr-defined]
            return
        for name in ("html", "json"):
            if (path := self.option(name)) is not None:
                from assay import _core

                report = _core.unpacked(self.packed)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(report.html() if name == "html" else report.json())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.rows:
            return
        terminalreporter.section("golden assertions (assay)")
        for line in _table(self.rows):
            terminalreporter.write_line(line)
        faults = [verdict for _, _, verdict, _, injected in self.rows if injected and verdict != "ignored"]
        if faults:
            terminalreporter.write_line(f"{faults.count('passed')} of {len(faults)} injected faults were rejected")
        for name in ("html", "json"):
            if (path := self.option(name)) is not None:
                terminalreporter.write_line(f"written: {path}")


def _table(rows: list[Row]) -> list[str]:
    """One line for each operator and dtype: how many outputs, how many of them wrong, the largest error."""
    kinds: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for op, dtype, verdict, ratio, injected in rows:
        if not injected:
            kinds.setdefault((op, dtype), []).append((verdict, ratio))
    lines = [f"{'OPERATOR':<28} {'DTYPE':<14} {'OUTPUTS':>7} {'NOT PASSED':>10} {'ERROR/ALLOWED':>14}"]
    for (op, dtype), found in sorted(kinds.items()):
        wrong = sum(verdict != "passed" for verdict, _ in found)
        worst = max((ratio for _, ratio in found), key=lambda r: float("inf") if r != r else r)
        lines.append(f"{op:<28} {dtype:<14} {len(found):>7} {wrong:>10} {worst:>14.3g}")
    return lines
