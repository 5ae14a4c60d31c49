"""Scopes as modules: what enters and leaves one while it is open are its inputs and outputs.

A scope of jax.named_scope, which flax opens for each of its modules, is a module under its path: "layers_0/attn/q" is
"layers.0.attn.q", as PyTorch calls the children of a list.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from ._frames import Draft, Event, Frame, Place

_NUMBERED = re.compile(r"^(.*[^_\d])_(\d+)$")


def module_of(path: Sequence[str]) -> str:
    """The module's name."""
    return ".".join(_NUMBERED.sub(r"\1.\2", word) for word in path)


class Named(NamedTuple):
    arg: str
    shape: tuple[int, ...]
    is_sure: bool
    """It is a result whatever is done with it outside of its level."""


class Signature(NamedTuple):
    """What a module was given and returned."""

    inputs: list[Named]
    outputs: list[Named]


@dataclass
class _Run:
    """A module from where its scope is opened to where it is closed: the events in it."""

    path: tuple[str, ...]
    events: list[int] = field(default_factory=list)
    is_container: bool = False


def note_modules(frame: Frame, calls: Iterator[int], signatures: dict[str, Signature]) -> None:
    """Adds to the drafts of a level what its modules are given and return, and their gradients.

    Args:
        frame: the level, with all of its events.
        calls: numbers for calls.
        signatures: of the modules of levels before it; takes those of this one.
    """
    _Notes(frame, calls, signatures).note()


