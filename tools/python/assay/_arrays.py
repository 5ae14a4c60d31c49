"""Arrays of any library as tensors of the core, and results as the caller's kind of array."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from . import _core

# What numpy holds for ml_dtypes: the buffer protocol has no name for them.
_OPAQUE = {
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "float4_e2m1fn": "uint8",
}


def tensor(array: Any, dtype: str | None = None) -> _core.Tensor:
    """The array as a tensor of the core, without a copy where it lies dense on the host.

    Args:
        array: torch (any device: other devices are copied to the host once), numpy, JAX, ml_dtypes,
            anything with DLPack or the buffer protocol, in any strides; a number or nested lists of numbers
            are float64 (bool and int: int64). torch's float4_e2m1fn_x2 has two in an element, the first in the
            low bits: the last extent doubles.
        dtype: of its bits, where the array cannot say it: ``"bfloat16"`` of uint16, ``"tfloat32"`` of
            float32.
    """
    if isinstance(array, _core.Tensor):
        return array if dtype is None else _core.Tensor(array, dtype)
    if isinstance(array, (bool, int, float, list, tuple)):
        return _of_numbers(array, dtype)
    library = _library(array)
    if library == "torch":
        array = _on_host(array)
        if str(array.dtype) == "torch.float4_e2m1fn_x2":
            return _core.Tensor(_unpacked(array), dtype or "float4_e2m1fn")
    elif library in ("jax", "jaxlib"):
        array = sys.modules["jax"].device_get(array)
    return _of_numpy(array, dtype) if _library(array) == "numpy" else _core.Tensor(array, dtype)


def named(arrays: Any, default: str | None, what: str) -> list[tuple[str, _core.Tensor]]:
    """Arrays by name. One array alone is called `default`; ``None`` stands for one that was not given."""
    if not isinstance(arrays, Mapping):
        if default is None:
            raise TypeError(f"{what}: expected a mapping of names to arrays, found {type(arrays).__name__}")
        arrays = {default: arrays}
    found = []
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r} is no name; expected a str")
        if array is None:
            continue
        try:
            found.append((name, tensor(array)))
        except (_core.Error, TypeError, ValueError, BufferError) as error:
            raise type(error)(f"{what} '{name}': {error}") from None
    return found


def like(results: Iterable[tuple[str, _core.Tensor]], *given: Any) -> dict[str, Any]:
    """Results as arrays of the library that the given ones are of: torch, else numpy where it is installed."""
    libraries = {_library(a) for g in given for a in (g.values() if isinstance(g, Mapping) else [g])}
    if "torch" in libraries:
        convert = sys.modules["torch"].from_dlpack
    elif find_spec("numpy") is not None:
        convert = to_numpy
    else:

        def convert(t: _core.Tensor) -> Any:
            return t

    return {name: convert(t) for name, t in results}


def to_numpy(t: _core.Tensor) -> Any:
    """A numpy array; of bfloat16, float8 and float4 one of ml_dtypes, where that is installed."""
    import numpy

    if t.dtype not in _OPAQUE:
        return numpy.from_dlpack(t)
    try:
        import ml_dtypes
    except ImportError:  # float32 holds the same values
        return numpy.array(t.values(), dtype=numpy.float32).reshape(t.shape)
    return numpy.from_dlpack(t.bits()).view(getattr(ml_dtypes, t.dtype))


def _library(array: Any) -> str:
    for kind in type(array).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("torch", "numpy", "jax", "jaxlib"):
            return library
    return ""


def _on_host(array: Any) -> Any:
    torch = sys.modules["torch"]
    if hasattr(array, "full_tensor"):
        raise TypeError("is a DTensor; pass its full_tensor(), or to_local() for what this rank holds")
    if array.layout is not torch.strided:
        raise TypeError(f"has layout {array.layout}; expected a strided tensor: to_dense()")
    if array.is_complex():
        raise TypeError(f"is {array.dtype}; expected a real dtype")
    array = array.detach()
    if array.device.type != "cpu":
        array = array.cpu()
    return array.resolve_neg()


def _unpacked(array: Any) -> Any:
    torch = sys.modules["torch"]
    packed = torch.atleast_1d(array.contiguous().view(torch.uint8))
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def _of_numpy(array: Any, dtype: str | None) -> _core.Tensor:
    import numpy

    array = numpy.asanyarray(array)
    bits = _OPAQUE.get(array.dtype.name)
    if bits is not None:
        return _core.Tensor(array.view(bits), dtype or array.dtype.name)
    if array.dtype.kind not in "biuf" or not array.dtype.isnative or array.dtype.itemsize > 8:
        raise TypeError(f"is an array of {array.dtype}; expected floats or integers in the machine's byte order")
    return _core.Tensor(array, dtype)


def _of_numbers(numbers: Any, dtype: str | None) -> _core.Tensor:
    shape: list[int] = []
    level = numbers
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    flat: list[Any] = []

    def walk(part: Any, depth: int) -> None:
        if depth == len(shape):
            if isinstance(part, (bool, int, float)):
                flat.append(part)
                return
        elif isinstance(part, (list, tuple)) and len(part) == shape[depth]:
            for item in part:
                walk(item, depth + 1)
            return
        raise TypeError("is a ragged list; expected nested lists of equal lengths, of numbers")

    walk(numbers, 0)
    whole = bool(flat) and all(isinstance(v, int) for v in flat)
    return _core.Tensor.of_values(dtype or ("int64" if whole else "float64"), shape, [float(v) for v in flat])
