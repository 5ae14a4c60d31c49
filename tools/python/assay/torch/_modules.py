"""What a model is made of, and what its modules are given and return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ._megatron import name_in_whole

# The attributes of torch, of its parallel wrappers and of DeepSpeed under which they hold the module that they wrap.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")


def wrapped_in(module: nn.Module) -> str | None:
    """The name of the module that this one does nothing but wrap."""
    children = [name for name, _ in module.named_children()]
    has_own = next(module.parameters(recurse=False), None) is not None
    return children[0] if len(children) == 1 and children[0] in _WRAPPED and not has_own else None


def paths_of(model: nn.Module) -> dict[nn.Module, str]:
    """All modules with their paths, without the names that wrappers add; of a module that is used twice the first."""
    found: dict[nn.Module, str] = {}

    def visit(module: nn.Module, path: str, owner: nn.Module | None) -> None:
        if module in found:
            return
        found[module] = path
        wrapped = wrapped_in(module)
        for name, child in module.named_children():
            own = name_in_whole(module, name, child, owner)
            visit(child, path if name == wrapped else f"{path}.{own}" if path else own, module)

    visit(model, "", None)
    return found


def parameters_of(model: nn.Module, paths: dict[nn.Module, str]) -> Iterator[tuple[str, nn.Parameter]]:
    """Each once, though it be tied."""
    seen: set[int] = set()
    for module, path in paths.items():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            if id(weight) not in seen:
                seen.add(id(weight))
                yield f"{path}.{name}" if path else name, weight


def computes(module: nn.Module) -> bool:
    """Whether it has no children, or parameters of its own beside them: experts that hold all their weights."""
    return next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """What shapes do not tell of a module's operator, by the operator's names."""
    if not isinstance(module, nn.modules.conv._ConvNd) or module.padding_mode != "zeros":
        return {}
    of_transposed = {"output_padding": module.output_padding} if module.transposed else {}
    return {
        "stride": module.stride,
        "padding": module.padding,
        "dilation": module.dilation,
        "groups": module.groups,
        **of_transposed,
    }


def class_name(module: nn.Module) -> str:
    """fully_shard makes a class of its own of each: FSDPLinear(FSDPModule, Linear)."""
    made = type(module)
    if len(made.__bases__) == 2 and made.__bases__[0].__name__ == "FSDPModule":
        made = made.__bases__[1]
    return made.__name__


def in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


@functools.cache
def arguments_of(forward: Callable[..., Any]) -> tuple[str, ...]:
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def given_to(module: nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    names = arguments_of(type(module).forward)
    names = (*names, *(str(i) for i in range(len(names), len(args))))
    return [*zip(names, args, strict=False), *kwargs.items()]


def tensors_in(name: str, value: Any, depth: int = 2) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor, or those in tuples, lists and mappings, with dotted names."""
    if torch.is_tensor(value):
        yield name, value
    elif depth and isinstance(value, (tuple, list, Mapping)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from tensors_in(f"{name}.{key}" if name else str(key), item, depth - 1)
