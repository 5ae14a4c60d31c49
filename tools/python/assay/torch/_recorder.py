"""Hooks on a training program: modules, gradients, optimizer steps."""

from __future__ import annotations

import functools
import gc
import multiprocessing.util
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import _core
from .._selection import Selection
from . import _deepspeed as deepspeed
from ._deepspeed import Fragment
from ._edges import Edges
from ._functions import Functions, Known, is_known_class
from ._grid import Layout, axes_of_program, grid_of
from ._hooks import Hook, patch
from ._masters import Masters
from ._megatron import gradient_of, group_of_weights
from ._modules import class_name, computes, given_to, in_backward, parameters_of, paths_of, tensors_in, wrapped_in
from ._records import Place, Records
from ._writer import Writer, copy_of

MOST_MICRO_BATCHES = 4096
"""Of one step: more than any accumulation of gradients has; a loop without an optimizer of torch has no end."""


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
    """A module that is being called."""

    root: Root
    path: str
    is_whole: bool
    """It is judged as one operator."""
    place: Place
    edges: Edges | None
    layouts: dict[str, Layout | None] = field(default_factory=dict)

    def watch(self, outputs: list[torch.Tensor], then: Callable[[str, torch.Tensor], None]) -> None:
        edges, self.edges = self.edges, None  # which hold nodes of the graph
        if edges is not None:
            edges.watch(outputs, then)


def _as_operand(x: Any, beside: list[Any]) -> Any:
    """What is no tensor of floating-point numbers as kernels have it: a number in float32, whatever narrower dtype they
    compute with, integers and booleans in the dtype of the result.
    """
    floats = [t for t in beside if torch.is_tensor(t) and t.is_floating_point()]
    if torch.is_tensor(x):
        return x if x.is_floating_point() or x.is_complex() or not floats else x.to(torch.result_type(x, floats[0]))
    if not isinstance(x, (int, float)) or isinstance(x, bool):
        return x
    is_wide = any(t.dtype == torch.float64 for t in floats)
    return torch.tensor(float(x), dtype=torch.float64 if is_wide else torch.float32, device="cpu")


