"""What of a program is recorded. Needs no torch: the command reads it, too."""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

KINDS = ("activations", "parameters", "gradients", "states")
PHASES = ("forward", "backward", "optimizer")
VALUES = ("full", "statistics", "sketches", "hashes")


@dataclass(frozen=True)
class Selection:
    """A tensor is recorded if every field lets it pass."""

    steps: str = "0-1"
    """Numbers and ranges of optimizer steps: ``"0"``, ``"0-3,100"``, ``"0-"``; ``"*/100"`` is every 100th."""
    micro_batches: str = "0-"
    ranks: str = "0-"
    modules: Sequence[str] = field(default_factory=list)
    """Patterns of module paths as fnmatch has them; none: all modules."""
    exclude: Sequence[str] = field(default_factory=list)
    depth: int | None = None
    """Modules at most this far below the model; 0 is the model itself. Modules that compute are at every depth."""
    kinds: Sequence[str] = KINDS
    phases: Sequence[str] = PHASES
    values: str = "full"
    """Of a tensor: all of them, or instead their extremes, mean and norm, a sketch of 2 KB where they are more, or
    their SHA-256."""
    functions: bool = False
    """Also what modules call between their submodules: products, sums, softmax. Twice the size, and long to judge."""
    dtypes: Sequence[str] = field(default_factory=list)
    """Torch's names; none: all."""

    def __post_init__(self) -> None:
        for what, text in (("steps", self.steps), ("micro-batches", self.micro_batches), ("ranks", self.ranks)):
            for part in text.split(","):
                _parse(part, what)
        for what, words, known in (
            ("kinds", self.kinds, KINDS),
            ("phases", self.phases, PHASES),
            ("values", [self.values], VALUES),
        ):
            unknown = [word for word in words if word not in known]
            if unknown:
                raise ValueError(f"{what} '{unknown[0]}': expected {', '.join(known)}")

    def takes_step(self, step: int) -> bool:
        return _contains(self.steps, step)

    def takes_rank(self, rank: int) -> bool:
        return _contains(self.ranks, rank)

    def takes_micro_batch(self, micro_batch: int) -> bool:
        return _contains(self.micro_batches, micro_batch)

    def takes_module(self, path: str) -> bool:
        inside = not self.modules or any(fnmatch.fnmatchcase(path, p) for p in self.modules)
        return inside and not any(fnmatch.fnmatchcase(path, p) for p in self.exclude)

    def takes(self, kind: str, phase: str) -> bool:
        return kind in self.kinds and phase in self.phases

    def takes_dtype(self, dtype: str) -> bool:
        return not self.dtypes or dtype in self.dtypes

    def last_step(self) -> int | None:
        """None: there is none."""
        return _last_of(self.steps)

    def count_of_steps(self) -> int | None:
        """None: there is no last one."""
        if self.last_step() is None:
            return None
        return sum(
            (last or 0) - first + 1 for first, last, _ in (_parse(part, "steps") for part in self.steps.split(","))
        )

    def has_steps_in_a_row(self) -> bool:
        """Whether all follow each other."""
        return "," not in self.steps and not self.steps.startswith("*/")

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Selection:
        return Selection(**json.loads(text))


def _parse(part: str, what: str) -> tuple[int, int | None, int]:
    """First, last (None: no end), every how many."""
    try:
        if part.startswith("*/"):
            every = int(part[2:])
            if every < 1:
                raise ValueError
            return 0, None, every
        first, dash, last = part.partition("-")
        begin = int(first)
        end = (int(last) if last else None) if dash else begin
        if begin < 0 or (end is not None and end < begin):
            raise ValueError
        return begin, end, 1
    except ValueError:
        raise ValueError(f"{what} '{part}': expected a number, a range such as 0-3 or 5-, or */100") from None


@functools.lru_cache  # each step asks
def _last_of(ranges: str) -> int | None:
    ends = [_parse(part, "")[1] for part in ranges.split(",")]
    return None if None in ends else max(end for end in ends if end is not None)


@functools.lru_cache(maxsize=1024)  # modules ask for the same step
def _contains(ranges: str, number: int) -> bool:
    for part in ranges.split(","):
        first, last, every = _parse(part, "")
        if number >= first and (last is None or number <= last) and number % every == 0:
            return True
    return False
