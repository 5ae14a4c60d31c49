"""How a tensor of the program becomes a record of the dump."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._selection import Selection
from ._deepspeed import Fragment
from ._grid import Layout, local_part
from ._guards import harmless, unseen
from ._layouts import Layouts
from ._line import Line
from ._megatron import layout_of_weight
from ._values import copy_of, plain
from ._writer import Writer


@dataclass(frozen=True)
class Place:
    """What of an identity is common to all tensors of a call of a module."""

    step: int
    micro_batch: int
    module: str
    op: str
    call: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    """Of the operator."""


class Records:
    """Of one rank, in execution order."""

    def __init__(self, selection: Selection, begin: Callable[[], Writer]) -> None:
        """begin: makes the writer before the first of them."""
        self.layouts = Layouts()
        self.remarks: Counter[str] = Counter()
        """What is left out, and why."""
        self.lock = threading.RLock()
        self.writer: Writer | None = None
        self.groups: dict[int, Any] = {}
        """The ranks over which weights are cut that are no DTensors, by id."""
        self._selection, self._make = selection, begin
        self._seq = itertools.count()

    def begin(self) -> Writer:
        """Also of a rank that is not recorded: its part is empty."""
        self.writer = self.writer or self._make()
        return self.writer

    @harmless
    @unseen
    def record(
        self, place: Place, phase: str, slot: str, arg: str, tensor: torch.Tensor | Fragment, **how: Any
    ) -> Layout | None:
        """Returns how it lies over the ranks, if that is known; how: see _add."""
        return self._add(self.begin(), place, phase, slot, arg, tensor, **how)

    @harmless
    @unseen
    def compare(self, place: Place, segment: Any, arg: str, output: torch.Tensor) -> Layout | None:
        """With what the call that is repeated has returned. Returns its layout, if that is known."""
        writer = self.begin()
        is_dtensor = hasattr(output, "placements")
        part = local_part(output) if is_dtensor else output
        is_known = self._selection.values != "sketches"  # where a part lies is part of its sketch
        if is_known and type(part) is torch.Tensor and part.layout is torch.strided:
            names = {"step": place.step, "micro_batch": place.micro_batch, "module": place.module, "arg": arg}
            writer.compare(Line.of(names | {"segment": segment}, plain(part), self._selection.values))
        return writer.grid.layout(output) if is_dtensor else None

    def _add(
        self,
        writer: Writer,
        place: Place,
        phase: str,
        slot: str,
        arg: str,
        tensor: torch.Tensor | Fragment,
        *,
        module: str | None = None,
        is_sample: bool = False,
        within: bool = False,
        as_laid_out: Layout | None = None,
        of_weight: torch.Tensor | None = None,
        will_have_gradient: bool = False,
    ) -> Layout | None:
        """
        Args:
            module: instead of that of the place.
            is_sample: a model is given it.
            within: it shows how a module makes its results.
            as_laid_out: where nothing else says it.
            of_weight: whose own value, gradient or state it is.
            will_have_gradient: that is recorded, too.
        """
        layout: Layout | None = None
        fragment: Fragment | None = None
        if isinstance(tensor, Fragment):
            fragment, tensor = tensor, tensor.values
            layout = Layout(fragment.whole, ("Replicate()",) * len(writer.grid.shape))
        part = tensor
        is_dtensor = hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")
        if is_dtensor:
            part = local_part(tensor)
            layout = writer.grid.layout(tensor)
            if layout is None:
                self.remarks["DTensors whose layout this format has no words for are left out"] += 1
                return None
        elif hasattr(tensor, "wait") and hasattr(tensor, "elem"):  # a collective that is under way
            part = tensor.wait()
        if (
            type(part) not in (torch.Tensor, nn.Parameter)
            or part.layout is not torch.strided
            or part.device.type == "meta"
        ):
            self.remarks[f"tensors of {type(part).__name__} on {part.device.type} are left out"] += 1
            return None
        is_wanted = self._selection.takes_dtype(str(part.dtype).removeprefix("torch."))
        is_written = is_wanted and phase in self._selection.phases
        values = plain(part)
        if is_sample and not is_written and writer.world_size > 1:
            writer.note_sample(f"{place.step} {place.micro_batch} {arg}", *copy_of(values))
        is_plain = layout is None
        if layout is None:
            layout = self.layouts.of(part) or as_laid_out
            if layout is None and of_weight is not None and part.shape == of_weight.shape:
                layout = layout_of_weight(of_weight, self.groups.get(id(of_weight)), writer.grid)
            is_plain = layout is None or len(layout.global_shape) != part.dim()
        elif writer.world_size > 1 and not part.is_inference() and fragment is None:
            self.layouts.note(part, layout)
        is_estimated = will_have_gradient and writer.is_estimating  # by what is not written itself
        if not is_written and not (is_wanted and is_estimated):
            return None if is_plain else layout
        shape = list(values.shape)
        words = ["Replicate()"] * len(writer.grid.shape)
        fields: dict[str, Any] = {
            "seq": next(self._seq),
            "step": place.step,
            "micro_batch": place.micro_batch,
            "phase": phase,
            "module": place.module if module is None else module,
            "op": place.op,
            "slot": slot,
            "arg": arg,
            "call": place.call,
            "dtype": str(values.dtype).removeprefix("torch."),
            "shape": shape,
            "global_shape": shape,
            "placements": words,
            "mesh_coordinate": list(writer.facts.coordinate),
        }
        if not is_plain and layout is not None:
            tail = shape[len(layout.global_shape) :]  # of complex numbers
            fields["global_shape"] = [*layout.global_shape, *tail]
            fields["placements"] = list(layout.placements)
            if layout.offsets is not None:
                fields["offsets"] = [*layout.offsets, *(0 for _ in tail)]
        if fragment is not None:
            fields["global_shape"] = list(fragment.whole)
            fields["flattened_range"] = [fragment.first, fragment.first + values.numel()]
        if slot == "grad_output" and not is_dtensor:
            # The gradient of a sum is that of each of its addends.
            fields["placements"] = [w.replace("Partial(sum)", "Replicate()") for w in fields["placements"]]
        if place.attributes:
            fields["attributes"] = place.attributes
        if is_sample:
            fields["is_sample"] = True
        if within:
            fields["within"] = True
        unsaid = tuple(range(len(writer.grid.shape))) if is_plain or layout is None else layout.unsaid
        line = Line.of(fields, values, self._selection.values, writer.grid.shape)
        line.unsaid = unsaid if writer.world_size > 1 else ()
        line.will_have_gradient, line.is_written = will_have_gradient, is_written
        writer.add(line)
        return None if is_plain else layout
