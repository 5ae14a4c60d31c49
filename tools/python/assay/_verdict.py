"""What a judgement found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Finding:
    """One judged output."""

    name: str
    """``"rms_norm y"``; a tensor of a dump: its module, slot and argument."""
    verdict: str
    """``"passed"``, ``"failed"``, ``"mistrusted"`` (the rule would pass zeros as well), .."""
    output: str
    dtype: str
    ratio: float
    """Largest error / allowed error: at most 1 for what passes."""
    reason: str
    rule: str
    causes: tuple[str, ...]
    """Sentences, the most specific first."""
    notes: tuple[str, ...]
    worst_index: tuple[int, ...] | None
    actual: float
    """The output's element at `worst_index`."""
    expected: float
    """The golden element there."""
    injected: bool
    """Whether it is an output with a planted fault (`prove`), which passes if the gate rejects it."""


class Verdict:
    """What a judgement found; true if everything passed.

    >>> verdict = assay.judge("softmax", {"x": [0.0, 0.0]}, [0.5, 0.5])
    >>> bool(verdict)
    True
    >>> verdict = assay.judge("softmax", {"x": [0.0, 0.0]}, [0.5, 0.51])
    >>> bool(verdict), verdict.findings[0].worst_index
    (False, (1,))
    """

    def __init__(self, report: _core.Report, score: Callable[[], float] | None = None) -> None:
        self._report = report
        self._score = score

    def __bool__(self) -> bool:
        return self.passed

    @property
    def passed(self) -> bool:
        """Whether everything was compared and passed."""
        return self._report.exit_status == 0

    @property
    def score(self) -> float:
        """How near a call's outputs are to golden, from 0 to 1: a number that is safe to reward.

        1 if everything passed. Else 1 - log(r) / log(r0) for the largest error / allowed error r, or 1 - e / e0
        for the root mean square error e, whichever is less, where r0 and e0 are the least of any output that
        has nothing of the call: zeros, the mean, an input, the outputs of other inputs. Those have 0, and so
        have NaN, other shapes, and calls for which the rule would pass one of them. The arrays are judged again,
        as they are by then.

        Raises:
            TypeError: for the verdict of a diff.
        """
        if self._score is None:
            raise TypeError("the verdict of a diff has no score; expected that of judge")
        return self._score()

    @property
    def exit_status(self) -> int:
        """As that of the command: 0 passed, 1 failed, 2 something is unreadable or nothing was compared."""
        return self._report.exit_status

    @property
    def ratio(self) -> float:
        """The largest error / allowed error of all outputs; NaN where one cannot be judged."""
        return self._report.ratio

    @property
    def summary(self) -> str:
        """The last line of the report, with the counts."""
        return self._report.summary

    @property
    def findings(self) -> tuple[Finding, ...]:
        """In the order of the outputs; of a diff in that of execution."""
        return tuple(Finding(**f) for f in self._report.findings)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Those that did not pass."""
        return tuple(f for f in self.findings if f.verdict not in ("passed", "exempt", "ignored"))

    def report(self, *, all: bool = False, color: bool = False, width: int = 100) -> str:
        """The report as the terminal shows it; with `all`, each finding on a line of its own."""
        return self._report.text(all=all, color=color, width=width)

    def to_dict(self) -> dict[str, Any]:
        """The report as report.schema.json describes it."""
        made: dict[str, Any] = json.loads(self._report.json())
        return made

    def to_html(self) -> str:
        """The report as one page that needs nothing else."""
        return self._report.html()

    def _repr_html_(self) -> str:
        # A page has a style of its own: in a frame it leaves the notebook's alone.
        page = self._report.html().replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width:100%;height:32em;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"<assay.Verdict {self._report.verdict}: {self._report.summary}>"

    def __str__(self) -> str:
        return self.report()
