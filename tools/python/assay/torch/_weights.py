"""Parameters, their gradients and the states of their optimizers, around each step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import _deepspeed as deepspeed
from ._guards import harmless
from ._masters import Masters
from ._megatron import gradient_of
from ._progress import Progress
from ._records import Place, Records
from ._size import Sizes


class Weights:
    """Of all models that are recorded."""

    def __init__(self, progress: Progress, records: Records) -> None:
        self.remarks = records.remarks
        self._progress, self._records, self._selection = progress, records, progress.selection
        self._names: dict[int, tuple[str, str]] = {}  # module, argument
        self._all: list[torch.Tensor] = []
        self._masters = Masters()
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._copied: tuple[list[torch.Tensor], str] = ([], "")  # what takes its master's values behind the step

    def hooks(self) -> list[Any]:
        """On the optimizers of torch, all of them."""
        return [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def hook_on(self, engine: Any) -> deepspeed.Boundary:
        """engine: a class of DeepSpeed, whose optimizers step flat buffers."""
        return deepspeed.Boundary(engine, self.before_clip, self._after_boundary)

    def add(self, weight: torch.Tensor, module: str, arg: str) -> None:
        self._names[id(weight)] = module, arg
        self._all.append(weight)

    def path_of(self, weight: torch.Tensor) -> str:
        return ".".join(self._names.get(id(weight), ())).lstrip(".")

    @property
    def modules(self) -> set[str]:
        """That have some."""
        return {module for module, _ in self._names.values()}

    @property
    def paths(self) -> set[str]:
        return {f"{module}.{arg}".lstrip(".") for module, arg in self._names.values()}

    @property
    def optimizers(self) -> list[Optimizer]:
        """Of the whole program."""
        found = [o for o in (seen() for seen in self._optimizers) if o is not None]
        if not found:  # to look for them takes as long as a small step
            found = [o for o in gc.get_referrers(*_classes(Optimizer)) if issubclass(type(o), Optimizer)]
            self._optimizers = [weakref.ref(o) for o in found]
        return found

    def sizes(self) -> Sizes:
        """What a step records of them behind the first call of a model: gradients, stepped weights, and the states that
        its optimizers will have by their settings.
        """
        sizes = Sizes()
        for weight in self._all:
            part = deepspeed.part_of(weight)
            if weight.requires_grad:
                for kind, phase in (("gradients", "backward"), ("parameters", "optimizer")):
                    self._add(sizes, kind, phase, weight if part is None else part.values)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for own in group["params"]:
                    is_copy = id(own) not in self._names
                    for _ in range(_states_of(group) + is_copy):
                        self._add(sizes, "states", "optimizer", own)
        return sizes

    def _add(self, sizes: Sizes, kind: str, phase: str, whole: torch.Tensor) -> None:
        own = getattr(whole, "_local_tensor", whole)
        if self._selection.takes(kind, phase) and self._selection.takes_dtype(str(own.dtype).removeprefix("torch.")):
            sizes.add(kind, own.numel() * own.element_size())

    # -- around a step --------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        if self._selection.takes("parameters", "forward"):
            self._parameters("forward", self._all)

    @harmless
    def before_clip(self) -> None:
        """Gradients are recorded as backward has made them."""
        if not self._progress.is_closed and self._progress.has_begun and not self._progress.has_gradients:
            self._progress.has_gradients = True
            self._gradients(self._all)

    @harmless
    def take_copied(self) -> None:
        """What masters have been copied to since their step."""
        weights, op = self._copied
        if weights:
            self._copied = ([], "")
            self._parameters("optimizer", weights, op)

    @harmless
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._progress.is_closed or not self._progress.has_begun or self._has_nothing_of(optimizer):
            return
        stepped = self._stepped_by(optimizer)  # also where it only looks at masters before their first step
        if not self._progress.has_gradients:
            self._gradients([weight for weight, _ in stepped])

    @harmless
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._progress.is_closed or not self._progress.has_begun:
            return
        is_unrecorded = self._has_nothing_of(optimizer)
        stepped = [] if is_unrecorded else self._stepped_by(optimizer)
        self._progress.has_stepped |= is_unrecorded or bool(stepped)
        if not stepped or not self._progress.takes_now():
            return
        op = type(optimizer).__name__
        if self._selection.takes("parameters", "optimizer"):
            self._parameters("optimizer", [weight for weight, own in stepped if own is weight], op)
            self._copied = ([weight for weight, own in stepped if own is not weight], op)
        if self._selection.takes("states", "optimizer"):
            for weight, own in stepped:
                states = optimizer.state.get(own, {})
                if own.dtype != weight.dtype:  # which takes the master's values later
                    states = {"master": own, **states}
                for state, t in states.items():
                    # The moments of one number are single numbers, and so is the count of the steps of any weight.
                    if torch.is_tensor(t) and (t.dim() > 0 or (own.dim() == 0 and state != "step")):
                        self._record(weight, "optimizer", "state", t, op, of=f".{state}")

    @harmless
    def _after_boundary(self, engine: nn.Module) -> None:
        if self._progress.is_closed or not self._progress.has_begun or self._progress.has_stepped:
            return
        self._progress.has_stepped = True
        if not self._progress.takes_now():
            return
        op = deepspeed.optimizer_in(engine)
        if self._selection.takes("parameters", "optimizer"):
            self._parameters("optimizer", self._all, op)
        for weight in self._all if self._selection.takes("states", "optimizer") else ():
            if deepspeed.is_cut(weight):
                for state, part in deepspeed.states_of(weight).items():
                    self._record(weight, "optimizer", "state", part, op, of=f".{state}")

    def _has_nothing_of(self, optimizer: Optimizer) -> bool:
        """Whether this step is not recorded, and all that it steps are weights of the models."""
        return not self._progress.takes_now() and all(
            id(w) in self._names for group in optimizer.param_groups for w in group["params"]
        )

    def _stepped_by(self, optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The weights of the models, each with what the optimizer has for it: itself, or a master copy."""
        own = [w for group in optimizer.param_groups for w in group["params"]]
        others = [w for w in own if id(w) not in self._names]
        if others:
            with torch.no_grad():
                self._masters.see(others, self._all)
        stepped = [(w if id(w) in self._names else self._masters.weight_of(w), w) for w in own]
        return [(weight, w) for weight, w in stepped if weight is not None]

    # -- what is recorded of them ---------------------------------------------------------------------------------

    def _parameters(self, phase: str, weights: Sequence[torch.Tensor], op: str = "") -> None:
        if self._progress.takes_now():
            for weight in weights:
                part = deepspeed.part_of(weight)
                self._record(weight, phase, "param", weight if part is None else part, op)

    def _gradients(self, weights: Sequence[torch.Tensor]) -> None:
        if self._progress.takes_now() and self._selection.takes("gradients", "backward"):
            for weight in weights:
                gradient = deepspeed.gradient_of(weight) if deepspeed.is_cut(weight) else gradient_of(weight)
                if gradient is not None:
                    self._record(weight, "backward", "grad", gradient)

    def _record(
        self,
        weight: torch.Tensor,
        phase: str,
        slot: str,
        values: torch.Tensor | deepspeed.Fragment,
        op: str = "",
        of: str = "",
    ) -> None:
        module, arg = self._names[id(weight)]
        place = Place(self._progress.step, -1, module, op)
        self._records.record(place, phase, slot, arg + of, values, of_weight=weight)


def _classes(base: type[Any]) -> set[type[Any]]:
    found = {base}
    for made in base.__subclasses__():
        found |= _classes(made)
    return found


def _states_of(group: dict[str, Any]) -> int:
    """How many tensors of the size of a weight it will have: two moments, one, or none."""
    return 2 + bool(group.get("amsgrad")) if "betas" in group else int(bool(group.get("momentum")))