class _Notes:
    def __init__(self, frame: Frame, calls: Iterator[int], signatures: dict[str, Signature]) -> None:
        self.frame, self.calls, self.signatures = frame, calls, signatures
        self.base = len(Place.of(frame.elements).scopes)
        self.made_at: dict[int, int] = {}
        self.used_at: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(frame.events):
            for x in event.inputs:
                self.used_at[self.key(x)].append(at)
            for y in event.outputs:
                self.made_at.setdefault(id(y), at)
        self.results = {self.key(x) for x in frame.results}
        self.needed = {frame.same.get(i, i) for i in frame.needed}
        self.sums: set[int] = set()
        """Events that add up gradients."""
        self.forward, self.backward = self._places()

    def key(self, x: Any) -> int:
        return self.frame.same.get(id(x), id(x))

    def _places(self) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]]:
        """The scopes of forward events and of backward ones."""
        forward: dict[int, tuple[str, ...]] = {}
        backward: dict[int, tuple[str, ...]] = {}
        for at, event in enumerate(self.frame.events):
            place = event.place
            if place.is_backward and event.primitive == "add_any":
                self.sums.add(at)
                backward[at] = self._of_sum(event, backward)
            elif place.is_backward:
                backward[at] = place.scopes
            elif not place.is_repeated and (place.is_differentiated or not backward):
                forward[at] = place.scopes
        return forward, backward

    def _of_sum(self, event: Event, backward: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
        """JAX adds up a value's gradients where it meets the second; the sum is made where all addends are known."""
        makers = [self.made_at.get(self.key(x)) for x in event.inputs]
        around = event.place.scopes[: self.base]
        paths = [around if m is None else backward.get(m, around) for m in makers]
        shared = itertools.takewhile(lambda words: len(set(words)) == 1, zip(*paths, strict=False))
        return tuple(words[0] for words in shared)

    def note(self) -> None:
        self._settle()
        for run in self._runs(self.forward):
            self._note_forward(run)
        for run in self._runs(self.backward):
            self._note_backward(run)

    def _settle(self) -> None:
        """Drafts of levels within that wait for a use of theirs."""
        for value, drafts in [*self.frame.if_used.items()]:
            if value in self.needed or any(at in self.forward for at in self.used_at[value]):
                self.frame.drafts.extend(drafts)
                del self.frame.if_used[value]

    def _runs(self, places: dict[int, tuple[str, ...]]) -> list[_Run]:
        found: list[_Run] = []
        opened: list[_Run] = []
        for at, path in places.items():
            if at in self.sums:  # it ends no scope
                for run in opened:
                    if path[: len(run.path)] == run.path:
                        run.events.append(at)
                continue
            while opened and path[: len(opened[-1].path)] != opened[-1].path:
                opened.pop()
            depth = len(opened[-1].path) if opened else self.base
            for n in range(depth + 1, len(path) + 1):
                if opened:
                    opened[-1].is_container = True
                opened.append(_Run(path[:n]))
                found.append(opened[-1])
            for run in opened:
                run.events.append(at)
        return found

    def _enter_and_leave(self, run: _Run, places: dict[int, tuple[str, ...]]) -> tuple[list[Any], list[Any]]:
        """Values from outside that are used, and those made here that are used outside or leave the level."""
        own = set(run.events)
        events = [self.frame.events[at] for at in run.events]
        entering: dict[int, Any] = {}
        leaving: dict[int, Any] = {}
        for event in events:
            for x in event.inputs:
                if isinstance(x, jax.core.Tracer) and self.made_at.get(self.key(x)) not in own:
                    entering.setdefault(self.key(x), x)
            for y in event.outputs:
                is_used = any(at not in own and at in places for at in self.used_at[id(y)])
                if is_used or id(y) in self.results:
                    leaving.setdefault(id(y), y)
        # What a router chooses is made before its weights or behind them, as it normalizes them: numbers come first.
        made = sorted(leaving.values(), key=lambda y: not jax.numpy.issubdtype(y.dtype, jax.numpy.floating))
        return list(entering.values()), made

    def _note_forward(self, run: _Run) -> None:
        entering, leaving = self._enter_and_leave(run, self.forward)
        given = [x for x in entering if id(x) not in self.frame.weights]
        sure = [y for y in leaving if self._is_sure(y)]
        more = [y for y in leaving if not self._is_sure(y)]
        made = [*_named(sure, "y"), *_named(more, "y" if not sure else "", len(sure))]
        inputs = _named(given, "x")
        path, number = module_of(run.path), next(self.calls)
        self.signatures[path] = Signature(
            [Named(arg, x.shape, True) for arg, x in inputs],
            [Named(arg, y.shape, self._is_sure(y)) for arg, y in made],
        )
        for slot, tensors, at in (("input", inputs, (run.events[0], 0)), ("output", made, (run.events[-1], 2))):
            # Scopes are opened from without and closed from within.
            place = (*at, len(run.path) if slot == "input" else -len(run.path))
            for arg, x in tensors:
                draft = Draft(place, number, path, "", "forward", slot, arg, self.frame.hand_out(x), run.is_container)
                if slot == "input" or self._is_sure(x):
                    self.frame.drafts.append(draft)
                else:
                    self.frame.if_used.setdefault(self._as_result(x), []).append(draft)

    def _is_sure(self, y: Any) -> bool:
        own_use = any(at in self.forward for at in self.used_at[id(y)])
        return id(y) in self.needed or (own_use and id(y) not in self.results) or self._is_used_outside(y)

    def _is_used_outside(self, y: Any) -> bool:
        path = self.forward[self.made_at[id(y)]]
        return any(at in self.forward and self.forward[at] != path for at in self.used_at[id(y)])

    def _as_result(self, y: Any) -> int:
        """The id with which it leaves the level."""
        return next((id(x) for x in self.frame.results if self.key(x) == id(y)), id(y))

    def _note_backward(self, run: _Run) -> None:
        path = module_of(run.path)
        signature = self.signatures.get(path)
        if signature is None:
            return
        entering, leaving = self._enter_and_leave(run, dict.fromkeys(range(len(self.frame.events)), ()))
        entering = [x for x in entering if id(x) in self.frame.gradients]
        number = next(self.calls)
        for slot, tensors, names, at in (
            ("grad_output", entering, signature.outputs, (run.events[0], 0, len(run.path))),
            ("grad_input", leaving, signature.inputs, (run.events[-1], 2, -len(run.path))),
        ):
            for arg, x in _matched(tensors, names):
                value = self.frame.hand_out(x)
                self.frame.drafts.append(Draft(at, number, path, "", "backward", slot, arg, value, run.is_container))


def _named(values: Sequence[Any], alone: str, first: int = 0) -> list[tuple[str, Any]]:
    if len(values) == 1 and alone:
        return [(alone, values[0])]
    return [(str(first + i), x) for i, x in enumerate(values)]


def _matched(gradients: Sequence[Any], names: Sequence[Named]) -> Iterator[tuple[str, Any]]:
    """Each with the name of what it is the gradient of, where its shape leaves no choice."""
    for x in gradients:
        alike = [g for g in gradients if g.shape == x.shape]
        of_shape = [n for n in names if n.shape == x.shape]
        sure = [n for n in of_shape if n.is_sure] or of_shape
        if len(alike) == 1 and len(sure) == 1:
            yield sure[0].arg, x
