"""`assay record --estimate`: a program runs its first step, and only what would be written of it is counted."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ._finish import PATIENCE
from ._line import Line
from ._size import Sizes
from ._writer import Writer


class Counter(Writer):
    """Writes a report for the command, and ends the process with it."""

    def __init__(self, reports: Path, *given: Any) -> None:
        """reports: an existing folder."""
        self._reports = reports
        super().__init__(*given)

    def _estimate(self, weights: Sizes) -> None:
        self._release()

    def _store(self, line: Line) -> None:
        self._let_go(line)

    def _finish(self) -> None:
        own = self._reports / f"rank{self.rank:05}.json"
        beside = own.with_suffix(".unfinished")
        sizes = self._gauge.sizes
        report = {"bytes": sizes.bytes, "tensors": sizes.tensors, "world_size": self.world_size}
        beside.write_text(json.dumps(report))
        beside.rename(own)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and len(list(self._reports.glob("rank*.json"))) < self.world_size:
            time.sleep(0.05)  # a launcher ends the others with the first that ends
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
