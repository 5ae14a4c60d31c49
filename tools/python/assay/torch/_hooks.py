"""Hooks of a recorder on modules and on functions of torch."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from ._calls import Calls
    from ._progress import Progress
    from ._weights import Weights


class Hook:
    """A copy or a file of a module has hooks that do nothing: its recorder is not part of it."""

    def __init__(self, method: Callable[..., Any], *first: Any) -> None:
        self._method, self._first = method, first

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling():  # first, so that nothing of a recorder gets into what is compiled
            return None
        return self._method(*self._first, *args)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _no_hook, ()


class ModuleHooks:
    """Of the modules inside of models, which have them in the steps that are recorded and cost nothing in others."""

    def __init__(self) -> None:
        self._all: list[tuple[nn.Module, Hook, Hook]] = []
        self._handles: list[Any] = []
        self._are_on = False

    def add(self, module: nn.Module, before: Hook, after: Hook) -> None:
        self._all.append((module, before, after))
        if self._are_on:
            self._handles += hook(module, before, after)

    def switch(self, on: bool) -> None:
        """Not while a module in the model is being called."""
        if on == self._are_on:
            return
        self._are_on = on
        for module, before, after in self._all if on else ():
            self._handles += hook(module, before, after)
        while not on and self._handles:
            self._handles.pop().remove()


def hook(module: nn.Module, before: Hook, after: Hook) -> list[Any]:
    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        # First, so that outputs are seen as the module made them, before parallelize_module turns them into others.
        module.register_forward_hook(after, prepend=True),
    ]


def _no_hook() -> Callable[..., None]:
    return _nothing


def _nothing(*_: Any) -> None:
    pass


def patch(calls: Calls, weights: Weights, progress: Progress) -> Callable[[], None]:
    """Losses are what backward is called on; gradients are recorded before they are clipped.

    Returns what takes it back.
    """
    originals = []

    def wrap(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
        if hasattr(owner, name):
            originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, wrapped(getattr(owner, name)))

    def before(action: Callable[[Any], None]) -> Callable[[Any], Any]:
        return functools.partial(_called_before, action)

    wrap(torch.autograd, "backward", before(lambda args: calls.before_backward(args[0] if args else ())))
    for module in (nn.utils, nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grads_with_norm_", "clip_grad_value_"):
            wrap(module, name, before(lambda args: weights.before_clip()))

    def wrap_stages(module: Any) -> None:
        # A pipeline calls its stages once with anything, to learn the shapes.
        for name in ("_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference"):
            wrap(module.PipelineStage, name, progress.unrecorded)

    pipelines = _WhenImported("torch.distributed.pipelining.stage", wrap_stages)

    def unpatch() -> None:
        pipelines.forget()
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)

    return unpatch


class _WhenImported(importlib.abc.MetaPathFinder):
    """Acts on a module once a program has it: to import it for those that do not takes seconds."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self.name, self.action = name, action
        if name in sys.modules:
            action(sys.modules[name])
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        self.forget()
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def forget(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _called_before(before: Callable[[Any], None], original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        before(args or tuple(kwargs.values()))
        return original(*args, **kwargs)

    return call
