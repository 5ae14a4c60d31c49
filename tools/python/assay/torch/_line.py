"""A record of a dump's index, and what is kept of its tensor."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import _sketch as sketches
from ._values import STATISTICS, copy_of, digest_of, statistics_of


@dataclass
class Line:
    """A record of the index, all but where its values lie."""

    fields: dict[str, Any]
    kept: str
    """As Selection.values has it."""
    values: torch.Tensor | None
    """On the host, dense, and nobody else's; or statistics or a sketch of them. None once they are written."""
    copied: Any
    """The event of a device after which they are there; None: they are."""
    is_written: bool = True
    """Else it only shows how large its gradient will be."""
    unsaid: tuple[int, ...] = ()
    """The dimensions of the grid over which nothing has said how they lie."""
    will_have_gradient: bool = False
    """That is recorded, too."""
    whole: torch.Tensor | None = None
    """The values beside statistics of them, where these are not enough to know them again."""
    digest: str = ""

    @staticmethod
    def of(fields: dict[str, Any], tensor: torch.Tensor, kept: str, mesh: Sequence[int] = ()) -> Line:
        """tensor: as `plain` returns it."""
        whole = None
        if kept == "sketches":
            offsets = sketches.offsets_of(fields, mesh) if sketches.is_sketched(fields["global_shape"]) else None
            if offsets is not None:
                spec = sketches.spec_for(fields["global_shape"])
                tensor = sketches.sketch(tensor, fields["global_shape"], offsets, spec)
            else:  # it is smaller, or no box
                kept = "full"
        if kept == "statistics":
            if fields.get("is_sample"):  # the same words in another order have the same statistics
                whole = tensor.to("cpu", copy=True)
            tensor = statistics_of(tensor)
        return Line(fields, kept, *copy_of(tensor), whole=whole)

    @property
    def key(self) -> Any:
        """Equal for tensors with equal values, of which one is written."""
        if self.kept != "full":
            return self.fields["seq"]
        return self.digest, self.fields["dtype"], tuple(self.fields["shape"])

    @property
    def call(self) -> tuple[Any, ...]:
        """Calls of a module in one micro-batch are not told apart."""
        return tuple(self.fields[k] for k in ("step", "micro_batch", "module", "arg"))

    @property
    def size(self) -> int:
        """Bytes, in memory."""
        return 0 if self.values is None else self.values.nbytes

    def text(self) -> str:
        return json_of(self.fields)

    @property
    def written(self) -> int:
        """Bytes, in the dump."""
        return self.size if self.has_data else len(self.text())

    @property
    def has_data(self) -> bool:
        return self.kept in ("full", "sketches")

    def see(self) -> None:
        """Waits for the values and computes what is known of them."""
        if self.copied is not None:
            self.copied.synchronize()
        assert self.values is not None  # nobody else takes them
        whole = self.values if self.whole is None else self.whole
        self.digest = digest_of(whole.contiguous(), self.kept)
        self.whole = None
        if self.kept == "sketches":
            spec = sketches.spec_for(self.fields["global_shape"])
            self.values, said = sketches.record_of(self.values, spec)
            self.fields.update(said)
        elif self.kept == "hashes":
            self.fields["checksum"] = f"sha256:{self.digest}"
        elif self.kept == "statistics":
            arithmetic = str(self.values.dtype).removeprefix("torch.")
            numbers = [_json_number(x) for x in self.values.tolist()]
            self.fields["statistics"] = dict(zip(STATISTICS, numbers, strict=True)) | {"arithmetic": arithmetic}


json_of = json.JSONEncoder(check_circular=False).encode


def _json_number(x: float) -> float | str:
    """JSON has no words for what is not finite."""
    return x if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
