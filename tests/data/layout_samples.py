#!/usr/bin/env python3
"""Writes tests/data/layout_samples: assay-dumps of 2 and 8 ranks whose parts PyTorch has cut, to be put together again.

pip install numpy torch safetensors; then: layout_samples.py. The outputs are committed.
"""

import itertools
import json
import math

import safetensors.torch
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from sample import Samples

samples = Samples("layout_samples")


class Zigzag:
    """Causal context parallelism: of 2 n chunks rank r takes r and 2 n - 1 - r (Megatron-LM get_batch_on_this_cp_rank)."""

    def __init__(self, dim):
        self.dim = dim

    def __repr__(self):
        return f"Shard(dim={self.dim}, zigzag)"

    def split(self, tensor, n):
        shape = list(tensor.shape)
        shape[self.dim : self.dim + 1] = [2 * n, shape[self.dim] // (2 * n)]
        chunks = tensor.reshape(shape)
        parts = [chunks.index_select(self.dim, torch.tensor([r, 2 * n - 1 - r])) for r in range(n)]
        return [p.flatten(self.dim, self.dim + 1) for p in parts]


def split(placement, tensor, n):
    if isinstance(placement, Zigzag):
        return placement.split(tensor, n)
    if isinstance(placement, Replicate):
        return [tensor] * n
    if isinstance(placement, Partial):
        shares = [torch.randint_like(tensor, -8, 8) for _ in range(n - 1)]
        return [tensor - sum(shares), *shares]  # small integers: their sum is exact
    # With n chunks, torch.chunk may give fewer: the ranks behind them hold nothing.
    return placement._split_tensor(tensor, n, with_padding=False, contiguous=True)[0]


def parts_of(tensor, placements, mesh):
    """{coordinate: local tensor}"""
    parts = {(): tensor}
    for placement, n in zip(placements, mesh, strict=True):
        parts = {c + (i,): part for c, t in parts.items() for i, part in enumerate(split(placement, t, n))}
    return parts


def write(name, dims, mesh, tensors):
    """tensors: {module: (tensor, placements, {field: function of the local tensor and coordinate} )}"""
    folder = samples.folder / name
    folder.mkdir()
    manifest = {"format": "assay-dump", "version": 1, "world_size": math.prod(mesh), "mesh": {"dims": dims, "shape": mesh}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    cut = {module: parts_of(whole, placements, mesh) for module, (whole, placements, *_) in tensors.items()}
    expected = {}
    for rank, coordinate in enumerate(itertools.product(*map(range, mesh))):
        arrays, lines = {}, []
        for seq, (module, (whole, placements, *more)) in enumerate(tensors.items()):
            part = cut[module][coordinate].contiguous()
            fields = {}
            for change in more:
                part, fields, whole = change(part, coordinate, whole)
            arrays[f"t{seq}"] = part.contiguous().clone()
            lines.append({"seq": seq, "step": 0, "micro_batch": -1, "module": module, "slot": "param", "phase": "forward", "arg": "", "call": 0,
                          "dtype": str(part.dtype).removeprefix("torch."), "shape": list(part.shape), "global_shape": list(tensors[module][0].shape),
                          "placements": [repr(p) for p in placements], "mesh_coordinate": list(coordinate),
                          "data": {"file": f"rank{rank:05}.safetensors", "name": f"t{seq}"}} | fields)
            expected[f"{module}|forward|param||0|0"] = whole
        safetensors.torch.save_file(arrays, folder / f"rank{rank:05}.safetensors")
        (folder / f"rank{rank:05}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    samples.expect(name, expected, merged=True)


def flattened(axis, parts):
    """ZeRO: the local tensor, flattened, is cut into `parts` equal ranges (the last may be shorter)."""

    def change(part, coordinate, whole):
        flat = part.flatten()
        piece = -(-flat.numel() // parts)
        first, last = (min(flat.numel(), piece * (coordinate[axis] + i)) for i in (0, 1))
        return flat[first:last], {"flattened_range": [first, last]}, whole

    return change


def padded(dim, extent):
    """The tensor was padded to a multiple of its parts; `extent` of them are real."""

    def change(part, coordinate, whole):
        shape = list(whole.shape)
        shape[dim] = extent
        return part, {"cut": shape}, whole.narrow(dim, 0, extent)

    return change


torch.manual_seed(1)
R = Replicate()
matrix, odd = torch.randn(12, 16), torch.randn(7, 5, 3)
sums = torch.randint(-99, 99, (6, 4)).float()
for ranks in (2, 8):
    t = torch.randn(2 * 2 * ranks, 3)
    write(f"one_axis_{ranks}", ["tp"], [ranks], {
        "rows": (matrix, [Shard(0)]),
        "columns": (matrix, [Shard(1)]),
        "uneven_rows": (odd, [Shard(0)]),
        "uneven_middle": (odd.bfloat16(), [Shard(1)]),
        "few": (torch.arange(3.0), [Shard(0)]),
        "replicated": (odd, [R]),
        "partial": (sums, [Partial()]),
        "zigzag": (t, [Zigzag(0)]),
        "zigzag_inner": (t.t().contiguous().half(), [Zigzag(1)]),
        "zero": (odd, [R], flattened(0, ranks)),
        "vocabulary": (torch.randn(16, 3), [Shard(0)], padded(0, 13)),
        "sequence": (torch.randn(2, 16, 3), [Shard(1)], padded(1, 9)),
        "strided": (matrix, [_StridedShard(1, split_factor=2)]),
        "uneven_strided": (torch.arange(9), [_StridedShard(0, split_factor=2)]),
        "scalar": (torch.tensor(2.5), [R]),
        "empty": (torch.zeros(0, 4), [Shard(0)]),
    })
write("dp2_tp2_cp2", ["dp", "tp", "cp"], [2, 2, 2], {
    "fsdp_over_tp": (matrix, [_StridedShard(0, split_factor=2), Shard(0), R]),
    "left_to_right": (matrix, [Shard(0), Shard(0), R]),
    "grid": (matrix, [R, Shard(0), Shard(1)]),
    "activation": (torch.randn(4, 8, 6), [Shard(0), Shard(2), Zigzag(1)]),
    "sequence_parallel": (torch.randn(8, 3), [R, Shard(0), Zigzag(0)]),
    "gradient": (sums, [Partial(), Shard(1), Partial()]),
    "zero_over_tp": (matrix, [R, Shard(1), R], flattened(0, 2)),
    "zero_over_all": (odd, [R, R, R], flattened(0, 2)),
})
samples.write()
