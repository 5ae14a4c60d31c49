"""How far a long comparison is, through tqdm where that is installed and somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

Progress = Callable[[str, float, float], None]
"""Is told what is done, how much of it, and of how much."""


@contextmanager
def bars() -> Generator[Progress | None, None, None]:
    """A bar for each kind of work; None where nobody would see it."""
    is_seen = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if not is_seen or find_spec("tqdm") is None:
        yield None
        return
    from tqdm.auto import tqdm

    shown: dict[str, Any] = {}

    def show(what: str, done: float, total: float) -> None:
        if what not in shown:
            shown[what] = tqdm(
                total=total, desc=what, unit="B" if what == "comparing" else "", unit_scale=True, leave=False
            )
        shown[what].update(done - shown[what].n)

    try:
        yield show
    finally:
        for bar in shown.values():
            bar.close()