def _harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of a recorder: what goes wrong in it is remarked, and the program goes on."""

    @functools.wraps(method)
    def call(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.remarks[f"something is not recorded: {type(error).__name__}: {error}"[:300]] += 1
            return None

    return call


def _unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of a recorder: autograd and modes do not see what it does, and one thread does it at a time."""

    @functools.wraps(method)
    def call(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        with self._lock, torch.no_grad(), torch._C.DisableTorchFunction():
            return method(self, *args, **kwargs)

    return call


class Recorder:
    """Records models into an assay-dump until it is closed, the last step that is wanted, or the end of the program.

    It keeps no tensor of the program alive, calls no collective, and never raises into the program.
    """

    def __init__(self, out: Path, selection: Selection, *, is_asked_for: bool = True) -> None:
        """is_asked_for: somebody is told where nothing was recorded; else the process may be one that has no model."""
        self.out, self.selection, self._is_asked_for = out, selection, is_asked_for
        self._roots: list[Root] = []
        self._current: Root | None = None  # the last that was called
        self._hooks: list[Any] = []
        self._when_ended: list[Callable[[], None]] = []
        self._names: dict[int, tuple[str, str]] = {}  # of parameters: module, argument
        self._weights: list[torch.Tensor] = []
        self._masters = Masters()
        self._copied: tuple[list[torch.Tensor], str] = ([], "")  # what takes its master's values behind the step
        self._writer: Writer | None = None
        self._lock = threading.RLock()
        self._step, self._has_begun, self._has_stepped, self._has_gradients = 0, False, False, False
        self._depth = 0  # of models that are being called
        self._stack: list[Caller] = []  # modules that are being called
        self._functions: Functions | None = None  # entered while a model is called
        self._is_closed = self._is_said = self._is_paused = False
        self.remarks: Counter[str] = Counter()
        self._records = Records(selection, self.remarks)
        self._hooks.append(register_optimizer_step_pre_hook(self._before_step))
        self._hooks.append(register_optimizer_step_post_hook(self._after_step))
        self._unpatch = patch(self)
        self._finish_at_exit()
        multiprocessing.util.register_after_fork(self, Recorder._forked)

    def _finish_at_exit(self) -> None:
        # atexit does not see the ends of processes that multiprocessing has started.
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)

    def _forked(self) -> None:
        """In a child process, which has forgotten what its parent would do at its end."""
        if self._writer is None:
            self._finish_at_exit()
        else:  # a recording that has begun is the parent's
            self._is_closed = self._is_said = True

    # -- what is watched ------------------------------------------------------------------------------------------

    def attach(self, model: nn.Module) -> None:
        """Records what the model and its modules compute from now on."""
        if any(root.module is model for root in self._roots):
            return
        prefix = ""
        paths = paths_of(model)
        own = {name for name, _ in parameters_of(model, paths)}
        taken = {f"{module}.{arg}".lstrip(".") for module, arg in self._names.values()}
        if own & taken:  # a second model, not another stage of the first
            prefix = f"{class_name(model)}."
            same = sum(f"{root.names[root.module]}.".startswith(prefix[:-1]) for root in self._roots)
            prefix = prefix if same == 0 else f"{class_name(model)}{same + 1}."
            self.remarks[f"a second model is recorded under '{prefix}'"] += 1
        root = Root(model, {}, {prefix.rstrip(".")})
        compiled = {module._orig_mod for module in paths if hasattr(module, "_orig_mod")}
        for module, name in paths.items():
            for weight in module.parameters(recurse=False):
                self._records.groups[id(weight)] = group_of_weights(module)
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
            if "activations" in self.selection.kinds and self.selection.takes_module(path):
                self._hook(root, module, path)
        engine = deepspeed.engine_of(model)
        if engine is not None:
            self._hooks.append(deepspeed.Boundary(engine, self._before_clip, self._after_boundary))
        self._hooks.append(model.register_forward_pre_hook(Hook(self._enter, root), prepend=True))
        self._hooks.append(model.register_forward_hook(Hook(self._leave), always_call=True))
        for name, weight in parameters_of(model, paths):
            module, _, arg = (prefix + name).rpartition(".")
            self._names[id(weight)] = module, arg
            self._weights.append(weight)
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
        if "activations" in self.selection.kinds and self.selection.takes_module(path):
            self._hook(root, module, path)

    def _hook(self, root: Root, module: nn.Module, path: str) -> None:
        before = Hook(self._before, root, path, computes(module))
        self._hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        # First, so that outputs are seen as the module made them, before parallelize_module turns them into others.
        after = Hook(self._after, root, path)
        self._hooks.append(module.register_forward_hook(after, prepend=True))

    @property
    def is_outside(self) -> bool:
        """Whether no model is being called."""
        return not (self._is_closed or self._is_paused) and self._depth == 0

    def when_ended(self, then: Callable[[], None]) -> None:
        """Calls `then` at the end of the recording."""
        self._when_ended.append(then)

    # -- steps and micro-batches ----------------------------------------------------------------------------------

    @_harmless
    def _enter(self, root: Root, module: nn.Module, args: Any) -> None:
        self._depth += 1
        if self._depth > 1 or in_backward() or not self._is_recordable():
            return
        if self._has_stepped:
            self._take_copied()
            self._step += 1
            self._has_stepped = self._has_begun = self._has_gradients = False
            for each in self._roots:
                each.micro_batch, each.calls = -1, Counter()
            last = self.selection.last_step()
            if last is not None and self._step > last:
                self._end()
                return
        self._current = root
        self._writer = self._writer or self._begin()  # also of a rank that is not recorded: its part is empty
        root.micro_batch += 1
        if root.micro_batch >= MOST_MICRO_BATCHES:
            self.remarks[
                f"no optimizer of torch has stepped in {MOST_MICRO_BATCHES} micro-batches: the recording ends"
            ] = 1
            self._end()
            return
        root.calls = Counter()
        self._records.layouts.forget()
        self._stack.clear()
        takes = self.selection.functions and "activations" in self.selection.kinds and self._takes_now()
        if takes and self.selection.takes_micro_batch(root.micro_batch):
            self._functions = Functions(self)
            self._functions.__enter__()
        if not self._has_begun:
            self._has_begun = True
            if "parameters" in self.selection.kinds:
                self._parameters("forward", self._weights)

    @_harmless
    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and self._functions is not None:
            self._functions.__exit__(None, None, None)
            self._functions = None
        if self._is_closed:
            self._unhook()

    def _is_recordable(self) -> bool:
        return (
            not (self._is_closed or self._is_paused or torch.compiler.is_compiling() or torch.jit.is_tracing())
            and torch.is_grad_enabled()
        )

    def _unrecorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._is_paused = True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_paused = False

        return call

    # -- modules --------------------------------------------------------------------------------------------------

    @_harmless
    def _before(self, root: Root, path: str, is_computing: bool, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self._takes_call(root):
            if root.names[module] == root.names[root.module]:
                self._note_sample(root, module, args, kwargs)
            return
        op = class_name(module)
        place = self._place(root, path, op)
        is_whole = next(module.children(), None) is None and is_known_class(op)
        is_sample = root.names[module] == root.names[root.module]
        given = given_to(module, args, kwargs)
        wants_gradients = is_computing and "gradients" in self.selection.kinds
        caller = Caller(root, path, is_whole, place, Edges(given if wants_gradients else ()))
        self._stack.append(caller)
        for arg, x in given:
            for name, t in tensors_in(arg, x):
                within = not is_computing
                layout = self._record(place, "forward", "input", name, t, is_sample=is_sample, within=within)
                caller.layouts[name] = layout

    def _note_sample(self, root: Root, module: nn.Module, args: Any, kwargs: Any) -> None:
        """On a rank that is not recorded: whether its data are those of others decides how these number theirs."""
        takes = self._is_recordable() and not in_backward() and self.selection.takes_step(self._step)
        if takes and self._writer is not None and self._writer.world_size > 1:
            for arg, x in given_to(module, args, kwargs):
                for name, t in tensors_in(arg, x):
                    values, copied = copy_of(t)
                    self._writer.note_sample(f"{self._step} {root.micro_batch} {name}", values, copied)

    @_harmless
    def _after(self, root: Root, path: str, module: nn.Module, args: Any, output: Any) -> None:
        if not self._takes_call(root):
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
        for name, t in outputs:
            if t.dim() == 0 and t.requires_grad and name in ("loss", "", "0") and path in root.own:
                self._record(place, "forward", "loss", "lm", t, module="loss")
                root.last = place
                if path == root.names[root.module]:
                    continue
            is_like_input = bool(args) and torch.is_tensor(args[0]) and t.shape == args[0].shape
            as_input = layout if is_like_input else None
            lies = self._record(place, "forward", "output", name or "y", t, as_laid_out=as_input, within=within)
            if t.requires_grad and "gradients" in self.selection.kinds:
                t.register_hook(functools.partial(self._gradient, place, "grad_output", name or "y", lies, within))
        caller.watch([t for _, t in outputs], functools.partial(self._handed_back, caller, False))

    def _handed_back(self, caller: Caller, within: bool, arg: str, gradient: torch.Tensor) -> None:
        self._gradient(caller.place, "grad_input", arg, caller.layouts.get(arg), within, gradient)

    def _layout_of_input(self, module: nn.Module, args: Any) -> Layout | None:
        """What has no parameters and keeps the shape works on parts as on the whole: activations, dropout."""
        is_free = next(module.parameters(), None) is None
        if not (is_free and args and type(args[0]) is torch.Tensor):
            return None
        return self._records.layouts.of(args[0])

    def _takes_call(self, root: Root) -> bool:
        # What most calls fail by comes first: steps between those that are recorded should cost nothing.
        if self._is_closed or not self._takes_now() or not self._is_recordable():
            return False
        if root.micro_batch < 0 or not self.selection.takes_micro_batch(root.micro_batch):
            return False
        if in_backward():  # activation checkpointing: the same values once more
            self.remarks["calls that activation checkpointing repeats are recorded once"] = 1
            return False
        return True

    def _takes_now(self) -> bool:
        if not self.selection.takes_step(self._step):
            return False
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        return self.selection.takes_rank(rank)

    def _place(self, root: Root, path: str, op: str) -> Place:
        root.calls[path] += 1
        return Place(self._step, root.micro_batch, path, op, root.calls[path] - 1)

    def call_function(self, known: Known, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Records a function that the innermost module calls as if it were a module of its own, "mlp.silu()"."""
        call = self._call_of(known, args, kwargs)
        output = func(*args, **kwargs)
        if call is not None:
            self._take_results(call, known, output)
        return output

    @_harmless
    def _call_of(self, known: Known, args: Any, kwargs: Any) -> Caller | None:
        caller = self._stack[-1] if self._stack else None
        if caller is None or caller.is_whole or in_backward() or not torch.is_grad_enabled():
            return None
        given = known.read(args, kwargs)
        if given is None:
            return None
        values = [x for _, x in given.inputs]
        operands = [(arg, _as_operand(x, values) if known.takes_numbers(arg) else x) for arg, x in given.inputs]
        tensors = [(arg, x) for arg, x in operands if torch.is_tensor(x)]
        required = {"a", "b"} & set(known.inputs) or {"x"} & set(known.inputs)
        if (
            not tensors
            or not required <= {arg for arg, _ in tensors}
            or any(not x.dtype.is_floating_point and arg.split("_")[0] in ("a", "b", "x") for arg, x in tensors)
        ):
            return None
        path = f"{caller.path}.{known.op}()".lstrip(".")
        wanted = [(arg, x) for arg, x in tensors if not isinstance(x, nn.Parameter)]
        place = replace(self._place(caller.root, path, known.op), attributes=given.attributes)
        call = Caller(caller.root, path, True, place, Edges(wanted if "gradients" in self.selection.kinds else ()))
        for arg, x in tensors:
            call.layouts[arg] = self._record(place, "forward", "input", arg, x, within=True)
        return call

    @_harmless
    def _take_results(self, call: Caller, known: Known, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        for arg, y in zip(known.outputs, outputs, strict=False):
            if torch.is_tensor(y):
                layout = self._record(call.place, "forward", "output", arg, y, within=True)
                if y.requires_grad and "gradients" in self.selection.kinds:
                    y.register_hook(functools.partial(self._gradient, call.place, "grad_output", arg, layout, True))
        call.watch([y for y in outputs if torch.is_tensor(y)], functools.partial(self._handed_back, call, True))

    def _gradient(
        self, place: Place, slot: str, arg: str, layout: Layout | None, within: bool, gradient: torch.Tensor
    ) -> None:
        """layout: of the tensor whose gradient it is."""
        if not self._is_closed and not torch.compiler.is_compiling():
            is_like_it = layout is not None and not any(w == "Partial(sum)" for w in layout.placements)
            as_laid_out = layout if is_like_it else None
            self._record(place, "backward", slot, arg, gradient, as_laid_out=as_laid_out, within=within)

    @_harmless
    def _before_backward(self, tensors: Any) -> None:
        """A loss that no model has returned as such."""
        tensors = [tensors] if torch.is_tensor(tensors) else tensors
        root = self._current
        if root is None or not self._is_recordable() or not self._takes_now():
            return
        if not self.selection.takes_micro_batch(max(root.micro_batch, 0)):
            return
        for t in tensors:
            is_loss = torch.is_tensor(t) and t.dim() == 0 and t.is_floating_point()
            if is_loss and (
                root.last is None or (root.last.step, root.last.micro_batch) != (self._step, root.micro_batch)
            ):
                root.last = Place(self._step, max(root.micro_batch, 0), "loss", "")
                self._record(root.last, "forward", "loss", "lm", t)

    # -- steps ----------------------------------------------------------------------------------------------------

    @_harmless
    def _before_clip(self) -> None:
        if not self._is_closed and self._has_begun and not self._has_gradients:
            self._has_gradients = True
            self._gradients(self._weights)

    @_harmless
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_closed or not self._has_begun or self._has_gradients:
            return
        self._gradients([weight for weight, _ in self._stepped_by(optimizer)])

    @_harmless
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_closed or not self._has_begun:
            return
        stepped = self._stepped_by(optimizer)
        if not stepped:
            return
        self._has_stepped = True
        if not self._takes_now():
            return
        op = type(optimizer).__name__
        if "parameters" in self.selection.kinds:
            self._parameters("optimizer", [weight for weight, own in stepped if own is weight], op)
            self._copied = ([weight for weight, own in stepped if own is not weight], op)
        if "states" in self.selection.kinds:
            for weight, own in stepped:
                states = optimizer.state.get(own, {})
                if own.dtype != weight.dtype:  # which takes the master's values later
                    states = {"master": own, **states}
                module, arg = self._names[id(weight)]
                for state, t in states.items():
                    if torch.is_tensor(t) and t.dim() > 0:
                        place = Place(self._step, -1, module, op)
                        self._record(place, "optimizer", "state", f"{arg}.{state}", t, of_weight=weight)

    @_harmless
    def _take_copied(self) -> None:
        weights, op = self._copied
        self._copied = ([], "")
        self._parameters("optimizer", weights, op)

    @_harmless
    def _after_boundary(self, engine: nn.Module) -> None:
        """Of DeepSpeed, whose optimizers step flat buffers."""
        if self._is_closed or not self._has_begun or self._has_stepped:
            return
        self._has_stepped = True
        if not self._takes_now():
            return
        op = deepspeed.optimizer_in(engine)
        if "parameters" in self.selection.kinds:
            self._parameters("optimizer", self._weights, op)
        for weight in self._weights if "states" in self.selection.kinds else ():
            if deepspeed.is_cut(weight):
                module, arg = self._names[id(weight)]
                for state, part in deepspeed.states_of(weight).items():
                    place = Place(self._step, -1, module, op)
                    self._record(place, "optimizer", "state", f"{arg}.{state}", part)

    def _stepped_by(self, optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The weights of the models, each with what the optimizer has for it: itself, or a master copy."""
        own = [w for group in optimizer.param_groups for w in group["params"]]
        others = [w for w in own if id(w) not in self._names]
        if others:
            with torch.no_grad():
                self._masters.see(others, self._weights)
        stepped = [(w if id(w) in self._names else self._masters.weight_of(w), w) for w in own]
        return [(weight, w) for weight, w in stepped if weight is not None]

    def _parameters(self, phase: str, weights: list[torch.Tensor], op: str = "") -> None:
        if self._takes_now():
            for weight in weights:
                module, arg = self._names[id(weight)]
                part = deepspeed.part_of(weight)
                values = weight if part is None else part
                self._record(Place(self._step, -1, module, op), phase, "param", arg, values, of_weight=weight)

    def _gradients(self, weights: list[torch.Tensor]) -> None:
        if self._takes_now() and "gradients" in self.selection.kinds:
            for weight in weights:
                gradient = deepspeed.gradient_of(weight) if deepspeed.is_cut(weight) else gradient_of(weight)
                if gradient is not None:
                    module, arg = self._names[id(weight)]
                    place = Place(self._step, -1, module, "")
                    self._record(place, "backward", "grad", arg, gradient, of_weight=weight)

    @_harmless
    @_unseen
    def _record(
        self, place: Place, phase: str, slot: str, arg: str, tensor: torch.Tensor | Fragment, **how: Any
    ) -> Layout | None:
        """Returns how it lies over the ranks, if that is known; how: see Records.add."""
        self._writer = self._writer or self._begin()
        return self._records.add(self._writer, place, phase, slot, arg, tensor, **how)

    # -- the dump -------------------------------------------------------------------------------------------------

    def _begin(self) -> Writer:
        rank, size = 0, 1
        axes = []
        if dist.is_available() and dist.is_initialized():
            rank, size = dist.get_rank(), dist.get_world_size()
            axes = axes_of_program() if size > 1 else []
        producer: dict[str, Any] = {"framework": f"torch {torch.__version__}", "recorder": f"assay {_core.version}"}
        for optimizer in [o for o in gc.get_objects() if issubclass(type(o), Optimizer)][:1]:
            producer["optimizer"] = type(optimizer).__name__
            settings = optimizer.param_groups[0]
            for name in ("lr", "weight_decay", "betas", "eps", "momentum"):
                if isinstance(settings.get(name), (int, float, tuple)):
                    producer[name] = settings[name]
        writer = Writer(self.out, rank, size, grid_of(size, axes), producer)
        writer.facts.parts = sorted({module for module, _ in self._names.values()})
        return writer

    def _end(self, is_whole: bool = True) -> None:
        self._take_copied()
        self._is_closed = True
        while self._when_ended:
            self._when_ended.pop()()
        self._unpatch()
        self._records.layouts.clear()
        self._unhook()
        if self._writer is not None:
            self._writer.close(is_whole)

    def _unhook(self) -> None:
        while self._hooks and self._depth == 0:  # a call goes through the hooks that it has found
            self._hooks.pop().remove()

    def close(self, is_whole: bool = True) -> None:
        """Ends the recording and waits for it: the dump is there when every rank has ended its own."""
        if not self._is_closed:
            self._end(is_whole)
        if self._is_said:
            return
        self._is_said = True
        if self._writer is None:
            if self._is_asked_for or self._roots:
                print("assay: nothing was recorded: no model was called with gradients enabled", file=sys.stderr)
            return
        self._writer.join()
        self._say(self._writer, is_whole)

    def _at_exit(self) -> None:
        self.close(is_whole=getattr(sys, "last_value", None) is None)

    def _say(self, writer: Writer, is_whole: bool) -> None:
        account = writer.account
        who = f"assay: rank {writer.rank}" if writer.world_size > 1 else "assay"
        if is_whole and not writer.problem and writer.rank == 0:
            size = account.bytes / 2**20
            print(f"{who}: recorded {account.tensors} tensors, {size:.1f} MiB, in {self.out}", file=sys.stderr)
        if account.waited > 1:
            print(f"{who}: the program waited {account.waited:.1f} s for the disk", file=sys.stderr)
        for why, count in account.left_out.items():
            print(f"{who}: {count} tensors are left out: {why}", file=sys.stderr)
        if writer.rank == 0:
            for remark, count in self.remarks.items():
                print(f"{who}: {remark}" + (f" ({count} times)" if count > 1 else ""), file=sys.stderr)
