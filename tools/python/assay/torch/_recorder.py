"""A recording, from the models that it is attached to until its end."""

from __future__ import annotations

import functools
import multiprocessing.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .. import _core
from .._selection import Selection
from . import _deepspeed as deepspeed
from . import _estimate as estimate
from ._calls import Calls, Root
from ._grid import axes_of_program, grid_of
from ._guards import harmless
from ._hooks import Hook, ModuleHooks, hook, patch
from ._megatron import group_of_weights
from ._modules import class_name, computes, in_backward, parameters_of, paths_of, wrapped_in
from ._progress import Progress
from ._records import Records
from ._size import words
from ._weights import Weights
from ._writer import Writer

MOST_MICRO_BATCHES = 4096
"""Of one step: more than any accumulation of gradients has; a loop without an optimizer of torch has no end."""


class Recorder:
    """Records models into an assay-dump until it is closed, the last step that is wanted, or the end of the program.

    It keeps no tensor of the program alive, calls no collective, and never raises into the program.
    """

    def __init__(
        self, out: Path, selection: Selection, *, is_asked_for: bool = True, reports: Path | None = None
    ) -> None:
        """
        Args:
            is_asked_for: somebody is told where nothing was recorded; else the process may be one that has no model.
            reports: a folder that takes how large the first step is; then nothing is recorded.
        """
        selection = selection if reports is None else replace(selection, steps="0")
        self.out, self.selection, self._is_asked_for, self._reports = out, selection, is_asked_for, reports
        self._roots: list[Root] = []
        self._when_ended: list[Callable[[], None]] = []
        self._depth = 0  # of models that are being called
        self._is_said = self._is_estimated = False
        self.progress = Progress(selection)
        self.records = Records(selection, self._writer)
        self.remarks = self.records.remarks
        self.calls = Calls(self.progress, self.records)
        self.weights = Weights(self.progress, self.records)
        self._hooks: list[Any] = self.weights.hooks()
        self._inside = ModuleHooks()
        self._unpatch = patch(self.calls, self.weights, self.progress)
        self._finish_at_exit()
        multiprocessing.util.register_after_fork(self, Recorder._forked)

    def _finish_at_exit(self) -> None:
        # atexit does not see the ends of processes that multiprocessing has started.
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)

    def _forked(self) -> None:
        """In a child process, which has forgotten what its parent would do at its end."""
        if self.records.writer is None:
            self._finish_at_exit()
        else:  # a recording that has begun is the parent's
            self.progress.is_closed = self._is_said = True

    # -- what is watched ------------------------------------------------------------------------------------------

    def attach(self, model: nn.Module) -> None:
        """Records what the model and its modules compute from now on."""
        if any(root.module is model for root in self._roots):
            return
        prefix = ""
        paths = paths_of(model)
        own = {name for name, _ in parameters_of(model, paths)}
        if own & self.weights.paths:  # a second model, not another stage of the first
            prefix = f"{class_name(model)}."
            same = sum(f"{root.names[root.module]}.".startswith(prefix[:-1]) for root in self._roots)
            prefix = prefix if same == 0 else f"{class_name(model)}{same + 1}."
            self.remarks[f"a second model is recorded under '{prefix}'"] += 1
        root = Root(model, {}, {prefix.rstrip(".")})
        compiled = {module._orig_mod for module in paths if hasattr(module, "_orig_mod")}
        for module, name in paths.items():
            for weight in module.parameters(recurse=False):
                self.records.groups[id(weight)] = group_of_weights(module)
            path = (prefix + name).rstrip(".")
            root.names[module] = path
            if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
                what = f"'{path}'" if path else "the model"
                self.remarks[f"{what} is compiled: nothing in it is recorded, what it is given and returns is"] += 1
            # What a wrapper is given and returns is what the module in it is and does; compiled modules call no hooks.
            is_wrapper = wrapped_in(module) is not None and not hasattr(module, "_orig_mod")
            if is_wrapper or module in compiled:
                continue
            depth = path.count(".") + 1 if path else 0
            if not computes(module) and self.selection.depth is not None and depth > self.selection.depth:
                continue
            self._hook(root, module, path)
        engine = deepspeed.engine_of(model)
        if engine is not None:
            self._hooks.append(self.weights.hook_on(engine))
        self._hooks.append(model.register_forward_pre_hook(Hook(self._enter, root), prepend=True))
        self._hooks.append(model.register_forward_hook(Hook(self._leave), always_call=True))
        for name, weight in parameters_of(model, paths):
            owner, _, arg = (prefix + name).rpartition(".")
            self.weights.add(weight, owner, arg)
        self._roots.append(root)

    def attach_beside(self, module: nn.Module) -> None:
        """Records a module without parameters that the program calls itself, such as a loss, under its class's name."""
        if not self._roots or any(module in root.names for root in self._roots):
            return
        root = self._roots[-1]
        path = class_name(module)
        if path in root.names.values():
            path += str(sum(name.startswith(path) for name in root.names.values()))
        root.names[module] = path
        root.own.add(path)
        self._hook(root, module, path)

    def _hook(self, root: Root, module: nn.Module, path: str) -> None:
        if "activations" not in self.selection.kinds:
            return
        is_model = path == root.names[root.module]
        before, after = Hook(self.calls.before, root, path, computes(module)), Hook(self.calls.after, root, path)
        if not self.selection.takes_module(path):
            if is_model:  # whose data it is given decides how ranks number their micro-batches
                sample = Hook(self.calls.note_sample, root)
                self._hooks.append(module.register_forward_pre_hook(sample, with_kwargs=True))
        elif is_model:  # it finds its hooks before _enter knows the step
            self._hooks += hook(module, before, after)
        else:
            self._inside.add(module, before, after)

    @property
    def is_outside(self) -> bool:
        """Whether no model is being called."""
        return self.progress.is_on and self._depth == 0

    def when_ended(self, then: Callable[[], None]) -> None:
        """Calls `then` at the end of the recording."""
        self._when_ended.append(then)

    # -- steps and micro-batches ----------------------------------------------------------------------------------

    @harmless
    def _enter(self, root: Root, module: nn.Module, args: Any) -> None:
        self._depth += 1
        progress = self.progress
        if self._depth > 1 or in_backward() or not progress.is_recordable():
            return
        if progress.has_stepped:
            self.weights.take_copied()
            if self._is_estimated and progress.takes_now() and self.records.writer is not None:
                self.records.writer.check()
            progress.next_step()
            self.calls.begin_step()
            for each in self._roots:
                each.micro_batch = -1
            if progress.is_over:
                self._end()
                return
        if self.records.begin().problem:  # there is no room: the program has its speed again
            self._end(is_whole=False)
            return
        self._inside.switch(progress.takes_now())
        root.micro_batch += 1
        if root.micro_batch >= MOST_MICRO_BATCHES:
            self.remarks[
                f"no optimizer of torch has stepped in {MOST_MICRO_BATCHES} micro-batches: the recording ends"
            ] = 1
            self._end()
            return
        root.calls.clear()
        self.records.layouts.forget()
        self.calls.begin(root)
        if not progress.has_begun:
            progress.has_begun = True
            self.weights.begin_step()

    @harmless
    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self.calls.end()
            self._estimate()
        if self.progress.is_closed:
            self._unhook()

    def _estimate(self) -> None:
        """Behind the first call of a model that is recorded."""
        writer = self.records.writer
        if self._is_estimated or writer is None or self.progress.is_closed or not self.progress.takes_now():
            return
        if any(self.selection.takes_micro_batch(root.micro_batch) for root in self._roots if root.micro_batch >= 0):
            self._is_estimated = True
            writer.estimate(self.weights.sizes())

    # -- the dump -------------------------------------------------------------------------------------------------

    def _writer(self) -> Writer:
        rank, size = 0, 1
        axes = []
        if dist.is_available() and dist.is_initialized():
            rank, size = dist.get_rank(), dist.get_world_size()
            axes = axes_of_program() if size > 1 else []
        make = Writer if self._reports is None else functools.partial(estimate.Counter, self._reports)
        writer = make(self.out, rank, size, grid_of(size, axes), _producer(self.weights.optimizers), self.selection)
        writer.facts.parts = sorted(self.weights.modules)
        return writer

    def _end(self, is_whole: bool = True) -> None:
        self.weights.take_copied()
        self.progress.is_closed = True
        while self._when_ended:
            self._when_ended.pop()()
        self._unpatch()
        self.records.layouts.clear()
        self._unhook()
        if self.records.writer is not None:
            self.records.writer.close(is_whole)

    def _unhook(self) -> None:
        if self._depth == 0:  # a call goes through the hooks that it has found
            self._inside.switch(False)
            while self._hooks:
                self._hooks.pop().remove()

    def close(self, is_whole: bool = True) -> None:
        """Ends the recording and waits for it: the dump is there when every rank has ended its own."""
        if not self.progress.is_closed:
            self._end(is_whole)
        if self._is_said:
            return
        self._is_said = True
        writer = self.records.writer
        if writer is None:
            if self._is_asked_for or self._roots:
                print("assay: nothing was recorded: no model was called with gradients enabled", file=sys.stderr)
            return
        writer.join()
        self._say(writer, is_whole)

    def _at_exit(self) -> None:
        self.close(is_whole=getattr(sys, "last_value", None) is None)

    def _say(self, writer: Writer, is_whole: bool) -> None:
        account = writer.account
        who = f"assay: rank {writer.rank}" if writer.world_size > 1 else "assay"
        if is_whole and not writer.problem and writer.rank == 0:
            size = words(account.bytes)
            print(f"{who}: recorded {account.tensors} tensors, {size}, in {self.out}", file=sys.stderr)
        if account.waited > 1:
            print(f"{who}: the program waited {account.waited:.1f} s for the disk", file=sys.stderr)
        if account.evaluations:
            what = f"{account.evaluations} calls of the model without a backward are no micro-batches, and left out"
            print(f"{who}: {what}", file=sys.stderr)
        for why, count in account.left_out.items():
            print(f"{who}: {count} tensors are left out: {why}", file=sys.stderr)
        if account.recomputed:
            named = ", ".join(f"'{module}' ({count} calls)" for module, count in account.recomputed.most_common(5))
            print(
                f"{who}: activation checkpointing repeats calls with other results, and gradients are of these: "
                f"{named}; dropout without preserve_rng_state, or a kernel that is not deterministic",
                file=sys.stderr,
            )
        if writer.rank == 0:
            for remark, count in self.remarks.items():
                print(f"{who}: {remark}" + (f" ({count} times)" if count > 1 else ""), file=sys.stderr)


def _producer(optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    """With the settings of the program's optimizer."""
    producer: dict[str, Any] = {"framework": f"torch {torch.__version__}", "recorder": f"assay {_core.version}"}
    for optimizer in optimizers[:1]:
        producer["optimizer"] = type(optimizer).__name__
        settings = optimizer.param_groups[0]
        for name in ("lr", "weight_decay", "betas", "eps", "momentum"):
            if isinstance(settings.get(name), (int, float, tuple)):
                producer[name] = settings[name]
    return producer
