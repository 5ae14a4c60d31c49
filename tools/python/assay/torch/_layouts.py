"""How plain tensors lie over the ranks: as the DTensor did whose memory they have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ._grid import Layout


@dataclass
class Seen:
    """How a tensor lies over the ranks, for as long as its memory is there."""

    storage: StorageWeakRef
    geometry: tuple[Any, ...]
    layout: Layout


class Layouts:
    """By the memory of tensors; it keeps none of them alive."""

    def __init__(self) -> None:
        self._seen: dict[int, list[Seen]] = {}  # by storage

    def of(self, part: torch.Tensor) -> Layout | None:
        """Of memory that a DTensor had, or another view of it."""
        if part.is_inference():
            return None
        for seen in self._seen.get(part.untyped_storage()._cdata, []):
            if not seen.storage.expired():
                layout = seen.layout if seen.geometry == _geometry(part) else _layout_of_view(seen, part)
                if layout is not None:
                    return layout
        return None

    def note(self, part: torch.Tensor, layout: Layout) -> None:
        seen = Seen(StorageWeakRef(part.untyped_storage()), _geometry(part), layout)
        self._seen.setdefault(part.untyped_storage()._cdata, []).append(seen)

    def forget(self) -> None:
        """What is not there any more."""
        self._seen = {key: seen for key, seen in self._seen.items() if not seen[0].storage.expired()}

    def clear(self) -> None:
        self._seen = {}


def _geometry(t: torch.Tensor) -> tuple[Any, ...]:
    return t.storage_offset(), tuple(t.shape), t.stride(), t.dtype


def _layout_of_view(base: Seen, view: torch.Tensor) -> Layout | None:
    """Of a reshaped or permuted view of all of a dense tensor whose layout is known: its shards are cut there, too."""
    offset, shape, stride, dtype = base.geometry
    layout = base.layout
    if layout is None or layout.offsets is not None or (offset, dtype) != (view.storage_offset(), view.dtype):
        return None
    if math.prod(shape) != view.numel() or len(layout.global_shape) != len(shape):
        return None
    if any("Shard" in w and not w.startswith("Shard") for w in layout.placements):
        return None
    whole, moved = list(view.shape), {}
    for d in {int(w[len("Shard(dim=") : -1]) for w in layout.placements if w.startswith("Shard")}:
        # The dimension of the view that is the outermost part of the one that is cut.
        end = stride[d] * shape[d]
        found = [e for e in range(view.dim()) if view.stride(e) >= stride[d] and view.stride(e) * view.shape[e] == end]
        if len(found) != 1:
            return None
        moved[d] = found[0]
        whole[found[0]] *= layout.global_shape[d] // shape[d]
    words = tuple(
        f"Shard(dim={moved[int(w[len('Shard(dim=') : -1])]})" if w.startswith("Shard") else w for w in layout.placements
    )
    return Layout(tuple(whole), words, None, layout.unsaid)
