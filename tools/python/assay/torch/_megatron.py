"""What Megatron-core says of its modules and weights, in attributes: it has no DTensors."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ._grid import Axis, Grid, Layout


def _state() -> Any:
    return sys.modules.get("megatron.core.parallel_state")


def name_in_whole(parent: nn.Module, name: str, child: nn.Module, owner: nn.Module | None) -> str:
    """Of a child as the whole model has it: each stage counts its layers from 0, each rank its experts.

    Args:
        owner: what holds the list that the parent is.
    """
    state = _state()
    if state is None or not name.isdecimal() or not state.is_initialized():
        return name
    layer, experts = getattr(child, "layer_number", None), getattr(owner, "num_local_experts", None)
    if isinstance(layer, int):
        return str(layer - 1)
    if isinstance(experts, int) and getattr(owner, "local_experts", None) is parent:
        return str(int(name) + int(state.get_expert_model_parallel_rank()) * experts)
    return name


def group_of_weights(module: nn.Module) -> Any:
    """The ranks over which it cuts those that it cuts; experts may have others than the layers around them."""
    state = _state()
    if state is None or not state.is_initialized():
        return None
    group = getattr(module, "tp_group", None)
    if group is None and getattr(module, "is_expert", False):
        group = state.get_expert_tensor_parallel_group()
    return group if group is not None else state.get_tensor_model_parallel_group()


def layout_of_weight(weight: torch.Tensor, group: Any, grid: Grid) -> Layout | None:
    """By tensor_model_parallel, partition_dim and partition_stride (megatron.core.tensor_parallel.layers)."""
    if group is None or not getattr(weight, "tensor_model_parallel", False):
        return None
    dims = _dims_of(group, grid)
    dim, pieces = weight.partition_dim, weight.partition_stride
    if not dims or not 0 <= dim < weight.dim() or (pieces > 1 and len(dims) > 1):
        return None
    words = ["Replicate()"] * len(grid.shape)
    whole = list(weight.shape)
    for d in dims:
        words[d] = f"_StridedShard(dim={dim}, sf={pieces})" if pieces > 1 else f"Shard(dim={dim})"
        whole[dim] *= grid.shape[d]
    return Layout(tuple(whole), tuple(words))


def _dims_of(group: Any, grid: Grid) -> range | None:
    ranks = sorted(torch.distributed.get_process_group_ranks(group))
    if len({b - a for a, b in pairwise(ranks)}) != 1:
        return None
    return grid.dims_of(Axis("", ranks[1] - ranks[0], len(ranks)))


def master_of(weight: torch.Tensor) -> torch.Tensor | None:
    """The float32 copy that its optimizer steps."""
    master = getattr(weight, "main_param", None)
    return master if torch.is_tensor(master) and master is not weight else None


def gradient_of(weight: torch.Tensor) -> torch.Tensor | None:
    """What its DistributedDataParallel has added up, in a buffer of its own."""
    gradient = weight.grad if weight.grad is not None else getattr(weight, "main_grad", None)
    return gradient if torch.is_tensor(gradient) else None
