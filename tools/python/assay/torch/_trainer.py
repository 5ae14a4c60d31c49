"""The Trainer of transformers: a callback that records what it trains."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerCallback

from ._program import Finder
from ._recorder import Recorder


class RecordingCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there where this is checked
    """Records the first training of its Trainer, from its first call of a model to its end.

    The models are found as `assay record` finds them: what a callback is given as the model is not what is called
    under DistributedDataParallel and torch.compile.
    """

    def __init__(self, begin: Callable[[], Recorder] | None) -> None:
        """None: nothing is recorded."""
        self._begin = begin
        self._recorder: Recorder | None = None
        if begin is not None:
            self._close_if_raised()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._begin is not None:  # batches of a size that does not fit begin twice, and the recording once
            self._recorder, self._begin = self._begin(), None
            Finder(self._recorder)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._close(is_whole=True)

    def _close(self, is_whole: bool) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close(is_whole)

    def _close_if_raised(self) -> None:
        """A Trainer tells its callbacks of no exception."""
        original = Trainer.train

        @functools.wraps(original)
        def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(trainer, *args, **kwargs)
            except BaseException:
                if self in trainer.callback_handler.callbacks:
                    self._close(is_whole=False)
                raise

        Trainer.train = train
