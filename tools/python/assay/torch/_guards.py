"""What keeps a recorder out of the program: it raises nothing into it, and autograd does not see it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of an object with remarks: what goes wrong in it is remarked, and the program goes on."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.remarks[f"something is not recorded: {type(error).__name__}: {error}"[:300]] += 1
            return None

    return call


def unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of an object with a lock: autograd and modes do not see what it does, and one thread does it at a time."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        has_modes = torch._C._len_torch_dispatch_stack() > 0
        with (
            self.lock,
            torch._C.DisableTorchFunction(),
            _disable_current_modes() if has_modes else contextlib.nullcontext(),
        ):
            was_enabled = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)  # a tenth of what no_grad() takes, which is a tenth of a record
            try:
                return method(self, *args, **kwargs)
            finally:
                torch._C._set_grad_enabled(was_enabled)

    return call
