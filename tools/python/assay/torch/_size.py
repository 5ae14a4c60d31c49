"""How large a dump will be: estimated behind the first call of a model, before anything is written.

Needs no torch: the command reads it, too.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._selection import Selection
    from ._line import Line

LESS = "choose less of it: --modules, --depth, --kinds, --steps, --micro-batches or --ranks"

_KINDS_OF_SLOTS = {"param": "parameters", "state": "states", "grad": "gradients"}


def kind_of(fields: dict[str, Any]) -> str:
    """Of a record, as --kinds calls it."""
    kind = _KINDS_OF_SLOTS.get(fields["slot"])
    return kind or ("gradients" if fields["phase"] == "backward" else "activations")


@dataclass
class Sizes:
    """Of what is recorded, by kind; bytes count equal values of a rank once."""

    bytes: Counter[str] = field(default_factory=Counter)
    tensors: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, size: int, count: int = 1) -> None:
        self.bytes[kind] += size
        self.tensors[kind] += count

    def total(self) -> int:
        return sum(self.bytes.values())


@dataclass
class Estimate:
    """Of a dump, from what one rank writes."""

    micro_batch: int
    """Bytes: activations and their gradients."""
    step: int
    """Bytes of the first step, if it has one micro-batch."""
    before: int
    """Bytes in it that the step before has written, too: parameters."""
    selection: Selection
    ranks: int
    """That are recorded."""

    @property
    def steps(self) -> int | None:
        return self.selection.count_of_steps()

    @property
    def again(self) -> int:
        """Bytes of a step that is not the first."""
        return self.step - (self.before if self.selection.has_steps_in_a_row() else 0)

    @property
    def total(self) -> int:
        """Bytes; of one step, where nobody knows how many there will be."""
        return (self.step + ((self.steps or 1) - 1) * self.again) * self.ranks

    def text(self) -> str:
        rank = " and rank" if self.ranks > 1 else ""
        more = f" of one micro-batch ({words(self.micro_batch)} more for each other)" if self.micro_batch else ""
        steps = "each step" if self.steps is None else f"{self.steps} step{'s' if self.steps > 1 else ''}"
        who = f" of {self.ranks} ranks" if self.ranks > 1 else ""
        return f"about {words(self.step)} a step{rank}{more}, {words(self.total)} for {steps}{who}"


class Gauge:
    """Sees what is recorded, of which equal values are written once.

    The gradient of a tensor has its size. What a call hands back for what it alone has used is that gradient itself.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.sizes = Sizes()
        self._seen: set[Any] = set()
        self._again = 0  # bytes that each step would write, and the one before it has: of parameters
        self._made: dict[Any, int] = {}
        self._used: dict[Any, list[int]] = {}

    def see(self, line: Line) -> None:
        size = line.written
        if line.is_written:
            self.sizes.add(kind_of(line.fields), 0 if line.key in self._seen else size)
            self._seen.add(line.key)
        if line.will_have_gradient:
            if line.fields["slot"] == "output":
                self._made[line.key] = size
            else:
                self._used.setdefault(line.key, []).append(size)

    def estimate(self, weights: Sizes, world_size: int) -> Estimate:
        """Behind the first call of a model.

        weights: what a step records of them behind it.
        """
        handed_back = sum(sum(sizes) for key, sizes in self._used.items() if len(sizes) > 1 or key not in self._made)
        micro_batch = self.sizes.bytes["activations"] + sum(self._made.values()) + handed_back
        parameters = self.sizes.bytes["parameters"]
        behind = weights.total()
        if self._selection.values == "full":
            self._again = parameters
        else:
            behind = weights.tensors.total() * self.sizes.total() // max(self.sizes.tensors.total(), 1)
        self._made, self._used = {}, {}
        step = parameters + micro_batch + behind
        return Estimate(micro_batch, step, self._again, self._selection, ranks_of(self._selection, world_size))

    def rest(self, world_size: int) -> int:
        """Behind the first step: bytes of those that come; of one, where nobody knows how many there will be."""
        first = Estimate(0, self.sizes.total(), self._again, self._selection, 1)
        count = 1 if first.steps is None else first.steps - 1
        return count * first.again * ranks_of(self._selection, world_size)


def ranks_of(selection: Selection, world_size: int) -> int:
    """That are recorded."""
    return sum(selection.takes_rank(rank) for rank in range(world_size))


def words(size: int) -> str:
    """In decimal units, as disks are sold."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size < 1000 * factor else f"{size / factor:.0f} {unit}"
    return f"{size / 1000:.3g} kB"


def free_at(folder: Path) -> tuple[Path, int]:
    """Bytes, and the existing folder that has them."""
    place = folder.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place, shutil.disk_usage(place).free


def table_of(reports: Sequence[dict[str, Any]], selection: Selection) -> str:
    """Of the first step of all ranks, and what follows from it for the dump.

    reports: "bytes" and "tensors" of each rank, by kind.
    """
    size, tensors = Counter[str](), Counter[str]()
    for report in reports:
        size.update(report["bytes"])
        tensors.update(report["tensors"])
    rows = [(kind, tensors[kind], size[kind]) for kind in selection.kinds if tensors[kind]]
    rows.append(("in all", tensors.total(), size.total()))
    lines = [f"{kind:<12} {count:>9} tensors  {words(bytes):>8}" for kind, count, bytes in rows]
    is_twice = selection.values == "full" and {"forward", "optimizer"} <= set(selection.phases)
    before = size["parameters"] // 2 if is_twice else 0  # as many as behind the step
    first = Estimate(0, size.total(), before, selection, 1)
    steps = "each step" if first.steps is None else f"{first.steps} step{'s' if first.steps > 1 else ''}"
    return "\n".join([*lines, f"{steps}: about {words(first.total)}"])
