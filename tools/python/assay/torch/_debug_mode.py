"""What runs under PyTorch's DebugMode, as calls of a recording: aten operators, collectives, compiled regions.

DebugMode (torch.utils._debug_mode) sees each call below autograd, and calls the hooks that it is given before and
behind it. The modules around them are the recorder's.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .._aten import OPERATORS
from ._functions import as_operand, is_plain
from ._guards import harmless
from ._modules import in_backward, tensors_in
from ._program import Finder
from ._records import Place

if TYPE_CHECKING:
    from ._calls import Root
    from ._recorder import Recorder

_NOT_CALLS = {"prim", "profiler", "debug_mode_ops"}
# They make no values: memory, views whose schema does not say that they are, what waits for others.
_NO_VALUES = (
    "empty",
    "new_empty",
    "_unsafe_view",
    "record_stream",
    "_local_scalar_dense",
    "set_",
    "wait_tensor",
    "_wrap_tensor",
)
_NUMBERS = ("a", "b", "min", "max")
"""Operands that a program may give as numbers."""
_COMPILED = "L["
"""Begins the name that a module has in a compiled region: L['self'].layers.0"""


@dataclass
class Call:
    """An operator that is being called."""

    func: Any
    place: Place
    phase: str
    outputs: tuple[str, ...]


class Origin:
    """Where the nodes of autograd come from, by their numbers: calls in backward belong to a module, too."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, int]] = {}

    def forget(self) -> None:
        self._places.clear()

    def note(self, path: str, micro_batch: int) -> None:
        """Of a call: its node, if it has one, is the last that was made."""
        self._places.setdefault(torch._C._autograd._get_sequence_nr() - 1, (path, micro_batch))

    def find(self) -> tuple[str, int] | None:
        """Of the node that runs."""
        node = torch._C._current_autograd_node()
        return None if node is None else self._places.get(node._sequence_nr())


@contextlib.contextmanager
def debug_mode(begin: Callable[[], Recorder]) -> Iterator[Recorder]:
    """See assay.torch.debug_mode."""
    from torch.utils._debug_mode import get_active_debug_mode

    mode = get_active_debug_mode()
    if mode is None:
        raise ValueError("no DebugMode is active; expected: with DebugMode(..), assay.torch.debug_mode(..):")
    recorder = begin()
    calls = DebuggedCalls(recorder, mode)
    Finder(recorder)
    is_whole = False
    try:
        with calls.hooked():
            yield recorder
        is_whole = True
    finally:
        if not recorder.progress.has_stepped and recorder.progress.takes_now():
            recorder.weights.before_clip()  # as no optimizer comes
        recorder.close(is_whole)


class DebuggedCalls:
    """The hooks of DebugMode.dispatch_hooks. They never raise into the program."""

    def __init__(self, recorder: Recorder, mode: Any) -> None:
        self.remarks = recorder.remarks
        self._recorder, self._mode = recorder, mode
        self._calls, self._records, self._progress = recorder.calls, recorder.records, recorder.progress
        self._open: list[Call] = []
        self._counts: Counter[tuple[int, str, str]] = Counter()
        self._origin = Origin()
        self._step = -1
        self._is_in_optimizer = False
        # Collectives return before they are done: what waits for one has its result.
        self._under_way: dict[int, tuple[Place, str, str]] = {}

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        from torch.utils._debug_mode import DebugMode

        handles = [
            register_optimizer_step_pre_hook(lambda *_: self._optimize(True)),
            register_optimizer_step_post_hook(lambda *_: self._optimize(False)),
        ]
        try:
            with DebugMode.dispatch_hooks(log_hook=self._after, pre_log_hook=self._before):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _optimize(self, is_in_it: bool) -> None:
        self._is_in_optimizer = is_in_it

    # -- around a call --------------------------------------------------------------------------------------------

    @harmless
    def _before(self, func: Any, types: Any, args: Any, kwargs: Any, _: Any) -> None:
        root = self._calls.root
        if not _is_call(func, types) or root is None or not self._takes(root):
            return
        path, micro_batch = self._where(root)
        caller = self._calls.innermost
        is_again = in_backward() and caller is not None and caller.is_again
        if is_again or not in_backward():
            self._origin.note(path, micro_batch)
        # What activation checkpointing calls again was recorded in the forward pass.
        if is_again or not _makes_values(func):
            return
        self._wait(args, kwargs)
        read = _read(func, args, kwargs)
        path = f"{self._in_region(path)}.{read.op.rpartition('.')[2]}()".lstrip(".")
        phase = "backward" if in_backward() else "forward"
        number = self._counts[micro_batch, phase, path]
        self._counts[micro_batch, phase, path] += 1
        place = Place(self._progress.step, micro_batch, path, read.op, number, read.attributes)
        for arg, x in read.inputs:
            self._records.record(place, phase, "input", arg, x, within=True)
        self._open.append(Call(func, place, phase, read.outputs))

    @harmless
    def _after(self, func: Any, types: Any, args: Any, kwargs: Any, result: Any) -> None:
        if not _is_call(func, types):
            return
        if func.namespace == "_c10d_functional" and func._opname == "wait_tensor":
            self._wait((result,), {})
        while self._open and self._open[-1].func is not func:  # an exception has ended it
            self._open.pop()
        if not self._open:
            return
        call = self._open.pop()
        result = _done(result)
        for arg, y in _results(func, args, result, call.outputs):
            if func.namespace == "_c10d_functional":
                self._under_way[_memory(y)] = call.place, call.phase, arg
            else:
                self._records.record(call.place, call.phase, "output", arg, y, within=True)

    def _wait(self, args: Any, kwargs: Any) -> None:
        """For collectives, whose results are there with the first call that is given them."""
        for _, x in tensors_in("", [*args, *kwargs.values()]) if self._under_way else ():
            waited = self._under_way.pop(_memory(x), None)
            if waited is not None:
                place, phase, arg = waited
                self._records.record(place, phase, "output", arg, x, within=True)

    def _takes(self, root: Root) -> bool:
        progress = self._progress
        if not progress.is_on or torch.compiler.is_compiling() or not progress.takes_now():
            return False
        if self._step != progress.step:
            self._step = progress.step
            self._counts.clear()
            self._origin.forget()
            self._under_way.clear()
        # The optimizer's results are recorded as weights and states.
        is_between = progress.has_begun and not progress.has_stepped and not self._is_in_optimizer
        return is_between and progress.selection.takes_micro_batch(root.micro_batch)

    def _where(self, root: Root) -> tuple[str, int]:
        """The module that makes the call, as the recorder has it, and its micro-batch."""
        caller = self._calls.innermost
        if in_backward() and (caller is None or not caller.is_again):
            return self._origin.find() or (self._weight(), root.micro_batch)
        if caller is None:
            return "", root.micro_batch
        return caller.path, caller.place.micro_batch

    def _weight(self) -> str:
        """Whose gradient is added to."""
        weight = getattr(torch._C._current_autograd_node(), "variable", None)
        return "" if weight is None else self._recorder.weights.path_of(weight)

    def _in_region(self, path: str) -> str:
        """The module in a compiled region that makes the call: DebugMode's interpreter of regions knows it."""
        stack = self._mode.current_nn_module_stack
        inner = stack[-1] if stack else ""
        if not inner.startswith(_COMPILED):
            return path
        return f"{path}.{inner.partition(']')[2].lstrip('.')}".strip(".")


