"""All ranks as one mesh that refines every mesh of the program, and what DTensors say of their layout in its words."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Axis(NamedTuple):
    """A dimension of some mesh or the ranks of some group: size ranks that are stride apart."""

    name: str
    stride: int
    size: int


class Layout(NamedTuple):
    """How the part of one rank lies in the whole tensor."""

    global_shape: tuple[int, ...]
    placements: tuple[str, ...]
    """One word of DTensor for each dimension of the grid."""
    offsets: tuple[int, ...] | None = None
    """Of the local box, where the cut is not torch.chunk's in each dimension of the grid."""
    unsaid: tuple[int, ...] = ()
    """The dimensions of the grid of which it says nothing: its mesh has no part in them."""


@dataclass(frozen=True)
class Grid:
    """Ranks are numbered in C order: the last dimension has stride 1."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]

    def coordinate(self, rank: int) -> tuple[int, ...]:
        digits = []
        for size in reversed(self.shape):
            digits.append(rank % size)
            rank //= size
        return tuple(reversed(digits))

    def dims_of(self, axis: Axis) -> range | None:
        """The dimensions that the axis consists of; None if it cuts through one."""
        stride, last, first = 1, None, None
        for i in reversed(range(len(self.shape))):
            if stride == axis.stride:
                last = i
            stride *= self.shape[i]
            if stride == axis.stride * axis.size:
                first = i
        return None if first is None or last is None else range(first, last + 1)

    def layout(self, tensor: Any) -> Layout | None:
        """Of a DTensor; None if the grid has no words for it."""
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        words = ["Replicate()"] * len(self.shape)
        is_even, cut = True, [1] * tensor.dim()
        unsaid = set(range(len(self.shape)))
        for i, placement in enumerate(tensor.placements):
            size = tensor.device_mesh.size(i)
            if size == 1:
                continue
            axis = axis_of(tensor.device_mesh, i)
            dims = None if axis is None else self.dims_of(axis)
            unsaid -= set(dims or ())
            if placement.is_replicate():
                continue
            if dims is None:
                return None
            if placement.is_partial():
                if getattr(placement, "reduce_op", "") != "sum":
                    return None
                word = "Partial(sum)"
            else:
                # _StridedShard is no Shard to some releases of torch.
                pieces = getattr(placement, "split_factor", 1)
                word = (
                    f"_StridedShard(dim={placement.dim}, sf={pieces})" if pieces > 1 else f"Shard(dim={placement.dim})"
                )
                cut[placement.dim] *= size
                is_even = is_even and (tensor.shape[placement.dim] % cut[placement.dim] == 0)
            for d in dims:
                words[d] = word
        whole = tuple(tensor.shape)
        if is_even:
            return Layout(whole, tuple(words), None, tuple(sorted(unsaid)))
        if any(w.startswith("_") for w in words):
            return None
        _, offsets = compute_local_shape_and_global_offset(whole, tensor.device_mesh, tensor.placements)
        return Layout(whole, tuple(words), tuple(offsets), tuple(sorted(unsaid)))


def axis_of(mesh: Any, dim: int) -> Axis | None:
    """None if its ranks are not equally far apart."""
    lines = mesh.mesh.movedim(dim, 0).reshape(mesh.size(dim), -1)
    steps = lines[1:] - lines[:-1]
    if steps.numel() == 0 or bool((steps != steps.flatten()[0]).any()) or int(steps.flatten()[0]) <= 0:
        return None
    names = mesh.mesh_dim_names
    return Axis(names[dim] if names else "", int(steps.flatten()[0]), mesh.size(dim))


def axes_of_program() -> list[Axis]:
    """Of all meshes that are alive, and of process groups where they add something."""
    from torch.distributed.device_mesh import DeviceMesh

    meshes = [m for m in gc.get_objects() if type(m) is DeviceMesh]
    found = [axis_of(m, i) for m in sorted(meshes, key=lambda m: -m.ndim) for i in range(m.ndim) if m.size(i) > 1]
    groups = dist.distributed_c10d._world.pg_group_ranks
    # The one of all ranks, which torch makes first, says least of what they share.
    for group, ranks in sorted(groups.items(), key=lambda g: getattr(g[0], "group_desc", "") == "default_pg"):
        members = sorted(ranks)
        if len(members) > 1 and len({b - a for a, b in pairwise(members)}) == 1:
            found.append(Axis(_plain(getattr(group, "group_desc", "")), members[1] - members[0], len(members)))
    return [a for a in found if a is not None]


# Megatron-core's descriptions of its groups, and torch's of the one that it makes itself.
_NAMES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "default_pg": "dp",
}


def _plain(description: str) -> str:
    return _NAMES.get(description, "")


def grid_of(world_size: int, axes: Iterable[Axis]) -> Grid:
    """The coarsest grid of which every axis is made; an axis that does not fit those before it is left out."""
    taken: list[Axis] = []
    points = {1, world_size}
    for axis in axes:
        wanted = points | {axis.stride, axis.stride * axis.size}
        in_order = sorted(wanted)
        if all(b % a == 0 for a, b in pairwise(in_order)):
            points = wanted
            taken.append(axis)
    edges = sorted(points)
    dims: list[str] = []
    shape: list[int] = []
    for low, high in reversed(list(pairwise(edges))):
        dims.append(_name(low, high, taken, dims))
        shape.append(high // low)
    return Grid(tuple(dims), tuple(shape))


# Over these a sample is cut, or computed by all: the names of Megatron and torchtitan.
OF_ONE_SAMPLE = {"tp", "sp", "cp", "pp", "etp", "tensor", "sequence", "context", "pipeline"}


def _name(low: int, high: int, axes: Sequence[Axis], used: Sequence[str]) -> str:
    whole = [a.name for a in axes if a.name and (a.stride, a.stride * a.size) == (low, high)]
    # Ranks that share a sample may share more: fully_shard cuts weights over them, too.
    whole.sort(key=lambda name: name not in OF_ONE_SAMPLE)
    part = [a.name for a in axes if a.name and a.stride <= low and a.stride * a.size >= high]
    for name in [*whole, *part, "ranks"]:
        if name not in used:
            return name
    return f"ranks{len(used)}"


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a DTensor, with the mask of vocabulary-parallel embedding applied."""
    from torch.distributed.tensor.placement_types import Partial

    part: torch.Tensor = tensor._local_tensor  # to_local() would record itself in autograd
    if hasattr(part, "wait"):
        part = part.wait()
    for placement in tensor.placements:
        buffer = getattr(placement, "mask_buffer", None)
        if isinstance(placement, Partial) and buffer is not None and buffer.data is not None:
            part = part.detach().clone()
            buffer.apply_mask(part)
    return part
