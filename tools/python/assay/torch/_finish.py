"""What ranks tell each other at the end of a recording: whose data are whose, and which tensors are equal on all."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._grid import OF_ONE_SAMPLE, Grid

if TYPE_CHECKING:
    from ._line import Line

PATIENCE = 120.0
"""Seconds between the ends of the first and of the last rank, after which a rank is taken for lost."""


@dataclass
class Facts:
    """Of one rank. No rank waits for others before the program is done: collectives of a recorder could deadlock it."""

    coordinate: tuple[int, ...]
    samples: dict[str, str] = field(default_factory=dict)
    """The digest of what the model was given, by "step micro-batch"."""
    parts: list[str] = field(default_factory=list)
    """The modules with parameters: other ones on each stage of a pipeline."""
    unsaid: dict[str, str] = field(default_factory=dict)
    """Digests of the tensors of which nothing says how they lie over some dimension of the grid."""

    def note(self, lines: list[Line]) -> None:
        self.unsaid = {_key(line.fields): line.digest for line in lines if line.unsaid}
        for line in lines:
            f = line.fields
            if f["slot"] == "input" and f.get("is_sample"):
                self.samples[f"{f['step']} {f['micro_batch']} {f['arg']}"] = line.digest


def _key(fields: dict[str, Any]) -> str:
    return " ".join(str(fields[k]) for k in ("step", "micro_batch", "phase", "module", "slot", "arg", "call"))


def await_facts(folder: Path, rank: int, world_size: int, own: Facts) -> list[Facts]:
    """Of all ranks, in their order."""
    own_path = folder / f"rank{rank:05}.facts"
    beside = own_path.with_suffix(".facts.unfinished")
    beside.write_text(json.dumps(asdict(own)))
    beside.rename(own_path)
    end = time.monotonic() + PATIENCE
    while True:
        missing = [r for r in range(world_size) if not (folder / f"rank{r:05}.facts").exists()]
        if not missing:
            break
        if time.monotonic() > end:
            raise ValueError(f"rank {missing[0]} has not ended within {PATIENCE:.0f} s; the dump stays unfinished")
        time.sleep(0.02)
    texts = [(folder / f"rank{r:05}.facts").read_text() for r in range(world_size)]
    return [Facts(**json.loads(text)) for text in texts]


def leave_out_evaluations(lines: list[Line]) -> int:
    """Calls of the model that nothing was handed back to are no micro-batches: the others of their step move up.

    Returns how many they were.
    """
    called: dict[int, set[int]] = {}
    trained: dict[int, set[int]] = {}
    for line in lines:
        f = line.fields
        if f["micro_batch"] >= 0:
            called.setdefault(f["step"], set()).add(f["micro_batch"])
            if f["phase"] == "backward":
                trained.setdefault(f["step"], set()).add(f["micro_batch"])
    # A step without gradients is one of which none are recorded, or that ends with the program.
    left_out = {(step, which) for step, all_of_step in trained.items() for which in called[step] - all_of_step}
    lines[:] = [line for line in lines if (line.fields["step"], line.fields["micro_batch"]) not in left_out]
    for line in lines:
        step, which = line.fields["step"], line.fields["micro_batch"]
        line.fields["micro_batch"] -= sum((step, before) in left_out for before in range(max(which, 0)))
    return len(left_out)


def settle(lines: list[Line], facts: list[Facts], grid: Grid, rank: int) -> None:
    """Numbers micro-batches over all ranks, and says over which dimensions parts are different that nobody placed."""
    data = _data_dims(facts, grid)
    count = 1
    index = 0
    for d in data:
        count *= grid.shape[d]
        index = index * grid.shape[d] + facts[rank].coordinate[d]
    split = _differing(facts, grid, data)
    if not all(_share_parts(f, facts[0]) for f in facts):
        # The stages of a pipeline are models of their own to the program: what is between them is the modules' to tell.
        lines[:] = [
            line for line in lines if line.fields["module"] or line.fields["slot"] in ("param", "grad", "state")
        ]
    for line in lines:
        f = line.fields
        f.pop("is_sample", None)
        unknown = split.get(_key(f), set()).intersection(line.unsaid) if split else ()
        if unknown:
            f["unplaced"] = [grid.dims[d] for d in sorted(unknown)]
        if f["micro_batch"] >= 0:
            f["micro_batch"] = f["micro_batch"] * count + index


def _share_parts(a: Facts, b: Facts) -> bool:
    """False of stages of a pipeline; ranks of one stage may hold other experts."""
    return not a.parts or not b.parts or not set(a.parts).isdisjoint(b.parts)


def _neighbours(facts: list[Facts], grid: Grid, dim: int) -> list[tuple[int, int]]:
    """Pairs of ranks that differ in this dimension alone."""
    lines: dict[tuple[int, ...], list[int]] = {}
    for rank, f in enumerate(facts):
        lines.setdefault((*f.coordinate[:dim], *f.coordinate[dim + 1 :]), []).append(rank)
    return [pair for line in lines.values() for pair in combinations(line, 2)]


def _data_dims(facts: list[Facts], grid: Grid) -> list[int]:
    """Those over which ranks with the same modules are given other samples."""
    found = []
    for dim in range(len(grid.shape)):
        if grid.dims[dim] in OF_ONE_SAMPLE:
            continue
        for a, b in _neighbours(facts, grid, dim):
            common = facts[a].samples.keys() & facts[b].samples.keys()
            if _share_parts(facts[a], facts[b]) and any(facts[a].samples[k] != facts[b].samples[k] for k in common):
                found.append(dim)
                break
    return found


def _differing(facts: list[Facts], grid: Grid, data: list[int]) -> dict[str, set[int]]:
    """The tensors that are not equal on all ranks, with the dimensions over which they are not.

    Micro-batches of other data are other tensors.
    """
    found: dict[str, set[int]] = {}
    for dim in range(len(grid.shape)):
        for a, b in _neighbours(facts, grid, dim):
            for key in facts[a].unsaid.keys() & facts[b].unsaid.keys():
                is_of_sample = key.split(" ", 2)[1] != "-1"
                if not (is_of_sample and dim in data) and facts[a].unsaid[key] != facts[b].unsaid[key]:
                    found.setdefault(key, set()).add(dim)
    return found
