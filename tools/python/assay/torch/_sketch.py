"""Sketches and fingerprints of tensors where they lie: the numbers of golden/sketch.h, in torch's own calls."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

GOLDEN, ROW, COLUMN, PRINT = 0x9E3779B97F4A7C15, 0x526F77, 0x436F6C, 0x5072696E74
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
ANY_NAN = 0x7FF8000000000000
AT_ONCE = 1 << 22
"""Elements whose float64 are in memory at a time."""
MORE = 6
"""What stands behind the values in a buffer: counts of NaN, Inf and -Inf, sum of squares, peak, fingerprint."""


class Spec(NamedTuple):
    """As golden/sketch.h has it."""

    rows: int = 4
    columns: int = 4
    signs: int = 16
    seed: int = 0

    @property
    def size(self) -> int:
        return self.rows * self.columns * self.signs


DEFAULT = Spec()


def spec_for(shape: Sequence[int], spec: Spec = DEFAULT) -> Spec:
    """The blocks of a tensor of this global shape."""
    rows, columns = _extents(shape)
    blocks = spec.rows * spec.columns
    if rows < spec.rows:
        return spec._replace(rows=1, columns=blocks)
    return spec._replace(rows=blocks, columns=1) if columns < spec.columns else spec


def is_sketched(shape: Sequence[int], spec: Spec = DEFAULT) -> bool:
    """Whether a tensor has more elements than its sketch would have values."""
    return math.prod(shape) > spec.size


def sketch(
    part: torch.Tensor, shape: Sequence[int] | None = None, offsets: Sequence[int] | None = None, spec: Spec = DEFAULT
) -> torch.Tensor:
    """The sketch of a box of a tensor, with MORE: [size + 6] of float64, on its device. Nothing waits for it.

    On devices without float64 it is made on the host.
    """
    with torch.no_grad():
        return _sketch(part, tuple(part.shape if shape is None else shape), offsets, spec)


def _sketch(part: torch.Tensor, shape: Sequence[int], offsets: Sequence[int] | None, spec: Spec) -> torch.Tensor:
    offsets = tuple(offsets or (0,) * len(shape))
    if not _has_float64(part.device):
        part = part.cpu()
    device, (rows, columns) = part.device, _extents(shape)
    own = torch.arange(math.prod(part.shape[:-1]), device=device)
    ids = _row_ids(own, part.shape, shape, offsets)
    first = offsets[-1] if shape else 0
    matrix = part.detach().reshape(len(own), part.shape[-1] if shape else 1)
    width = matrix.shape[1]
    signs = _signs(torch.arange(first, first + width, device=device), COLUMN, spec)
    keys = _hash(torch.arange(first, first + width, device=device), PRINT ^ COLUMN, spec.seed)
    bounds = [min(max(-(-q * columns // spec.columns) - first, 0), width) for q in range(spec.columns + 1)]
    values = torch.zeros(spec.rows, spec.columns, spec.signs, dtype=torch.float64, device=device)
    counts = torch.zeros(4, dtype=torch.float64, device=device)  # and the sum of squares
    peak, prints = torch.zeros(1, dtype=torch.float64, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    step = max(1, AT_ONCE // max(width, 1))
    for at in range(0, len(own) if width else 0, step):
        piece, of_rows = matrix[at : at + step], ids[at : at + step]
        wide = piece.to(torch.float64)
        prints += _print(piece, wide, _hash(of_rows, PRINT ^ ROW, spec.seed), keys)
        odd = ~torch.isfinite(wide)
        finite = torch.where(odd, 0.0, wide)
        counts += torch.stack(
            [(wide != wide).sum(), (wide == math.inf).sum(), (wide == -math.inf).sum(), finite.square().sum()]
        )
        peak = torch.maximum(peak, finite.abs().amax().reshape(1))
        block = of_rows * spec.rows // max(rows, 1)
        in_block = (torch.arange(spec.rows, device=device)[:, None] == block).to(torch.float64)
        of_row = _signs(of_rows, ROW, spec)
        for q, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if begin < end:
                values[:, q] += in_block @ (of_row * (finite[:, begin:end] @ signs[begin:end]))
    return torch.cat([values.reshape(-1), counts, peak, prints.view(torch.float64)])


def offsets_of(fields: dict[str, Any], mesh: Sequence[int]) -> list[int] | None:
    """Where a rank's part begins in the whole tensor, by its record; None if it is no box.

    mesh: the extents of the grid of ranks.
    """
    if "flattened_range" in fields:
        return None
    if "offsets" in fields:
        return list(fields["offsets"])
    begin, extents = [0] * len(fields["global_shape"]), list(fields["global_shape"])
    for word, parts, index in zip(fields["placements"], mesh, fields["mesh_coordinate"], strict=True):
        cut = re.fullmatch(r"Shard\(dim=(\d+)\)", word)
        if cut is not None:  # as torch.chunk cuts
            dim = int(cut[1])
            piece = -(-extents[dim] // parts)
            at = min(extents[dim], piece * index)
            begin[dim] += at
            extents[dim] = min(piece, extents[dim] - at)
        elif not word.startswith(("Replicate", "Partial")):
            return None
    return begin if extents == list(fields["shape"]) else None


def record_of(buffer: torch.Tensor, spec: Spec) -> tuple[torch.Tensor, dict[str, Any]]:
    """The values of a sketch on the host, and what the line of an index says beside them."""
    nan, infinite, negative, square, peak = buffer[spec.size : -1].tolist()
    fields: dict[str, Any] = {
        "sketch": {
            "version": 1,
            "grid": [spec.rows, spec.columns],
            "signs": spec.signs,
            "seed": spec.seed,
            "accumulate": "float64",
        },
        "nan": int(nan),
        "pinf": int(infinite),
        "ninf": int(negative),
        "peak": peak,
        "fingerprint": f"{int(buffer[-1:].view(torch.int64)) & (1 << 64) - 1:016x}",
    }
    if math.isfinite(square):
        fields["square"] = square
    return buffer[: spec.size].clone(), fields


def _extents(shape: Sequence[int]) -> tuple[int, int]:
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


@functools.cache
def _has_float64(device: torch.device) -> bool:
    try:
        ones = torch.ones(1, 1, dtype=torch.float64, device=device)
        return bool((ones @ ones).item() == 1)
    except (RuntimeError, TypeError):
        return False


def _row_ids(rows: torch.Tensor, box: Sequence[int], shape: Sequence[int], offsets: Sequence[int]) -> torch.Tensor:
    """The global rows of those of a box."""
    ids, stride = torch.zeros_like(rows), 1
    for d in range(len(shape) - 2, -1, -1):
        ids += (offsets[d] + rows % max(box[d], 1)) * stride
        rows = rows // max(box[d], 1)
        stride *= shape[d]
    return ids


def _signed(x: int) -> int:
    """The int64 of the same bits: torch multiplies them as unsigned ones, modulo 2^64."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x


