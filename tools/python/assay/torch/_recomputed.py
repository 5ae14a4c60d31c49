"""Which call of the forward pass activation checkpointing repeats in backward."""

from __future__ import annotations

from typing import Any

import torch

from ._records import Place


class Recomputed:
    """Backward of one micro-batch may come after the forward pass of the next ones, as in a pipeline.

    What a checkpoint was given is alive until it repeats its calls, and is given to the first of them again: no other
    tensor has had its memory since. The calls behind that one are of its micro-batch: what they were given is dead, and
    its memory may have been that of any call since.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """At the end of a step."""
        self._by_input: dict[tuple[str, int], Place] = {}
        self._calls: dict[tuple[str, int], list[Place]] = {}  # by module and micro-batch
        self._micro_batch: int | None = None
        self._task = -1  # of autograd, for which that is known
        self._segment: Any = None  # whose calls are repeated

    def note(self, path: str, place: Place, given: list[tuple[str, Any]]) -> None:
        """A call of the forward pass."""
        first = _first_memory(given)
        if first is not None:
            self._by_input[path, first] = place
        self._calls.setdefault((path, place.micro_batch), []).append(place)

    def place_of(self, path: str, given: list[tuple[str, Any]], micro_batch: int) -> Place | None:
        """Of a call in backward; None: it was not recorded.

        micro_batch: the last one.
        """
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task, self._micro_batch = task, None
        current = segment()
        first = None if current == self._segment else _first_memory(given)
        self._segment = current
        known = None if first is None else self._by_input.get((path, first))
        if known is not None:
            self._micro_batch = known.micro_batch
        own = micro_batch if self._micro_batch is None else self._micro_batch
        calls = self._calls.get((path, own))
        if not calls:
            return None
        # Of a module that is called several times the last call is repeated first.
        place = known if known in calls else calls[-1]
        calls.remove(place)
        return place


def segment() -> Any:
    """Equal for calls that are repeated together: autograd needs them for one node."""
    node = torch._C._current_autograd_node()
    return torch._C._current_graph_task_id(), None if node is None else node._sequence_nr()


def _first_memory(given: list[tuple[str, Any]]) -> int | None:
    tensors = (x for _, x in given if type(x) in (torch.Tensor, torch.nn.Parameter))
    first = next(tensors, None)
    return None if first is None else first.data_ptr()
