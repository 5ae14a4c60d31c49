"""Operators, attributes and defaults as the C++ library declares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Attribute:
    """A setting of an operator."""

    name: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class Argument:
    """A tensor that an operator takes or makes. Equal letters of shapes are equal extents; ``N*`` is any
    number of extents."""

    name: str
    shape: str
    role: str
    """input, param, index, grad_output (given) or output, output_index, grad_input (made)"""
    optional: bool

    @property
    def is_given(self) -> bool:
        return self.role in ("input", "param", "index", "grad_output")


@dataclass(frozen=True)
class Operator:
    """The declaration of an operator, as OPERATORS.md has it."""

    name: str
    math: str
    source: str
    has_backward: bool
    aliases: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    args: tuple[Argument, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.args if not a.is_given)


def operators() -> list[str]:
    """The names of all operators.

    >>> "rms_norm" in assay.operators()
    True
    """
    return _core.operator_names()


def operator(name: str) -> Operator:
    """The declaration of an operator, by its name or an alias.

    >>> assay.operator("torch.nn.functional.softmax").attributes[0].default
    -1
    """
    found = _core.describe(name)
    return Operator(
        **{
            **found,
            "aliases": tuple(found["aliases"]),
            "attributes": tuple(Attribute(**a) for a in found["attributes"]),
            "args": tuple(Argument(**a) for a in found["args"]),
        }
    )
