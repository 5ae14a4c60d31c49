"""Dumps of every readable format, and the tables that judge them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

from . import _core
from ._arrays import like

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Recorded:
    """One recorded tensor, put together from what the ranks hold of it."""

    name: str
    """All of the below in words: ``"layers.0 output y (step 1, forward)"``."""
    dtype: str
    shape: tuple[int, ...]
    step: int
    """-1 where the dump says none, as for micro_batch."""
    micro_batch: int
    phase: str
    module: str
    slot: str
    arg: str
    call: int
    op: str
    """The operator that made it; empty: not recorded."""
    attributes: dict[str, Any] = field(hash=False)
    """Of that operator, as they were recorded: {"dim": 1}."""
    parts: int
    """Records that it is made of: pieces and copies."""
    has_values: bool
    """False: only statistics were recorded."""
    _dump: _core.OpenDump = field(repr=False, compare=False)
    _index: int = field(repr=False, compare=False)

    def read(self) -> Any:
        """A copy of the values: an array of numpy where that is installed, else an `assay.Tensor`.

        Raises:
            Error: where they cannot be read, or ranks hold partial sums or copies that differ.
        """
        return like([("", self._dump.read(self._index))])[""]

    def to_torch(self) -> Any:
        """The same as a tensor of torch, on the host, of bfloat16 and float8 too.

        Raises:
            Error: as of `read`.
        """
        import torch

        return torch.from_dlpack(self._dump.read(self._index))


class Dump:
    """The tensors of a file or folder, in the order in which they were recorded.

    A tensor is found by its place, or by its name, or by that of its module where nothing else has it.
    """

    def __init__(self, path: str, dump: _core.OpenDump) -> None:
        self.path = path
        self.format: str = dump.format
        self.world_size: int = dump.world_size
        self.mesh: dict[str, int] = dump.mesh
        self.notes: tuple[str, ...] = tuple(dump.notes)
        self.left_out: tuple[str, ...] = tuple(dump.left_out)
        """What the reader does not take for tensors, with its reasons."""
        self.unreadable: tuple[str, ...] = tuple(dump.unreadable)
        self.tensors = tuple(
            Recorded(**t | {"attributes": json.loads(t["attributes"] or "{}")}, _dump=dump, _index=i)
            for i, t in enumerate(dump.tensors())
        )

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self.tensors)

    def __contains__(self, which: object) -> bool:
        return which in self.tensors or len(self._named(which)) == 1

    @overload
    def __getitem__(self, which: int | str) -> Recorded: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[Recorded, ...]: ...
    def __getitem__(self, which: int | str | slice) -> Recorded | tuple[Recorded, ...]:
        if not isinstance(which, str):
            return self.tensors[which]
        found = self._named(which)
        if len(found) != 1:
            named = f"{len(found)} tensors have" if found else "no tensor has"
            raise KeyError(f"{self.path}: {named} the name '{which}'; expected one of Dump.tensors")
        return found[0]

    def _named(self, which: object) -> list[Recorded]:
        return [t for t in self.tensors if which == t.name] or [t for t in self.tensors if which == t.module]

    def __repr__(self) -> str:
        ranks = f", {self.world_size} ranks" if self.world_size > 1 else ""
        return f"<assay.Dump {self.path}: {self.format}, {len(self)} tensors{ranks}>"


def inspect(path: Path, *, rules: Path | None = None, dtype_hint: str = "", raw: str = "") -> Dump:
    """What a file or folder of any readable format (docs/formats.md) holds. Values are read when they are asked for.

    Args:
        rules: a TOML file with layout and ignore rules (docs/rules.md).
        dtype_hint: of arrays whose file cannot say it: ``"bfloat16"`` of numpy's V2.
        raw: dtype and shape of files that hold bytes alone: ``"bfloat16:128x64"``.

    Raises:
        Error: for what cannot be read, with the place and what was expected.
    """
    opened = _core.OpenDump(os.fspath(path), "" if rules is None else os.fspath(rules), dtype_hint, raw)
    return Dump(os.fspath(path), opened)


class Converted(NamedTuple):
    """What `convert` did."""

    tensors: int
    notes: tuple[str, ...]
    """What the new format cannot say, and how to read it."""
    left_out: tuple[str, ...]


def convert(
    source: Path,
    target: Path,
    *,
    to: str = "",
    rules: Path | None = None,
    dtype_hint: str = "",
    raw: str = "",
) -> Converted:
    """Writes a dump of any readable format as another, which appears whole or not at all.

    Args:
        target: ``x.safetensors``, ``x.npy``, ``x.h5``, or else a folder, which becomes an assay-dump.
        to: ``"assay-dump"``, ``"safetensors"``, ``"npy"`` (a folder of them) or ``"hdf5"``, where the name does not
            say it.
        rules, dtype_hint, raw: as for `inspect`.

    Raises:
        Error: for a target that exists, tensors that the format cannot hold, and tensors that cannot be read: the
            others were written then.
    """
    done = _core.convert(
        os.fspath(source), os.fspath(target), to, "" if rules is None else os.fspath(rules), dtype_hint, raw
    )
    if done.unreadable:
        raise _core.Error(f"{os.fspath(source)}: not converted, while the others were: {'; '.join(done.unreadable)}")
    return Converted(done.tensors, tuple(done.notes), tuple(done.left_out))


@dataclass(frozen=True)
class Tolerance:
    """``abs(actual - reference) <= atol + rtol * abs(reference)``."""

    atol: float
    rtol: float
    count: int
    """From this many accumulated terms on."""
    source: str


def tolerance(dtype: str, count: int | None = None, *, policy: str = "telechat3") -> Tolerance:
    """The row of a tolerance table.

    Args:
        dtype: of the tensor, torch's name.
        count: how many terms a result accumulates; not known: the strictest row.
        policy: one of `policies`, or a .toml file.

    >>> assay.tolerance("float32", 2000).atol
    0.0002
    """
    return Tolerance(*_core.tolerance(dtype, count, policy))
