"""What one level of a program makes: its equations in their order, and the values that are handed out of it.

A loop's body or the body of shard_map is a level of its own, whose values are there once for each iteration or device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


class Iterations(NamedTuple):
    """A leading dimension of a handed out value: the iterations of a loop."""

    length: int
    is_reversed: bool
    is_micro_batches: bool
    """Each of them makes gradients of its own."""


class Devices(NamedTuple):
    """A leading dimension of a handed out value: the devices over these axes, each with its own."""

    axes: tuple[str, ...]


Axis = Iterations | Devices
EACH = -(1 << 30)
"""In the place of a record: the number of an iteration."""


@dataclass(frozen=True)
class Draft:
    """A record, of every iteration."""

    at: tuple[int, ...]
    """Its place in the order of execution; it may have EACH in it."""
    call: int
    """What is recorded of one call has one number."""
    module: str
    op: str
    phase: str
    slot: str
    arg: str
    value: int
    """Of those handed out."""
    within: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    taken: tuple[tuple[int, int], ...] = ()
    """It was made only if these values, of those handed out, have these numbers: branches of conditions."""


class Place(NamedTuple):
    """Where an equation stands in the model."""

    scopes: tuple[str, ...]
    is_backward: bool
    is_repeated: bool
    """Activation checkpointing computes it once more."""
    is_differentiated: bool
    """It is in what derivatives are taken of, or in a derivative."""

    @staticmethod
    def of(elements: Sequence[Any]) -> Place:
        """elements: of a name stack, jax.named_scope's and those of transformations."""
        transforms = {e.name for e in elements if type(e).__name__ == "Transform"}
        words = [word for e in elements if type(e).__name__ == "Scope" for word in e.name.split("/")]
        scopes = tuple(w for w in words if w and w not in _OF_CHECKPOINT and "->" not in w)  # jnp.einsum's own
        is_repeated = "rematted_computation" in words
        is_backward = "transpose" in transforms and not is_repeated
        return Place(scopes, is_backward, is_repeated, bool(transforms & {"jvp", "transpose"}))


_OF_CHECKPOINT = {"rematted_computation", "checkpoint", "remat"}


@dataclass
class Event:
    """An equation that was run."""

    place: Place
    primitive: str
    inputs: list[Any]
    outputs: list[Any]


@dataclass
class Frame:
    """One level."""

    elements: tuple[Any, ...] = ()
    """Of the name stack around it."""
    weights: set[int] = field(default_factory=set)
    """By id: values that are parameters, or copies of them."""
    gradients: set[int] = field(default_factory=set)
    """By id: values that backward equations have made."""
    events: list[Event] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    """Values that leave it, in their order."""
    needed: set[int] = field(default_factory=set)
    """By id: those of them that something needs whatever the level around does with them."""
    has_gradients: bool = False
    """From here on: what follows without being differentiated is the optimizer's."""
    if_used: dict[int, list[Draft]] = field(default_factory=dict)
    """By the id of a value: drafts of a level within, that stand only if something of this level uses the value."""
    out: list[Any] = field(default_factory=list)
    """Values that are handed out."""
    axes: list[tuple[Axis, ...]] = field(default_factory=list)
    """Of each of them: its leading dimensions."""
    kept: list[Any] = field(default_factory=list)
    """An id is one value's as long as the value is there."""
    same: dict[int, int] = field(default_factory=dict)
    """By id: what is another value under constraints."""
    _index: dict[tuple[int, tuple[Axis, ...]], int] = field(default_factory=dict)

    def alias(self, value: Any, other: Any) -> None:
        """other: the same numbers."""
        if other is value:
            return
        self.same[id(other)] = self.same.get(id(value), id(value))
        self.kept.append(other)
        for ids in (self.weights, self.gradients):
            if id(value) in ids:
                ids.add(id(other))

    def hand_out(self, value: Any, axes: tuple[Axis, ...] = ()) -> int:
        """Each value once. Returns its number."""
        key = id(value), axes  # what a loop only hands on is the same value within another one
        if key not in self._index:
            self._index[key] = len(self.out)
            self.out.append(value)
            self.axes.append(axes)
        return self._index[key]

    def take(
        self, inner: Frame, values: Sequence[Any], at: int, axis: Axis | None, branch: tuple[int, ...] = ()
    ) -> dict[int, Draft]:
        """Takes over what a level within has handed out.

        Args:
            inner: that level.
            values: the values, as they are in this level.
            at: the place of the equation that has the level.
            axis: the leading dimension that the values have gained.
            branch: the level is run only if this value, of those handed out, has this number.

        Returns:
            Drafts of this level by the ids of those of the level within.
        """
        gained = () if axis is None else (axis,)
        numbers = [self.hand_out(v, gained + a) for v, a in zip(values, inner.axes, strict=True)]
        place = (at, 1, *((EACH,) if isinstance(axis, Iterations) else ()), *branch[1:])

        def moved(d: Draft) -> Draft:
            taken = tuple((numbers[value], number) for value, number in d.taken)
            if branch:
                taken = ((branch[0], branch[1]), *taken)
            return replace(d, at=(*place, *d.at), value=numbers[d.value], taken=taken)

        self.drafts.extend(moved(d) for d in inner.drafts)
        return {id(d): moved(d) for drafts in inner.if_used.values() for d in drafts}
