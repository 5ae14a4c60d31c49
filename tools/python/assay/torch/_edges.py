"""The gradient that a call hands back for an input, seen without a change of the graph.

Autograd adds up what all users of a tensor hand back. What one call hands back comes from the nodes that the call has
made, over their edges to the node of the input: hooks of these nodes see it. A view in between, as full backward hooks
make one, would change the order in which gradients are added, and so the last bits of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

Then = Callable[[str, torch.Tensor], None]


class Edges:
    """Of the inputs of a call, taken before it: an operation in place moves a tensor to another node."""

    def __init__(self, inputs: Iterable[tuple[str, Any]]) -> None:
        self._first = torch._C._autograd._get_sequence_nr()
        self._args: dict[tuple[Any, int], str] = {}
        for arg, x in inputs:
            if torch.is_tensor(x) and x.requires_grad:
                edge = get_gradient_edge(x)
                self._args.setdefault((edge.node, edge.output_nr), arg)

    def watch(self, outputs: Iterable[torch.Tensor], then: Then) -> None:
        """Calls `then` with each input's name and gradient, each time that all of it has been handed back."""
        if not self._args:
            return
        slots: dict[Any, list[tuple[int, str]]] = {}
        for node, place, arg in self._hits(outputs):
            slots.setdefault(node, []).append((place, arg))
        state = _Sums([arg for places in slots.values() for _, arg in places], then)
        for node, places in slots.items():
            node.register_hook(_Hook(places, state))

    def _hits(self, outputs: Iterable[torch.Tensor]) -> Iterable[tuple[Any, int, str]]:
        """Edges of nodes that the call has made to those of its inputs."""
        nodes = [y.grad_fn for y in outputs if y.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            if not self._is_own(node):
                continue
            for place, (behind, number) in enumerate(node.next_functions):
                arg = self._args.get((behind, number))
                if arg is not None:
                    yield node, place, arg
                elif behind is not None and behind not in seen:
                    seen.add(behind)
                    nodes.append(behind)

    def _is_own(self, node: Any) -> bool:
        # Those that add gradients up have no place in the order: they run as soon as they can.
        return bool(node.name() != "torch::autograd::AccumulateGrad" and node._sequence_nr() >= self._first)


class _Sums:
    def __init__(self, args: list[str], then: Then) -> None:
        self._expected = {arg: args.count(arg) for arg in args}
        self._then = then
        self._left = dict(self._expected)
        self._sums: dict[str, torch.Tensor] = {}

    def take(self, arg: str, gradient: torch.Tensor | None) -> None:
        if gradient is not None:
            with torch.no_grad():
                self._sums[arg] = self._sums[arg] + gradient if arg in self._sums else gradient
        self._left[arg] -= 1
        if self._left[arg] == 0:
            self._left[arg] = self._expected[arg]
            total = self._sums.pop(arg, None)
            if total is not None:
                self._then(arg, total)


class _Hook:
    def __init__(self, places: list[tuple[int, str]], sums: _Sums) -> None:
        self._places, self._sums = places, sums

    def __call__(self, gradients: Any, _: Any) -> None:
        for place, arg in self._places:
            self._sums.take(arg, gradients[place])
