"""What the scripts that make samples share: a folder of files and its expected.json, which lists, per file or folder, the
tensors that must be read from it: name, dtype, shape, and its C-order little-endian bits, or the statistics and the
checksum where no more was recorded. The names of records of a training run are "module|phase|slot|arg|call|step", with
"|micro-batch" if it is known."""

import json
import pathlib
import shutil

import numpy as np
import torch


def bits(value):
    """C-order little-endian bytes of a torch tensor or numpy array."""
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous()
        return bytes(value.flatten().view(torch.uint8).numpy().tobytes()) if value.numel() else b""
    value = np.ascontiguousarray(value)
    return value.astype(value.dtype.newbyteorder("<")).tobytes()


def describe(value, dtype=None):
    name = dtype or str(value.dtype).removeprefix("torch.").lstrip("<>=|")
    return {"dtype": name, "shape": list(value.shape), "bits": bits(value).hex()}


def without_bits(dtype, shape, statistics=None, checksum=""):
    """statistics: of min, max, mean, l2 those that were recorded."""
    text = {k: str(v).lower() if v != v or abs(v) == float("inf") else v for k, v in (statistics or {}).items()}
    return {"dtype": dtype, "shape": list(shape), "statistics": text, "checksum": checksum}


class Samples:
    """An emptied folder beside the scripts, tests/data/<name>; every folder there with an expected.json is tested."""

    def __init__(self, name):
        self.folder = pathlib.Path(__file__).parent / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.expected = {}

    def expect(self, file, tensors, **options):
        """options: dtype_hint, merged (parts of ranks are put together), notes (how many notes and things left out)."""
        made = {name: t if isinstance(t, dict) else describe(t) for name, t in tensors.items()}
        self.expected[file] = {"tensors": made} | options

    def expect_error(self, file, part):
        self.expected[file] = {"error": part}

    def write(self):
        (self.folder / "expected.json").write_text(json.dumps(self.expected, indent=1) + "\n")
