"""Where the program is, and whether that is recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .._selection import Selection


class Progress:
    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.step = 0
        self.has_begun = self.has_gradients = self.has_stepped = False
        """Of this step: a model was called; gradients are recorded; an optimizer has stepped."""
        self.is_closed = self._is_paused = False

    def next_step(self) -> None:
        self.step += 1
        self.has_begun = self.has_gradients = self.has_stepped = False

    @property
    def is_over(self) -> bool:
        """Whether no step that is wanted can come any more."""
        last = self.selection.last_step()
        return last is not None and self.step > last

    @property
    def is_on(self) -> bool:
        return not (self.is_closed or self._is_paused)

    def is_recordable(self) -> bool:
        return (
            self.is_on
            and not (torch.compiler.is_compiling() or torch.jit.is_tracing())
            and bool(torch.is_grad_enabled())
        )

    def takes_now(self) -> bool:
        """Whether this step of this rank is wanted."""
        if not self.selection.takes_step(self.step):
            return False
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        return self.selection.takes_rank(rank)

    def unrecorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._is_paused = True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_paused = False

        return call
