"""Finds the models of a program that nobody has changed: what it calls with gradients enabled."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._selection import Selection
from ._modules import in_backward
from ._recorder import Recorder


def begin() -> None:
    """Records what the variables ASSAY_RECORD_PROGRAM (a folder) and ASSAY_RECORD_SELECTION (as Selection.text) say, or
    reports its size to the folder ASSAY_RECORD_ESTIMATE.
    """
    reports = os.environ.get("ASSAY_RECORD_ESTIMATE")
    folder, text = os.environ["ASSAY_RECORD_PROGRAM"], os.environ.get("ASSAY_RECORD_SELECTION", "{}")
    try:
        Finder(
            Recorder(Path(folder), Selection.of(text), is_asked_for=False, reports=Path(reports) if reports else None)
        )
    except (ValueError, TypeError) as error:
        print(f"assay: nothing is recorded: ASSAY_RECORD_SELECTION: {error}", file=sys.stderr)


class Finder:
    """Stands before nn.Module.__call__ until the recording ends."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._original = original = nn.Module.__call__
        recorder.when_ended(self._restore)

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_outside and not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
                try:
                    self._look(module)
                except Exception as error:  # the program goes on
                    what = f"{type(module).__name__} is not recorded: {error}"
                    recorder.remarks[what[:300]] += 1
            return original(module, *args, **kwargs)

        nn.Module.__call__ = call

    def _look(self, module: nn.Module) -> None:
        if not torch.is_grad_enabled() or in_backward():  # what checkpointing calls again is part of a model
            return
        weights = list(module.parameters())
        if any(w.requires_grad for w in weights):
            self._recorder.attach(module)
        elif not weights and next(module.children(), None) is None:
            self._recorder.attach_beside(module)

    def _restore(self) -> None:
        nn.Module.__call__ = self._original
