"""Parameters, gradients and optimizer states under the names of their pytree paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax

from ._modules import module_of

COLLECTIONS = ("params",)
"""Flax's word around all parameters."""
STATES = {"mu": "exp_avg", "nu": "exp_avg_sq", "trace": "momentum_buffer"}
"""optax's words for what PyTorch calls so."""


def words_of(path: Sequence[Any]) -> tuple[str, ...]:
    """Of a pytree path: keys, indices and attributes."""
    words = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path]
    # Names that hold a whole path: {"layers.0.q.weight": ..}
    return tuple(part for word in words for part in re.split(r"[./]", word) if part)


def weights_in(tree: Any) -> list[tuple[str, str, Any]]:
    """Module, argument and value of each parameter, or of what has the tree of the parameters."""
    found = []
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        words = words_of(path)
        if words[:1] == COLLECTIONS and len(words) > 1:
            words = words[1:]
        found.append((module_of(words[:-1]), words[-1] if words else "weight", value))
    return found


def states_in(tree: Any, weights: Any) -> list[tuple[str, str, Any]]:
    """What an optimizer's state holds for each parameter: the leaves of the subtrees that look like the parameters'."""
    of_weights = {words_of(path): x for path, x in jax.tree_util.tree_leaves_with_path(weights)}
    found = []
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        words = words_of(path)
        for n in range(len(words)):
            weight = of_weights.get(words[n:])
            if weight is not None and getattr(value, "shape", None) == weight.shape and value.ndim > 0 and n > 0:
                names = [w for w in words[:n] if not w.isdigit()]
                state = STATES.get(names[-1], names[-1]) if names else words[n - 1]
                own = words[n:]
                if own[:1] == COLLECTIONS and len(own) > 1:
                    own = own[1:]
                found.append((module_of(own[:-1]), f"{own[-1]}.{state}", value))
                break
    return found


def optimizer_of(states: Sequence[tuple[str, str, Any]]) -> str:
    """The class of PyTorch that has such states."""
    kinds = {arg.rpartition(".")[2] for _, arg, _ in states}
    if {"exp_avg", "exp_avg_sq"} <= kinds:
        return "AdamW"
    return "SGD" if "momentum_buffer" in kinds else ""
