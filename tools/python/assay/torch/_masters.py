"""Which tensors of an optimizer are copies of which weights, in more bits."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable

import torch

from ._megatron import master_of


class Masters:
    """Keeps none of them alive. Each is looked at once, before its first step: later only the weight is rounded."""

    def __init__(self) -> None:
        self._weights: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor] | None]] = {}

    def weight_of(self, master: torch.Tensor) -> torch.Tensor | None:
        seen, weight = self._weights.get(id(master), (None, None))
        return weight() if seen is not None and weight is not None and seen() is master else None

    def see(self, masters: Iterable[torch.Tensor], weights: Iterable[torch.Tensor]) -> None:
        """By what Megatron-core says, else by their values; of weights with the same values in the order of both."""
        new = [m for m in masters if self._seen(m) is not m]
        if not new:
            return
        said = {id(m): w for w in weights for m in [master_of(w)] if m is not None}
        taken = {id(w) for w in said.values()} | {id(w()) for _, w in self._weights.values() if w is not None}
        free: dict[torch.Size, list[torch.Tensor]] = defaultdict(list)
        for w in weights:
            if id(w) not in taken and w.numel() > 0 and type(w.data) is torch.Tensor:
                free[w.shape].append(w)
        for m in new:
            weight = said.get(id(m))
            if weight is None:
                alike = free[m.shape]
                place = next((i for i, w in enumerate(alike) if _rounds_to(m, w)), None)
                weight = None if place is None else alike.pop(place)
            self._weights[id(m)] = weakref.ref(m), None if weight is None else weakref.ref(weight)

    def _seen(self, master: torch.Tensor) -> torch.Tensor | None:
        seen, _ = self._weights.get(id(master), (None, None))
        return None if seen is None else seen()


def _rounds_to(master: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        type(master.data) is torch.Tensor
        and master.is_floating_point()
        and master.device == weight.device
        and torch.equal(master.detach().to(weight.dtype), weight.detach())
    )
