"""What a call is, and the entries by the names that PyTorch has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor


@dataclass
class Call:
    """An operator with its inputs by name; `outputs` names torch's results in their order, None: not compared."""

    op: str
    inputs: dict[str, Tensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str | None] = ("y",)


class NotACall(Exception):
    """What torch was asked has no counterpart; the reason."""


Convert = Callable[..., Call]
entries: dict[str, Convert] = {}
"""By OpInfo.full_name."""


def of(*names: str) -> Callable[[Convert], Convert]:
    def add(convert: Convert) -> Convert:
        entries.update(dict.fromkeys(names, convert))
        return convert

    return add


def tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, complex):
        raise NotACall("complex numbers")
    return torch.tensor(value, dtype=torch.float64)


def given(**inputs: Tensor | None) -> dict[str, Tensor]:
    return {name: t for name, t in inputs.items() if t is not None}


def listed(dims: Any, rank: int) -> list[int] | None:
    """torch's dim of a reduction as assay's dims."""
    if dims is None or (isinstance(dims, Sequence) and len(dims) == 0):
        return None
    return [dims] if isinstance(dims, int) else list(dims)


def leaves(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for v in value:
            yield from leaves(v)