def _is_call(func: Any, types: Any) -> bool:
    """Of an operator, and not one that is made again with what its tensors are made of, as those of DTensors are."""
    return isinstance(func, torch._ops.OpOverload) and all(t is AsyncCollectiveTensor for t in types)


def _memory(x: torch.Tensor) -> int:
    return int(getattr(x, "elem", x).untyped_storage().data_ptr())


def _makes_values(func: Any) -> bool:
    return not (func.namespace in _NOT_CALLS or func.is_view or _name_of(func).startswith(_NO_VALUES))


def _name_of(func: Any) -> str:
    """Of calls in place that of the others."""
    name: str = func._schema.name.partition("::")[2]
    return name.removesuffix("_")


class _Read(NamedTuple):
    op: str
    inputs: list[tuple[str, torch.Tensor]]
    attributes: dict[str, Any]
    outputs: tuple[str, ...] = ()
    """Empty: nothing has names for them."""


def _read(func: Any, args: Any, kwargs: Any) -> _Read:
    """A call as the operator of the library that it is, else under its own name and those of its schema."""
    name = _name_of(func)
    try:
        known = OPERATORS[name](*args, **kwargs) if func.namespace == "aten" and name in OPERATORS else None
    except TypeError:  # an overload with other arguments
        known = None
    if known is not None:
        values = list(known.inputs.values())
        operands = [(arg, as_operand(x, values) if arg in _NUMBERS else x) for arg, x in known.inputs.items()]
        inputs = [(arg, x) for arg, x in operands if torch.is_tensor(x)]
        return _Read(known.op, inputs, _plain(known.attributes), known.outputs)
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    inputs = [tensor for arg, x in given.items() for tensor in tensors_in(arg, x)]
    return _Read(f"{func.namespace}.{name}", inputs, _plain(given))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {arg: value for arg, value in values.items() if arg != "group_name" and is_plain(value)}


def _results(func: Any, args: Any, result: Any, names: tuple[str, ...]) -> list[tuple[str, torch.Tensor]]:
    """What a call returns; if that is nothing, what it has written to."""
    if names:
        results = result if isinstance(result, tuple) else (result,)
        return [(arg, y) for arg, y in zip(names, results, strict=False) if torch.is_tensor(y)]
    made = [(arg or "y", y) for arg, y in tensors_in("", result)]
    if made:
        return made
    written = [
        (argument.name, x)
        for argument, x in zip(func._schema.arguments, args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [tensor for arg, x in written for tensor in tensors_in(arg, x)]


def _done(result: Any) -> Any:
    """Of a collective of a process group without the work that makes it, which is waited for."""
    if not (isinstance(result, tuple) and result and isinstance(result[-1], torch.ScriptObject)):
        return result
    torch.distributed.Work.unbox(result[-1]).wait()
    return result[0] if len(result) == 2 else result[:-1]
