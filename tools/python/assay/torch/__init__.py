"""Records training programs of PyTorch into dumps that `assay diff` and `assay align` read.

`assay record -- torchrun train.py` does it without a changed line. From inside:

    recorder = assay.torch.record(model, out="dump")

before the first step; the dump is there when the recorder is closed, when the steps that were asked for are over, or
when the program ends. With the Trainer of transformers:

    Trainer(model, .., callbacks=[assay.torch.trainer_callback(out="dump")])

and under PyTorch's DebugMode:

    with DebugMode(record_nn_module=True), assay.torch.debug_mode(out="dump"):
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

from torch import nn

from .._selection import Selection
from ._recorder import Recorder

__all__ = ["Recorder", "Selection", "debug_mode", "record", "trainer_callback"]


def record(
    model: nn.Module,
    *,
    out: str | os.PathLike[str] | None = None,
    **selection: Any,
) -> Recorder | None:
    """Records what a model computes from now on: inputs, outputs, gradients, parameters, optimizer states.

    Every rank of a distributed program calls it; one process needs no process group. Layouts come from DTensors, meshes
    and process groups.

    Args:
        model: also a DistributedDataParallel, or a stage of a pipeline: then once for each stage.
        out: a new folder; else what the variable ASSAY_RECORD says; without both nothing is recorded.
        selection: fields of `Selection`: ``steps="0-1"``, ``modules=["layers.0.*"]``, ``kinds=["activations"]``, ..

    Returns:
        The recorder, whose close() ends the recording; None where nothing is recorded.

    Raises:
        ValueError: for a selection that says nothing.
    """
    folder = _folder(out)
    if folder is None:
        return None
    recorder = Recorder(folder, Selection(**selection))
    recorder.attach(model)
    return recorder


def trainer_callback(*, out: str | os.PathLike[str] | None = None, **selection: Any) -> Any:
    """For `transformers.Trainer(.., callbacks=[..])`: records its first train(), as `assay record` would record it.

    Every rank gives it to its Trainer, however that wraps the model. A training that raises leaves an unfinished dump.

    Args:
        out: as of `record`.
        selection: as of `record`.

    Raises:
        ValueError: for a selection that says nothing.
        ImportError: without transformers.
    """
    from ._trainer import RecordingCallback

    folder, chosen = _folder(out), Selection(**selection)
    return RecordingCallback(None if folder is None else functools.partial(Recorder, folder, chosen))


def debug_mode(
    *, out: str | os.PathLike[str] | None = None, **selection: Any
) -> contextlib.AbstractContextManager[Recorder | None]:
    """Records what runs in a block under PyTorch's DebugMode: what `record` takes, and every call that DebugMode sees,
    aten operators and collectives, in forward and backward.

        with DebugMode(record_nn_module=True) as mode, assay.torch.debug_mode(out="dump"):

    A call is named after the module that makes it, "layers.0.mlp.silu()". Models are found as `assay record` finds
    them. Calls in compiled regions belong to their modules under DebugMode(run_compile_with_interpreter=True).

    Args:
        out: as of `record`.
        selection: as of `record`, without functions, which DebugMode's calls are.

    Raises:
        ValueError: for a selection that says nothing; where no DebugMode is active.
    """
    from ._debug_mode import debug_mode as block

    if selection.get("functions"):
        raise ValueError("functions: the calls of DebugMode are recorded instead; leave it out")
    folder, chosen = _folder(out), Selection(**selection)
    return contextlib.nullcontext() if folder is None else block(functools.partial(Recorder, folder, chosen))


def _folder(out: str | os.PathLike[str] | None) -> Path | None:
    said = os.fspath(out) if out is not None else os.environ.get("ASSAY_RECORD", "")
    return Path(said) if said else None
