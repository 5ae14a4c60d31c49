"""A dump of all ranks, written by the one process that has their devices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._arrays import tensor
from ._layouts import Grid, Part


class Writer:
    def __init__(self, folder: Path, grid: Grid, producer: dict[str, Any]) -> None:
        """Raises: _core.Error where the folder has a dump already."""
        self.folder, self.grid = folder, grid
        self.tensors = self.bytes = 0
        _core.begin_dump(str(folder), len(grid.devices), grid.dims, grid.shape, json.dumps(producer))
        self._ranks = [_core.Recording(str(folder), rank, grid.dims, grid.shape) for rank in range(len(grid.devices))]
        self._lines: list[list[str]] = [[] for _ in self._ranks]
        self._written: list[dict[tuple[str, str, tuple[int, ...]], tuple[str, int]]] = [{} for _ in self._ranks]
        self._seq = 0

    def add(self, fields: dict[str, Any], parts: Sequence[Part | None], own: Sequence[str] = ()) -> None:
        """In execution order.

        Args:
            fields: of the record, all but what the parts say.
            parts: of all ranks; None on one that has not made it.
            own: the axes over which each device has values of its own.
        """
        digests = ["" if part is None else _digest(part.values) for part in parts]
        unplaced = self.grid.differing(digests, own)
        for rank, (part, coordinate) in enumerate(zip(parts, self.grid.coordinates(), strict=True)):
            if part is None:
                continue
            values = np.ascontiguousarray(part.values).reshape(part.values.shape)
            key = digests[rank], values.dtype.name, values.shape
            written, recording = self._written[rank], self._ranks[rank]
            if key not in written:
                written[key] = recording.write(tensor(values))
                self.bytes += values.nbytes
            dataset, offset = written[key]
            line = {
                **fields,
                "seq": self._seq,
                "dtype": values.dtype.name,
                "shape": values.shape,
                "global_shape": part.global_shape,
                "placements": part.placements,
                "mesh_coordinate": coordinate,
                "data": {"file": recording.file, "name": dataset, "offset": offset},
            }
            if part.offsets is not None:
                line["offsets"] = part.offsets
            if unplaced:
                line["unplaced"] = unplaced
            text = json.dumps(line)
            recording.note(text)
            del line["data"]["offset"]
            self._lines[rank].append(json.dumps(line) + "\n")
        self._seq += 1
        self.tensors += 1

    def finish(self) -> None:
        for recording, lines in zip(self._ranks, self._lines, strict=True):
            recording.finish("".join(lines))
        _core.finish_dump(str(self.folder))
        for path in self.folder.glob("rank*.jsonl.unfinished"):
            path.unlink(missing_ok=True)


def _digest(values: Any) -> str:
    """Two different tensors of a recording have one digest of 128 bits with a chance below 1e-20."""
    raw = np.ascontiguousarray(values).tobytes()
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
