"""One rank's part of a dump, written by a thread while the program goes on."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import _core
from .._arrays import tensor as core_tensor
from .._selection import Selection
from ._finish import Facts, await_facts, leave_out_evaluations, settle
from ._grid import Grid
from ._line import Line, json_of
from ._size import LESS, Gauge, Sizes, free_at, words
from ._values import digest_of

QUEUE_BYTES = 1 << 30
"""Copies that wait for the disk. Beyond it the program waits, and the end of the recording says for how long."""
LONGEST_WAIT = 60.0
"""Seconds for which the program waits in all; then tensors are left out, and the end of the recording says how many."""


@dataclass
class Account:
    """What the end of a recording says."""

    tensors: int = 0
    bytes: int = 0
    waited: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)
    evaluations: int = 0
    """Calls of the model that nothing was handed back to."""
    recomputed: Counter[str] = field(default_factory=Counter)
    """Calls of modules that return other values in backward, where they are repeated."""

    def leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


class Writer:
    """Never raises into the program: what goes wrong is said once, and what follows is left out."""

    def __init__(
        self, folder: Path, rank: int, world_size: int, grid: Grid, producer: dict[str, Any], selection: Selection
    ) -> None:
        self.folder, self.rank, self.world_size, self.grid, self.producer = folder, rank, world_size, grid, producer
        self._selection = selection
        self.account = Account()
        self.facts = Facts(grid.coordinate(rank))
        self._lines: list[Line] = []
        # What is recorded twice is written once: the output of a module and the input of the next. By its values, as
        # torch's version counters do not see what collectives and kernels write in place.
        self._written: dict[Any, tuple[str, int]] = {}
        self._queue: queue.SimpleQueue[tuple[Callable[..., None], Any] | None] = queue.SimpleQueue()
        self._held: list[Line] | None = []  # until it is known how large the dump will be
        self._gauge = Gauge(selection)
        self._is_gauging = True  # in the first step
        self._outputs: dict[tuple[Any, ...], set[str]] = {}
        self._differing: set[Any] = set()
        self._room = threading.Condition()
        self._waiting = 0  # bytes
        self._problem = ""
        self._is_whole = True
        self._recording: _core.Recording | None = None
        self._thread = threading.Thread(target=self._work, name="assay-record", daemon=True)
        self._thread.start()

    def add(self, line: Line) -> None:
        """In execution order."""
        self._put(self._take, line)

    def compare(self, line: Line) -> None:
        """An output that should be that of the same call before; a segment has the calls that are repeated together."""
        self._put(self._compare, line)

    def _put(self, do: Callable[[Line], None], line: Line) -> None:
        if self._problem:
            self.account.leave_out(self._problem)
            return
        size = line.size
        with self._room:
            start = time.monotonic()
            while self._waiting and self._waiting + size > QUEUE_BYTES and not self._problem:
                left = LONGEST_WAIT - self.account.waited - (time.monotonic() - start)
                if left <= 0 or not self._room.wait(left):
                    break
            else:
                left = 1.0
            self.account.waited += time.monotonic() - start
            if left <= 0:
                self.account.leave_out("the disk is slower than the program")
                return
            self._waiting += size
        self._queue.put((do, line))

    def note_sample(self, which: str, values: torch.Tensor, copied: Any) -> None:
        """What a model was given, where it is not recorded."""
        if copied is not None:
            copied.synchronize()
        self.facts.samples[which] = digest_of(values, self._selection.values)

    def estimate(self, weights: Sizes) -> None:
        """Behind the first call of a model: says how large the dump will be, and lets nothing be written of one that
        does not fit.

        weights: what a step records of them behind the call.
        """
        self._queue.put((self._estimate, weights))

    def check(self) -> None:
        """Behind the first step: whether those that come fit, too."""
        self._queue.put((self._check, None))

    def close(self, is_whole: bool) -> None:
        """Ends the part, in the thread: other ranks may need this one's program to go on before they end theirs."""
        self._is_whole = is_whole
        self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    @property
    def is_estimating(self) -> bool:
        """It is not known yet how large the dump will be."""
        return self._held is not None

    @property
    def problem(self) -> str:
        return self._problem

    def _fail(self, problem: str) -> None:
        self._problem = problem
        print(f"assay: rank {self.rank} is not recorded any more: {problem}", file=sys.stderr, flush=True)

    def _work(self) -> None:
        for item in iter(self._queue.get, None):
            self._try(*item)
        self._try(self._release)
        if self._is_whole:
            self._try(self._finish)
        self._recording = None
        self._lines.clear()

    def _try(self, do: Callable[..., None], given: Any = None) -> None:
        try:
            if not self._problem:
                do() if given is None else do(given)
        except Exception as error:  # of the program this is not
            self._fail(str(error))
        if self._problem:
            for line in (given, *(self._held or ())):
                if isinstance(line, Line):
                    self._let_go(line)
            self._held = None

    def _let_go(self, line: Line) -> None:
        size, line.values = line.size, None
        with self._room:
            self._waiting -= size
            self._room.notify_all()

    def _take(self, line: Line) -> None:
        line.see()
        if self._is_gauging:
            self._gauge.see(line)
        if line.fields["slot"] == "output":
            self._outputs.setdefault(line.call, set()).add(line.digest)
        if self._held is None:
            self._store(line)
            return
        self._held.append(line)
        if self._waiting > QUEUE_BYTES / 2:  # the program must not wait for an estimate
            self._release()

    def _compare(self, line: Line) -> None:
        first = self._outputs.get(line.call)
        segment = line.fields["segment"]
        line.see()
        if first is not None and line.digest not in first and segment not in self._differing:
            self._differing.add(segment)  # what comes behind follows from it
            self.account.recomputed[line.fields["module"]] += 1
        self._let_go(line)

    def _release(self) -> None:
        while self._held:
            self._store(self._held.pop(0))
        self._held = None

    def _estimate(self, weights: Sizes) -> None:
        estimate = self._gauge.estimate(weights, self.world_size)
        place, free = free_at(self.folder)
        if self._is_first:
            print(f"assay: the dump has {estimate.text()}; {place} has {words(free)} free", file=sys.stderr, flush=True)
        if estimate.total > free:
            self.folder.mkdir(parents=True, exist_ok=True)  # empty: something was called, and not recorded
            raise ValueError(f"it does not fit; {LESS}")
        self._release()

    def _check(self) -> None:
        self._is_gauging = False
        rest = self._gauge.rest(self.world_size)
        place, free = free_at(self.folder)
        if rest > free:
            raise ValueError(f"the next steps have about {words(rest)}, {place} has {words(free)} free; {LESS}")

    @property
    def _is_first(self) -> bool:
        """Of the ranks that are recorded."""
        return not any(self._selection.takes_rank(rank) for rank in range(self.rank))

    def _store(self, line: Line) -> None:
        try:
            self._write(line)
        finally:
            self._let_go(line)

    def _write(self, line: Line) -> None:
        if not line.is_written:
            return
        if self._recording is None:
            self._recording = self._begin()
        try:
            core_tensor(torch.empty(0, dtype=getattr(torch, line.fields["dtype"])))  # a dtype that dumps have
            if line.has_data:
                self._write_values(line, self._recording)
            else:
                self._recording.note(line.text())
                self.account.bytes += len(line.text())
        except (TypeError, ValueError, BufferError) as error:
            self.account.leave_out(f"{line.fields['dtype']}: {error}")
            return
        self._lines.append(line)
        self.account.tensors += 1

    def _write_values(self, line: Line, recording: _core.Recording) -> None:
        if line.key not in self._written:
            self._written[line.key] = recording.write(core_tensor(line.values))
            self.account.bytes += line.size
        dataset, offset = self._written[line.key]
        line.fields["data"] = {"file": recording.file, "name": dataset}
        recording.note(json_of(line.fields | {"data": line.fields["data"] | {"offset": offset}}))

    def _begin(self) -> _core.Recording:
        manifest = self.folder / "manifest.json.unfinished"
        if self.rank == 0:
            producer = json.dumps(self.producer)
            _core.begin_dump(str(self.folder), self.world_size, self.grid.dims, self.grid.shape, producer)
        else:
            _await(lambda: manifest.exists(), 60, f"rank 0 has not begun the dump {self.folder} within a minute")
        for ending in (".h5", ".h5.unfinished"):
            if (self.folder / f"rank{self.rank:05}{ending}").exists():
                raise ValueError(f"{self.folder} has a recording of this rank; record into a new folder")
        return _core.Recording(str(self.folder), self.rank, self.grid.dims, self.grid.shape)

    def _finish(self) -> None:
        recording = self._recording or self._begin()
        facts = [self.facts]
        self.account.evaluations = leave_out_evaluations(self._lines)
        if self.world_size > 1:
            self.facts.note(self._lines)
            facts = await_facts(self.folder, self.rank, self.world_size, self.facts)
        settle(self._lines, facts, self.grid, self.rank)
        lines = sorted((line.fields for line in self._lines), key=lambda f: int(f["seq"]))
        recording.finish("".join(json_of(fields) + "\n" for fields in lines))
        finished = [self.folder / f"rank{r:05}.h5" for r in range(self.world_size)]
        if all(path.exists() for path in finished):  # the last rank; of two at once the second finds it done
            try:
                _core.finish_dump(str(self.folder))
            except _core.Error:
                if not (self.folder / "manifest.json").exists():
                    raise
            for path in (*self.folder.glob("rank*.facts"), *self.folder.glob("rank*.jsonl.unfinished")):
                path.unlink(missing_ok=True)


def _await(is_there: Callable[[], bool], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > end:
            raise ValueError(otherwise)
        time.sleep(0.01)
