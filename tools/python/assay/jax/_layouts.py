"""Devices of a mesh as ranks, and how their parts of an array lie in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding


class Part(NamedTuple):
    """What one device holds."""

    values: np.ndarray[Any, Any]
    global_shape: tuple[int, ...]
    placements: tuple[str, ...]
    """One word of DTensor for each dimension of the grid."""
    offsets: tuple[int, ...] | None
    """None: it holds all."""


@dataclass(frozen=True)
class Grid:
    """The devices of a mesh, numbered in C order."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    devices: tuple[Any, ...]

    @staticmethod
    def of(meshes: Iterable[Any]) -> Grid:
        """Of the largest mesh; one device where there is none."""
        largest = max((m for m in meshes if isinstance(m, Mesh)), key=lambda m: m.size, default=None)
        if largest is None:
            return Grid((), (), (jax.devices()[0],))
        sizes = {name: size for name, size in largest.shape.items() if size > 1}
        return Grid(tuple(map(str, sizes)), tuple(sizes.values()), tuple(largest.devices.flat))

    def coordinates(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*map(range, self.shape)))

    def parts(self, array: Any) -> list[Part]:
        """Of all devices, in the order of ranks. What is not on all of them is the same on each."""
        array = jax.numpy.asarray(array)
        shape = array.shape
        shards = {shard.device: shard for shard in array.addressable_shards}
        if len(self.devices) == 1 or any(d not in shards for d in self.devices):
            whole = np.asarray(array)
            return [Part(whole, shape, ("Replicate()",) * len(self.dims), None)] * len(self.devices)
        starts = [_starts(shards[d].index) for d in self.devices]
        words = self._words(starts, len(shape))
        is_cut = any(word != "Replicate()" for word in words)
        return [
            Part(np.asarray(shards[d].data), shape, words, start if is_cut else None)
            for d, start in zip(self.devices, starts, strict=True)
        ]

    def _words(self, starts: Sequence[tuple[int, ...]], rank: int) -> tuple[str, ...]:
        """By what changes along each dimension of the grid: however the sharding says it."""
        table = np.array(starts, dtype=np.int64).reshape(*self.shape, rank)
        words = []
        for d in range(len(self.shape)):
            moved = [i for i in range(rank) if np.ptp(table[..., i], axis=d).any()]
            words.append(f"Shard(dim={moved[0]})" if len(moved) == 1 else "Replicate()")
        return tuple(words)

    def differing(self, digests: Sequence[str], axes: Iterable[str]) -> list[str]:
        """Those of the axes along which ranks hold other values."""
        table = np.array(digests, dtype=object).reshape(self.shape)
        found = []
        for axis in axes:
            if axis in self.dims:
                lines = np.moveaxis(table, self.dims.index(axis), 0)
                if (lines != lines[:1]).any():
                    found.append(axis)
        return found


def without_leading(part: Part, index: tuple[int, ...]) -> Part:
    """An element of the leading dimensions."""
    n = len(index)
    words = tuple(_shifted(word, n) for word in part.placements)
    offsets = part.offsets[n:] if part.offsets is not None and any(w != "Replicate()" for w in words) else None
    return Part(part.values[index], part.global_shape[n:], words, offsets)


def _shifted(word: str, by: int) -> str:
    if not word.startswith("Shard"):
        return word
    dim = int(word[len("Shard(dim=") : -1]) - by
    return f"Shard(dim={dim})" if dim >= 0 else "Replicate()"


def _starts(index: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(s.start or 0 for s in index)


def meshes_of(values: Iterable[Any]) -> list[Any]:
    """Those over which arrays lie."""
    shardings = [getattr(x, "sharding", None) for x in values]
    return [s.mesh for s in shardings if isinstance(s, NamedSharding)]
