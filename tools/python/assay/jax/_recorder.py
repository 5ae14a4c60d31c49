"""A step of a program that records what it computes."""

from __future__ import annotations

import atexit
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import _core
from .._selection import Selection
from ._frames import EACH, Axis, Devices, Draft, Frame, Iterations
from ._interpreter import Interpreter
from ._layouts import Grid, Part, meshes_of, without_leading
from ._names import optimizer_of, states_in, weights_in
from ._writer import Writer

RESULTS = ("loss", "grads", "params", "states")
OPTIONS = {
    "xla_allow_excess_precision": False,  # else results are handed on that are not rounded to bfloat16
    "xla_disable_hlo_passes": "fusion,priority-fusion,multi_output_fusion",  # a x + b would be rounded once
}
"""What is recorded has to be what the program computes with."""


class Program:
    """A function as one compiled program that returns its intermediate values beside its results."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, weights: set[int], functions: bool
    ) -> None:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
        self.meshes = list(_meshes_in(closed.jaxpr))
        self.interpreter = Interpreter(functions)
        self._frames: list[Frame] = []
        tree = jax.tree.structure(shapes)

        def run(flat: list[Any]) -> Any:
            self.interpreter.signatures.clear()
            results, frame = self.interpreter.run(closed, flat, weights)
            self._frames.append(frame)
            return jax.tree.unflatten(tree, results), frame.out

        self._run = jax.jit(run, compiler_options=OPTIONS)

    def __call__(self, flat: list[Any]) -> tuple[Any, list[Any], Frame]:
        results, values = self._run(flat)
        return results, values, self._frames[-1]


class Recorded:
    """Called as the function that it stands for; records its first steps and then does nothing more.

    Never raises into the program: what goes wrong is said once, and nothing more is recorded.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        out: Path,
        params: int | str,
        results: Any,
        micro_batches: int,
        selection: Selection,
        producer: dict[str, Any],
    ) -> None:
        words = set(jax.tree.leaves(results))
        if not words <= set(RESULTS):
            raise ValueError(f"results has {sorted(words - set(RESULTS))}, expected {', '.join(RESULTS)} or None")
        functools.update_wrapper(self, function, updated=())
        self.out, self.selection = out, selection
        self.remarks: Counter[str] = Counter()
        self._function, self._params, self._results = function, params, results
        self._micro_batches, self._producer = micro_batches, producer
        self._programs: dict[Any, Program] = {}
        self._calls = 0
        self._writer: Writer | None = None
        self._is_closed = False
        atexit.register(lambda: self.close(is_whole=getattr(sys, "last_value", None) is None))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat = jax.tree.leaves((args, kwargs))
        if self._is_closed or any(isinstance(x, jax.core.Tracer) for x in flat):
            return self._function(*args, **kwargs)
        step, micro_batch = divmod(self._calls, self._micro_batches)
        self._calls += 1
        if not self.selection.takes_step(step):
            results = self._function(*args, **kwargs)
        else:
            results = self._record(args, kwargs, step, micro_batch)
        last = self.selection.last_step()
        if last is not None and self._calls == (last + 1) * self._micro_batches:
            self.close()
        return results

    def close(self, is_whole: bool = True) -> None:
        """Ends the recording: the dump is there then."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._writer is None:
            print("assay: nothing was recorded: the function was not called", file=sys.stderr)
            return
        self._programs, programs = {}, self._programs
        if not is_whole:
            return
        self._writer.finish()
        for program in programs.values():
            self.remarks.update(program.interpreter.remarks)
        size = self._writer.bytes / 2**20
        print(f"assay: recorded {self._writer.tensors} tensors, {size:.1f} MiB, in {self.out}", file=sys.stderr)
        for remark in self.remarks:
            print(f"assay: {remark}", file=sys.stderr)

    # -- one call -------------------------------------------------------------------------------------------------

    def _record(self, args: Any, kwargs: Any, step: int, micro_batch: int) -> Any:
        try:
            flat = jax.tree.leaves((args, kwargs))
            weights = kwargs[self._params] if isinstance(self._params, str) else args[self._params]
            results, values, frame = self._program(args, kwargs, weights, flat)(flat)
        except Exception as error:  # what is the program's own, it raises itself
            self._fail(error)
            return self._function(*args, **kwargs)
        try:
            self._write(weights, results, values, frame, step, micro_batch)
        except Exception as error:
            self._fail(error)
        return results

    def _fail(self, error: Exception) -> None:
        self._is_closed, self._writer, self._programs = True, None, {}
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"assay: {self.out} is not recorded any more: {lines[0]}", file=sys.stderr)

    def _program(self, args: Any, kwargs: Any, weights: Any, flat: list[Any]) -> Program:
        ids = {id(x) for x in jax.tree.leaves(weights)}
        of_weights = {i for i, x in enumerate(flat) if id(x) in ids}
        shapes = tuple((np.shape(x), jax.numpy.result_type(x), getattr(x, "sharding", None)) for x in flat)
        key = jax.tree.structure((args, kwargs)), shapes
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = Program(self._function, args, kwargs, of_weights, self.selection.functions)
        if self._writer is None:
            if jax.process_count() > 1:
                raise ValueError("assay.jax records programs of one process; this one has several")
            grid = Grid.of([*program.meshes, *meshes_of(flat)])
            producer = {"framework": f"jax {jax.__version__}", "recorder": f"assay {_core.version}", **self._producer}
            self._writer = Writer(self.out, grid, producer)
        return program

    def _write(self, weights: Any, results: Any, values: list[Any], frame: Frame, step: int, micro_batch: int) -> None:
        assert self._writer is not None  # the program was made with it
        record = _Record(self._writer, step, micro_batch, self._micro_batches)
        is_last = micro_batch == self._micro_batches - 1
        if micro_batch == 0:
            record.of_weights("forward", "param", weights_in(weights))
        record.drafts(frame, values, self._result("loss", results))
        if is_last:
            for tree in self._result("grads", results):
                record.of_weights("backward", "grad", weights_in(tree))
            states = [s for tree in self._result("states", results) for s in states_in(tree, weights)]
            op = str(self._producer.get("optimizer", optimizer_of(states)))
            for tree in self._result("params", results):
                record.of_weights("optimizer", "param", weights_in(tree), op)
            record.of_weights("optimizer", "state", states, op)

    def _result(self, word: str, results: Any) -> list[Any]:
        """What the user has given that name: a subtree each."""
        found: list[Any] = []

        def visit(name: Any, tree: Any) -> None:
            if name == word:
                found.append(tree)

        if self._results is not None:
            jax.tree.map(visit, self._results, results, is_leaf=lambda x: x is None or isinstance(x, str))
        return found


class _Record:
    """The records of one call."""

    def __init__(self, writer: Writer, step: int, micro_batch: int, micro_batches: int) -> None:
        self._writer, self._step = writer, step
        self._micro_batch, self._micro_batches = micro_batch, micro_batches
        self._parts: dict[int, list[Part]] = {}

    def of_weights(self, phase: str, slot: str, tensors: Sequence[tuple[str, str, Any]], op: str = "") -> None:
        for module, arg, value in tensors:
            fields = {"phase": phase, "module": module, "slot": slot, "arg": arg, "call": 0, "op": op}
            self._add({**fields, "micro_batch": -1}, self._writer.grid.parts(value))

    def drafts(self, frame: Frame, values: Sequence[Any], losses: Sequence[Any]) -> None:
        entries = sorted(_entries(frame), key=lambda e: e[0])
        counts: dict[tuple[Any, ...], int] = {}
        numbers: dict[tuple[Any, ...], int] = {}
        for _, draft, index in entries:
            key = draft.call, index
            if key not in numbers:
                place = (_micro_batch(frame, draft, index), draft.module, _kind(draft))
                numbers[key] = counts[place] = counts.get(place, -1) + 1
        for _, draft, index in entries:
            if losses and draft.phase == "backward":
                self._losses(losses)
                losses = ()
            micro_batch = _micro_batch(frame, draft, index)
            call = numbers[draft.call, index]
            if _kind(draft) == "gradient":
                made = counts.get((micro_batch, draft.module, "module"), -1)
                if made != counts[micro_batch, draft.module, "gradient"]:
                    continue
                call = made - call  # the last call is the first whose gradient is known
            axes = frame.axes[draft.value]
            parts = [
                part if self._is_taken(frame, draft, index, rank, values) else None
                for rank, part in enumerate(self._peeled(values, draft.value, axes, index))
            ]
            fields = {
                "micro_batch": self._micro_batch * max(_micro_batches(axes), 1) + micro_batch,
                "phase": draft.phase,
                "module": draft.module,
                "slot": draft.slot,
                "arg": draft.arg,
                "call": call,
                "op": draft.op,
                "attributes": draft.attributes,
            }
            if draft.within:
                fields["within"] = True
            own = [a for axis in axes if isinstance(axis, Devices) for a in axis.axes]
            self._add(fields, parts, own)
        if losses:
            self._losses(losses)

    def _losses(self, losses: Sequence[Any]) -> None:
        for loss in losses:
            fields = {"phase": "forward", "module": "loss", "slot": "loss", "arg": "lm", "call": 0, "op": ""}
            self._add({**fields, "micro_batch": self._micro_batch}, self._writer.grid.parts(loss))

    def _add(self, fields: dict[str, Any], parts: Sequence[Part | None], own: Sequence[str] = ()) -> None:
        said = {name: value for name, value in fields.items() if value not in ("", {})}
        self._writer.add({"step": self._step, "module": "", **said}, parts, own)

    def _peeled(
        self, values: Sequence[Any], number: int, axes: tuple[Axis, ...], index: tuple[int, ...]
    ) -> Iterator[Part]:
        if number not in self._parts:
            parts = self._writer.grid.parts(values[number])
            if any(p.values.shape[d] != a.length for p in parts for d, a in _loops(axes)):
                whole = jax.device_get(values[number])  # a loop's iterations are cut over devices
                parts = self._writer.grid.parts(whole)
            self._parts[number] = parts
        rest = iter(index)
        place = tuple(next(rest) if isinstance(axis, Iterations) else 0 for axis in axes)
        for part in self._parts[number]:
            yield without_leading(part, place)

    def _is_taken(self, frame: Frame, draft: Draft, index: tuple[int, ...], rank: int, values: Sequence[Any]) -> bool:
        for number, branch in draft.taken:
            axes = frame.axes[number]
            parts = list(self._peeled(values, number, axes, index[: len(list(_loops(axes)))]))
            if int(parts[rank].values) != branch:
                return False
        return True


def _loops(axes: tuple[Axis, ...]) -> Iterator[tuple[int, Iterations]]:
    return ((d, a) for d, a in enumerate(axes) if isinstance(a, Iterations))


def _entries(frame: Frame) -> Iterator[tuple[tuple[int, ...], Draft, tuple[int, ...]]]:
    """Each draft for each iteration, with its place in the order of execution."""
    for draft in frame.drafts:
        loops = [a for _, a in _loops(frame.axes[draft.value])]
        for index in product(*(range(a.length) for a in loops)):
            order = iter(a.length - 1 - i if a.is_reversed else i for a, i in zip(loops, index, strict=True))
            yield tuple(next(order) if n == EACH else n for n in draft.at), draft, index


def _micro_batches(axes: tuple[Axis, ...]) -> int:
    return next((a.length for _, a in _loops(axes) if a.is_micro_batches), 0)


def _micro_batch(frame: Frame, draft: Draft, index: tuple[int, ...]) -> int:
    loops = [a for _, a in _loops(frame.axes[draft.value])]
    return next((i for a, i in zip(loops, index, strict=True) if a.is_micro_batches), 0)


def _kind(draft: Draft) -> str:
    return "gradient" if draft.phase == "backward" else "module"


def _meshes_in(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(item, jax.sharding.Mesh):
                    yield item
                elif isinstance(item, jax.sharding.NamedSharding):
                    yield item.mesh
                elif hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from _meshes_in(getattr(item, "jaxpr", item))
