"""In which order a kernel adds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _core
from ._arrays import tensor, to_numpy


@dataclass(frozen=True)
class Order:
    """The order in which a kernel adds up so many terms, and how it rounds."""

    terms: int
    dtype: str
    """Of the terms, or of the factors of each."""
    result: str
    shape: str
    """The order in words: "8 lanes (term i in lane i mod 8), each one after the other, joined pairwise"."""
    depth: int
    """The most additions that a term goes through."""
    accumulator: str
    """What `judge` and ``--accumulator`` take: "float32,bitwise,fma,order=0..255"."""
    accumulator_bits: int | None
    """Significant bits that a partial sum keeps; fewer than three terms tell none."""
    products: str
    """How they enter: "none", "exact", "rounded", "fused" (FMA) or "unknown"."""
    bitwise: bool
    """Sums of random terms had every bit of IEEE 754 additions in this order."""
    note: str
    """Why they had not."""
    questions: int
    """How often the kernel was asked."""
    additions: tuple[tuple[int, ...], ...]
    """Of each addition the operands: below `terms` a term, else ``additions[operand - terms]``, which comes before.
    More than two are added at once, as matrix units do."""
    _json: str
    _text: str

    @property
    def tree(self) -> Any:
        """The additions as nested tuples of terms."""
        made: list[Any] = list(range(self.terms))
        for operands in self.additions:
            made.append(tuple(made[operand] for operand in operands))
        return made[-1]

    def to_dict(self) -> dict[str, Any]:
        """What ``assay order --json`` prints."""
        return dict(json.loads(self._json))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes a .json file for ``assay check --accumulator``."""
        if not os.fspath(file).endswith(".json"):
            raise _core.Error(f"{os.fspath(file)}: expected a name that ends with .json")
        Path(file).write_text(self._json + "\n")

    def __str__(self) -> str:
        """What ``assay order`` prints."""
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return f"<assay.Order of {self.terms} terms: {self.shape}>"


def stated(accumulator: str | Order) -> str:
    """An accumulator as the core reads it."""
    return accumulator.accumulator if isinstance(accumulator, Order) else accumulator


def reveal_order(
    fn: Callable[..., Any],
    n: int,
    kind: str = "sum",
    *,
    dtype: Any = "float32",
    shape: tuple[int, int] = (1, 1),
) -> Order:
    """Finds the order in which a function adds, by asking it for sums of masks and units (FPRev, arXiv:2411.00442).

    Args:
        fn: of ``x`` [n] for a sum, of ``x`` and ``y`` [n] for a dot, of ``a`` [M, n] and ``b`` [n, N] for a matmul. Its
            result may be an array of any library, on any device.
        n: how many terms.
        kind: ``"sum"``, ``"dot"`` or ``"matmul"``.
        dtype: of what it is given: a torch dtype for tensors of torch, else arrays of numpy.
        shape: M and N of a matmul; all its elements have to be added up in one order.

    Raises:
        Error: where the answers are those of no order: not a sum of all terms, not repeatable, no tree.

    >>> assay.reveal_order(lambda x: x[0] + (x[1] + x[2]), 3).tree
    ((1, 2), 0)
    """
    name, given = _given(dtype)
    found = _core.reveal_order(kind, n, name, *shape, lambda inputs: tensor(fn(*(given(t) for t in inputs))))
    text, lines, accumulator, additions = found
    fields = json.loads(text)
    del fields["order"]
    fields["accumulator"] = accumulator
    return Order(**fields, additions=tuple(map(tuple, additions)), _json=text, _text=lines)


def _given(dtype: Any) -> tuple[str, Callable[[_core.Tensor], Any]]:
    """The dtype's name, and what makes arrays of it: the kernel may write to them."""
    text = str(dtype) if not isinstance(dtype, type) else dtype.__name__
    if text.startswith("torch."):
        torch = sys.modules["torch"]
        return text.removeprefix("torch."), lambda t: torch.from_dlpack(t).clone()

    def numpy_array(t: _core.Tensor) -> Any:
        made = to_numpy(t).copy()
        if made.dtype.name != t.dtype:
            raise TypeError(f"numpy has no {t.dtype}; install ml_dtypes, or give torch.{t.dtype}")
        return made

    return text, numpy_array
