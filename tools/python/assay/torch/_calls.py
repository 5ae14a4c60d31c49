"""What modules are given and return when they are called, losses, and the gradients of these."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ._edges import Edges
from ._functions import Functions, is_known_class
from ._grid import Layout
from ._guards import harmless
from ._modules import attributes_of, class_name, computes, given_to, in_backward, tensors_in
from ._progress import Progress
from ._recomputed import Recomputed, segment
from ._records import Place, Records
from ._values import copy_of, plain


@dataclass
class Root:
    """A model, or a stage of one, that the program calls."""

    module: nn.Module
    names: dict[nn.Module, str]
    own: set[str]
    """The paths of the modules that the program calls itself: a number that they return is a loss."""
    micro_batch: int = -1
    last: Place | None = None
    calls: Counter[str] = field(default_factory=Counter)


@dataclass
class Caller:
    """A module, or a function between modules, that is being called."""

    root: Root
    path: str
    is_whole: bool
    """It is judged as one operator."""
    place: Place
    edges: Edges | None
    is_again: bool = False
    """In backward: activation checkpointing repeats it."""
    layouts: dict[str, Layout | None] = field(default_factory=dict)

    def watch(self, outputs: list[torch.Tensor], then: Callable[[str, torch.Tensor], None]) -> None:
        edges, self.edges = self.edges, None  # which hold nodes of the graph
        if edges is not None:
            edges.watch(outputs, then)


class Calls:
    def __init__(self, progress: Progress, records: Records) -> None:
        self.remarks = records.remarks
        self._progress, self._records, self._selection = progress, records, progress.selection
        self._stack: list[Caller] = []
        self.root: Root | None = None
        """The last that was called."""
        self._is_within = False  # a call of a model that is recorded
        self._functions: Functions | None = None  # entered while a model is called
        self._recomputed = Recomputed()

    def begin_step(self) -> None:
        self._recomputed.forget()

    def begin(self, root: Root) -> None:
        """The program calls a model: a micro-batch begins."""
        self.root, self._is_within = root, True
        self._stack.clear()
        wants = self._selection.functions and "activations" in self._selection.kinds and self._progress.takes_now()
        if wants and self._selection.takes_micro_batch(root.micro_batch):
            self._functions = Functions(self)
            self._functions.__enter__()

    def end(self) -> None:
        self._is_within = False
        if self._functions is not None:
            self._functions.__exit__(None, None, None)
            self._functions = None

    # -- modules --------------------------------------------------------------------------------------------------

    @harmless
    def before(self, root: Root, path: str, is_computing: bool, module: nn.Module, args: Any, kwargs: Any) -> None:
        is_sample = root.names[module] == root.names[root.module]
        again = None
        if in_backward():
            given = given_to(module, args, kwargs)
            again = self._again(root, path, given)
            if again is None:
                return
        elif self._takes(root):
            given = given_to(module, args, kwargs)
        else:
            if is_sample:
                self.note_sample(root, module, args, kwargs)
            return
        op = class_name(module)
        is_whole = next(module.children(), None) is None and is_known_class(op)
        wants_gradients = is_computing and self.wants_gradients
        edges = Edges(given if wants_gradients else ())
        place = again or replace(self.place(root, path, op), attributes=attributes_of(module))
        caller = Caller(root, path, is_whole, place, edges, again is not None)
        self._stack.append(caller)
        if caller.is_again:
            return
        self._recomputed.note(path, caller.place, given)
        for arg, x in given:
            for name, t in tensors_in(arg, x):
                caller.layouts[name] = self._records.record(
                    caller.place,
                    "forward",
                    "input",
                    name,
                    t,
                    is_sample=is_sample,
                    within=not is_computing,
                    will_have_gradient=wants_gradients and t.requires_grad,
                )

    @harmless
    def after(self, root: Root, path: str, module: nn.Module, args: Any, output: Any) -> None:
        if not in_backward() and not self._takes(root):
            return
        caller = None
        while self._stack:  # callers that an exception has ended lie above
            caller = self._stack.pop()
            if caller.path == path:
                break
        if caller is None or caller.path != path:
            return
        place, within = caller.place, not computes(module)
        layout = self._layout_of_input(module, args)
        outputs = list(tensors_in("", output))
        if caller.is_again:
            for name, t in outputs:
                self._take_again(place, name or "y", t, within)
            self.watch(caller, [t for _, t in outputs], within=False)
            return
        for name, t in outputs:
            if t.dim() == 0 and t.requires_grad and name in ("loss", "", "0") and path in root.own:
                self._records.record(place, "forward", "loss", "lm", t, module="loss")
                root.last = place
                if path == root.names[root.module]:
                    continue
            is_like_input = bool(args) and torch.is_tensor(args[0]) and t.shape == args[0].shape
            as_input = layout if is_like_input else None
            self.take_output(place, name or "y", t, as_laid_out=as_input, within=within)
        self.watch(caller, [t for _, t in outputs], within=False)

    def _takes(self, root: Root) -> bool:
        # What most calls fail by comes first: steps between those that are recorded should cost nothing.
        progress = self._progress
        if progress.is_closed or not progress.takes_now() or in_backward():
            return False
        # The forward pass of a checkpoint that is reentrant has no gradients: its backward makes them.
        if not progress.is_recordable() and not (self._is_within and progress.is_on):
            return False
        return root.micro_batch >= 0 and self._selection.takes_micro_batch(root.micro_batch)

    def _again(self, root: Root, path: str, given: list[tuple[str, Any]]) -> Place | None:
        """Of a call that activation checkpointing repeats in backward."""
        if not self._progress.is_recordable() or not self._progress.takes_now():
            return None
        place = self._recomputed.place_of(path, given, root.micro_batch)
        if place is not None:
            self.remarks["calls that activation checkpointing repeats are recorded once"] = 1
        return place

    def _take_again(self, place: Place, arg: str, y: torch.Tensor, within: bool) -> None:
        """Values that should be those of the forward pass; gradients go through them, if they did not through those."""
        layout = self._records.compare(place, segment(), arg, y)
        if self._watches(y):
            y.register_hook(functools.partial(self._gradient, place, "grad_output", arg, layout, within))

    @harmless
    def note_sample(self, root: Root, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Of a model that is not recorded: whether its data are those of others decides how ranks number theirs."""
        step, writer = self._progress.step, self._records.writer
        if writer is None or writer.world_size == 1 or in_backward():
            return
        if self._progress.is_recordable() and self._selection.takes_step(step):
            for arg, x in given_to(module, args, kwargs):
                for name, t in tensors_in(arg, x):
                    values, copied = copy_of(plain(t))
                    writer.note_sample(f"{step} {root.micro_batch} {name}", values, copied)

    def _layout_of_input(self, module: nn.Module, args: Any) -> Layout | None:
        """What has no parameters and keeps the shape works on parts as on the whole: activations, dropout."""
        is_free = next(module.parameters(), None) is None
        if not (is_free and args and type(args[0]) is torch.Tensor):
            return None
        return self._records.layouts.of(args[0])

    # -- modules and functions ------------------------------------------------------------------------------------

    @property
    def innermost(self) -> Caller | None:
        """The module that is being called."""
        return self._stack[-1] if self._stack else None

    @property
    def wants_gradients(self) -> bool:
        return self._selection.takes("gradients", "backward")

    def place(self, root: Root, path: str, op: str) -> Place:
        root.calls[path] += 1
        return Place(self._progress.step, root.micro_batch, path, op, root.calls[path] - 1)

    def take_input(self, caller: Caller, arg: str, x: torch.Tensor) -> None:
        """Of a function."""
        caller.layouts[arg] = self._records.record(
            caller.place, "forward", "input", arg, x, within=True, will_have_gradient=x.requires_grad
        )

    def take_output(
        self, place: Place, arg: str, y: torch.Tensor, *, as_laid_out: Layout | None = None, within: bool
    ) -> None:
        """With the gradient of it that comes later."""
        watches = self._watches(y)
        layout = self._records.record(
            place, "forward", "output", arg, y, as_laid_out=as_laid_out, within=within, will_have_gradient=watches
        )
        if watches:
            y.register_hook(functools.partial(self._gradient, place, "grad_output", arg, layout, within))

    def _watches(self, y: torch.Tensor) -> bool:
        # A parameter that is handed on is none of a micro-batch: its hooks would stay, and fire in all of them.
        return self.wants_gradients and y.requires_grad and not y.is_leaf

    def watch(self, caller: Caller, outputs: list[torch.Tensor], *, within: bool) -> None:
        """For the gradients that the call hands back for its inputs."""
        caller.watch(outputs, functools.partial(self._handed_back, caller, within))

    def _handed_back(self, caller: Caller, within: bool, arg: str, gradient: torch.Tensor) -> None:
        self._gradient(caller.place, "grad_input", arg, caller.layouts.get(arg), within, gradient)

    def _gradient(
        self, place: Place, slot: str, arg: str, layout: Layout | None, within: bool, gradient: torch.Tensor
    ) -> None:
        """layout: of the tensor whose gradient it is."""
        if not self._progress.is_closed and not torch.compiler.is_compiling():
            is_like_it = layout is not None and not any(w == "Partial(sum)" for w in layout.placements)
            as_laid_out = layout if is_like_it else None
            self._records.record(place, "backward", slot, arg, gradient, as_laid_out=as_laid_out, within=within)

    # -- losses ---------------------------------------------------------------------------------------------------

    @harmless
    def before_backward(self, tensors: Any) -> None:
        """A loss that no model has returned as such."""
        tensors = [tensors] if torch.is_tensor(tensors) else tensors
        root = self.root
        if root is None or not self._progress.is_recordable() or not self._progress.takes_now():
            return
        if not self._selection.takes_micro_batch(max(root.micro_batch, 0)):
            return
        step = self._progress.step
        for t in tensors:
            is_loss = torch.is_tensor(t) and t.dim() == 0 and t.is_floating_point()
            if is_loss and (root.last is None or (root.last.step, root.last.micro_batch) != (step, root.micro_batch)):
                root.last = Place(step, max(root.micro_batch, 0), "loss", "")
                self._records.record(root.last, "forward", "loss", "lm", t)