def _shifted(x: torch.Tensor, by: int) -> torch.Tensor:
    return (x >> by) & ((1 << 64 - by) - 1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shifted(x, 30)) * _signed(FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(SECOND)
    return x ^ _shifted(x, 31)


def _hash(ids: torch.Tensor, axis: int, seed: int, word: int = 0) -> torch.Tensor:
    start = _mix(torch.tensor(_signed(seed ^ axis * GOLDEN ^ word << 32), device=ids.device))
    return _mix(start + _signed(GOLDEN) * (ids + 1))


def _signs(ids: torch.Tensor, axis: int, spec: Spec) -> torch.Tensor:
    """[ids, signs] of +-1."""
    words = []
    for word in range(-(-spec.signs // 64)):
        bits = torch.arange(min(64, spec.signs - 64 * word), device=ids.device)
        words.append((_hash(ids, axis, spec.seed, word)[:, None] >> bits) & 1)
    return 1.0 - 2.0 * torch.cat(words, 1).to(torch.float64)


def _print(piece: torch.Tensor, wide: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    if piece.is_floating_point():
        bits = torch.where(wide != wide, ANY_NAN, wide.view(torch.int64))
    else:
        bits = piece.to(torch.int64)
    return _mix(bits ^ (rows[:, None] + columns)).sum()
