"""What DeepSpeed says of its weights, in attributes: ZeRO cuts them flat over the ranks, and has no DTensors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn


class Fragment(NamedTuple):
    """What this rank has of a weight, or of what belongs to it."""

    values: torch.Tensor
    """Flat: the elements of the whole in C order from the first on."""
    first: int
    whole: tuple[int, ...]


class Boundary:
    """Stands around engine.step() of the class until it is removed: optimizers of torch see flat buffers there."""

    def __init__(self, engine: Any, before: Callable[[], None], after: Callable[[nn.Module], None]) -> None:
        self._engine, self._original = engine, engine.step

        @functools.wraps(self._original)
        def step(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not module.is_gradient_accumulation_boundary():
                return self._original(module, *args, **kwargs)
            before()
            done = self._original(module, *args, **kwargs)
            after(module)
            return done

        engine.step = step

    def remove(self) -> None:
        self._engine.step = self._original


def engine_of(model: nn.Module) -> Any:
    """Its class, if it is an engine of DeepSpeed; else None."""
    runtime = sys.modules.get("deepspeed.runtime.engine")
    return type(model) if runtime is not None and isinstance(model, runtime.DeepSpeedEngine) else None


def optimizer_in(engine: nn.Module) -> str:
    """The class of the one that it steps."""
    return type(getattr(engine, "basic_optimizer", None) or engine.optimizer).__name__


def is_cut(weight: torch.Tensor) -> bool:
    """Whether ranks share out its gradient and its states (_hp_mapping, ZeRO 1 and 2), or itself (ds_tensor, 3)."""
    return hasattr(weight, "ds_tensor") or hasattr(weight, "_hp_mapping")


def part_of(weight: torch.Tensor) -> Fragment | None:
    """Of a weight that is whole in its module's calls only."""
    shard = getattr(weight, "ds_tensor", None)
    return None if shard is None else _third(weight, shard)


def gradient_of(weight: torch.Tensor) -> torch.Tensor | Fragment | None:
    """Averaged over the ranks, from the end of backward to the step."""
    if hasattr(weight, "ds_tensor"):
        gradient = weight._z3_optimizer.get_local_fp32_grad_for_param(weight)
        return None if gradient is None else _third(weight, gradient)
    whole = getattr(weight, "_hp_grad", None)  # of the optimizer for bfloat16
    if whole is not None:
        return whole
    mapping = weight._hp_mapping
    if mapping is None:
        return None
    gradient = mapping.get_lp_grad_fragment(weight._index_in_param_group)
    return None if gradient is None else _of_mapping(weight, gradient.flatten())


def states_of(weight: torch.Tensor) -> dict[str, Fragment]:
    """Of its optimizer, with the copy of a weight of fewer bits that it steps."""
    if hasattr(weight, "ds_tensor"):
        optimizer = weight._z3_optimizer
        group, *_ = optimizer.grad_position[optimizer.get_param_id(weight)]
        flat = optimizer.fp32_partitioned_groups_flat[group]
        names = [k for k, v in optimizer.optimizer.state.get(flat, {}).items() if torch.is_tensor(v) and v.dim() > 0]
        values = {} if weight.dtype == torch.float32 else {"master": optimizer.get_local_fp32_param(weight)}
        values |= {name: optimizer.get_local_fp32_param(weight, name) for name in names}
        return {name: _third(weight, v) for name, v in values.items()}
    mapping = weight._hp_mapping
    if mapping is None:
        return {}
    values = {} if weight.dtype == torch.float32 else {"master": mapping.hp_fragment}
    values |= mapping.optim_fragment or {}
    return {name: _of_mapping(weight, v) for name, v in values.items()}


def _of_mapping(weight: torch.Tensor, flat: torch.Tensor) -> Fragment:
    own = weight._hp_mapping.lp_fragment_address
    if flat.numel() > own.numel:  # a buffer for all ranks' elements
        flat = flat.narrow(0, own.start, own.numel)
    return Fragment(flat, own.start, tuple(weight.shape))


def _third(weight: torch.Tensor, flat: torch.Tensor) -> Fragment:
    """Ranks have equal shares; what is behind the weight's end is not initialized."""
    share = weight.ds_tensor.ds_numel
    first = share * dist.get_rank(weight.ds_process_group)
    length = max(0, min(share, weight.ds_numel - first))
    return Fragment(flat.flatten()[:length], first, tuple(weight.ds_shape))
