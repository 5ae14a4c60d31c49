"""What is kept of a tensor: its values, or what is computed of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

WINDOW = {"cpu": 1 << 18}
"""Elements at a time in float64: on a CPU as many as its caches hold."""
WINDOW_ON_DEVICE = 1 << 24

STATISTICS = ("min", "max", "mean", "l2")
"""As `statistics_of` has them, and the index of a dump."""


def plain(values: torch.Tensor) -> torch.Tensor:
    """As dumps have them, without a copy where that can be: no format of them has complex numbers."""
    values = values.detach().resolve_conj()
    if values.is_complex():
        values = torch.view_as_real(values)  # [.., 2]
    return values.resolve_neg()


def copy_of(values: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The values as they are now, on the host, dense; and the event after which a device has copied them.

    values: as `plain` returns them.
    """
    if values.device.type == "cpu":
        return values.clone(memory_format=torch.contiguous_format), None
    device = getattr(torch, values.device.type, None)
    if device is None or not hasattr(device, "Event"):
        return values.cpu().contiguous(), None
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    event = device.Event()
    event.record()
    return host, event


def statistics_of(values: torch.Tensor) -> torch.Tensor:
    """The smallest, the largest, their mean and their norm, in one tensor on the device that has them.

    One NaN makes each of them NaN. They are added up in float64, so that the sums of any order agree to 1e-8 and less
    up to 2^26 elements; in float32, which is the dtype of what is returned then, where a device has no float64.
    """
    flat = values.reshape(-1)
    if flat.numel() == 0:
        return torch.zeros(len(STATISTICS), dtype=torch.float64, device=values.device)
    least = most = total = squares = None
    for wide in _wide(flat):
        low, high = torch.aminmax(wide)
        least = low if least is None else torch.minimum(least, low)
        most = high if most is None else torch.maximum(most, high)
        total = wide.sum() if total is None else total + wide.sum()
        squares = torch.dot(wide, wide) if squares is None else squares + torch.dot(wide, wide)
    assert least is not None and most is not None and total is not None and squares is not None
    return torch.stack((least, most, total / flat.numel(), squares.sqrt()))


def _wide(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    for window in flat.split(WINDOW.get(flat.device.type, WINDOW_ON_DEVICE)):
        try:
            yield window.to(torch.float64)
        except TypeError:  # such as Apple's
            yield window.to(torch.float32)


def digest_of(values: torch.Tensor, kept: str) -> str:
    """Of the little-endian bytes in C order. Two different tensors of a recording have one of 128 bits with a chance
    below 1e-20.

    values: on the host, dense.
    kept: as Selection.values has it: "hashes" are SHA-256.
    """
    raw = values.reshape(-1).view(torch.uint8).numpy() if values.numel() else b""
    if kept == "hashes":
        return hashlib.sha256(raw).hexdigest()
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
