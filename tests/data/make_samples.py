#!/usr/bin/env python3
"""Writes tests/data/samples: a small file of every format by the libraries that define them, and expected.json.

pip install numpy torch h5py safetensors ml_dtypes; then: make_samples.py. The outputs are committed.
"""

import collections
import io
import json
import zipfile

import h5py
import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from sample import Samples, describe, without_bits

samples = Samples("samples")
OUT, expect = samples.folder, samples.expect
random = np.random.default_rng(20260101)
torch.manual_seed(1)

# ---- npy -------------------------------------------------------------------------------------------------------------
def npy(name, array, dtype=None, version=None, **options):
    with open(OUT / f"{name}.npy", "wb") as f:
        np.lib.format.write_array(f, array, version=version, allow_pickle=False)
    expect(f"{name}.npy", {name: describe(array, dtype)}, **options)


f4 = random.standard_normal((3, 5, 4)).astype("f4")
f4.flat[:4] = [np.nan, np.inf, -np.inf, -0.0]
npy("npy_f4", f4)
npy("npy_f8_fortran", np.asfortranarray(random.standard_normal((3, 5, 4))))
npy("npy_f4_big_endian", f4.astype(">f4"), "float32")
npy("npy_i4_big_endian_fortran", np.asfortranarray(random.integers(-999, 999, (4, 6))).astype(">i4", order="F"), "int32")
npy("npy_f2_v2", random.standard_normal((7,)).astype("f2"), version=(2, 0))
npy("npy_i8_v3", random.integers(-(2**60), 2**60, (2, 3)), version=(3, 0))
npy("npy_bool", random.integers(0, 2, (3, 4)).astype(bool), "bool")
npy("npy_scalar", np.array(2.5))
npy("npy_empty", np.zeros((3, 0, 2), "f4"))
npy("npy_u2", random.integers(0, 65535, (5,)).astype("u2"))
bf16 = random.standard_normal((4, 3)).astype(ml_dtypes.bfloat16)
npy("npy_bf16", bf16, "bfloat16", dtype_hint="bfloat16")
npy("npy_bf16_as_u2", bf16.view("u2"), "bfloat16", dtype_hint="bfloat16")
npy("npy_e4m3", random.standard_normal((4, 3)).astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn", dtype_hint="float8_e4m3fn")
npy("npy_e5m2", random.standard_normal((4, 3)).astype(ml_dtypes.float8_e5m2), "float8_e5m2")

# ---- npz -------------------------------------------------------------------------------------------------------------
arrays = {"a": f4, "nested/b": np.arange(6).reshape(2, 3), "c": np.asfortranarray(np.arange(12.0).reshape(3, 4))}
np.savez(OUT / "npz_stored.npz", **arrays)
np.savez_compressed(OUT / "npz_deflated.npz", **arrays)
expect("npz_stored.npz", arrays)
expect("npz_deflated.npz", arrays)

# ---- safetensors -----------------------------------------------------------------------------------------------------
every = {
    "f64": torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
    "f32": torch.arange(7, dtype=torch.float32),
    "f16": torch.arange(6, dtype=torch.float16).reshape(2, 3),
    "bf16": torch.arange(9, dtype=torch.bfloat16).reshape(3, 3),
    "e4m3": torch.arange(5).to(torch.float8_e4m3fn),
    "e5m2": torch.arange(5).to(torch.float8_e5m2),
    "i64": torch.arange(-3, 3),
    "i32": torch.arange(3, dtype=torch.int32),
    "i16": torch.arange(3, dtype=torch.int16),
    "i8": torch.arange(-3, 3, dtype=torch.int8),
    "u8": torch.arange(250, 256, dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
}
safetensors.torch.save_file(every, OUT / "every.safetensors", metadata={"format": "pt"})
expect("every.safetensors", every)

# ---- .pt -------------------------------------------------------------------------------------------------------------
torch.save(every | {"u16": torch.arange(3).to(torch.uint16), "u32": torch.arange(3).to(torch.uint32)}, OUT / "every.pt")
expect("every.pt", every | {"u16": torch.arange(3).to(torch.uint16), "u32": torch.arange(3).to(torch.uint32)})
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
nested = {
    "model": collections.OrderedDict(
        weight=torch.nn.Parameter(base.clone()), transposed=base.t(), row=base[2], column=base[:, 1], block=base[1:3, 2:5]
    ),
    "list": [base[0], (base[1].bfloat16(), torch.tensor(3))],
    "expanded": torch.tensor([1.0, 2.0]).unsqueeze(1).expand(2, 3),
    "step": 7,
    "name": "text",
    5: torch.ones(2),
}
torch.save(nested, OUT / "nested.pt")
torch.save(nested, OUT / "nested_protocol4.pt", pickle_protocol=4)
names = {
    "model.weight": base, "model.transposed": base.t(), "model.row": base[2], "model.column": base[:, 1],
    "model.block": base[1:3, 2:5], "list.0": base[0], "list.1.0": base[1].bfloat16(), "list.1.1": torch.tensor(3),
    "expanded": nested["expanded"], "5": torch.ones(2),
}
expect("nested.pt", names)
expect("nested_protocol4.pt", names)
torch.save(base[1:].half(), OUT / "single.pt")
expect("single.pt", {"single": base[1:].half()})
torch.serialization.set_crc32_options(False)
torch.save({"x": base}, OUT / "no_crc.pt")
torch.serialization.set_crc32_options(True)
expect("no_crc.pt", {"x": base})
module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.AdamW(module.parameters())
module(torch.ones(4, 3)).sum().backward()
optimizer.step()
torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, OUT / "checkpoint.pt")
state = {"model." + k: v for k, v in module.state_dict().items()}
for i, entry in optimizer.state_dict()["state"].items():
    state |= {f"optimizer.state.{i}.{k}": v for k, v in entry.items() if isinstance(v, torch.Tensor)}
expect("checkpoint.pt", state)


def rewrite_big_endian():
    """What a big-endian machine would have written: torch itself cannot be asked for it here."""
    source = io.BytesIO()
    torch.save({"x": base, "y": torch.arange(5)}, source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(OUT / "big_endian.pt", "w") as new:
        for member in old.namelist():
            data = old.read(member)
            if member.endswith("/byteorder"):
                data = b"big"
            elif member.endswith("data/0"):
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            elif member.endswith("data/1"):
                data = np.frombuffer(data, "<i8").astype(">i8").tobytes()
            new.writestr(zipfile.ZipInfo(member), data)
    expect("big_endian.pt", {"x": base, "y": torch.arange(5)})


rewrite_big_endian()


class Stranger:
    """An object that only this script knows."""

    def __init__(self):
        self.tensor = torch.ones(1)


torch.save({"x": torch.ones(3), "odd": Stranger()}, OUT / "stranger.pt")
expect("stranger.pt", {"x": torch.ones(3)}, notes=1)

# ---- HDF5 ------------------------------------------------------------------------------------------------------------
def float_type(size, exponent, fraction, bias):
    t = h5py.h5t.IEEE_F32LE.copy()
    t.set_fields(8 * size - 1, fraction, exponent, 0, fraction)
    t.set_size(size)
    t.set_ebias(bias)
    return t


def raw(group, name, array, file_type):
    space = h5py.h5s.create_simple(array.shape)
    dataset = h5py.h5d.create(group.id, name.encode(), file_type, space)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=file_type)


with h5py.File(OUT / "every.h5", "w") as f:
    tensors = {
        "f8": np.arange(6.0).reshape(2, 3), "f4": f4, "f2": np.arange(4, dtype="f2"), "i4": np.arange(3, dtype="i4"),
        "u8": np.arange(3, dtype="u8"), "i1": np.arange(-2, 3, dtype="i1"), "scalar": np.array(4.5),
        "empty": np.zeros((0, 3), "f4"), "group/deep/x": np.arange(5.0),
    }
    for name, array in tensors.items():
        f[name] = array
    f["big"] = f4.astype(">f4")
    f["flag"] = np.array([True, False])
    f.create_dataset("chunked", data=np.arange(1000.0).reshape(20, 50), chunks=(8, 16))
    f.create_dataset("deflated", data=np.arange(1000.0).reshape(20, 50), compression="gzip", shuffle=True)
    f.create_dataset("unwritten", shape=(3,), dtype="f4", fillvalue=1.5)
    b = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    e = np.arange(6).astype(ml_dtypes.float8_e5m2)
    raw(f, "bf16", b.view("u2"), float_type(2, 8, 7, 127))
    raw(f, "e5m2", e.view("u1"), float_type(1, 5, 2, 15))
    f["text"] = "not numbers"
    f["group/loop"] = f["group"]  # a circle
    f["second_name"] = f["f8"]
    f["soft"] = h5py.SoftLink("/f4")
    f["outside"] = h5py.ExternalLink("elsewhere.h5", "/x")
    expect("every.h5", tensors | {
        "big": describe(f4), "flag": describe(np.array([True, False]), "bool"),
        "chunked": np.arange(1000.0).reshape(20, 50), "deflated": np.arange(1000.0).reshape(20, 50),
        "unwritten": np.full(3, 1.5, "f4"), "bf16": describe(b, "bfloat16"), "e5m2": describe(e, "float8_e5m2"),
    }, notes=5)
with h5py.File(OUT / "user_block.h5", "w", userblock_size=512) as f:
    f["x"] = np.arange(10.0)
expect("user_block.h5", {"x": np.arange(10.0)})
with h5py.File(OUT / "external.h5", "w") as f:
    f.create_dataset("x", (4,), "f4", external=[("secret.raw", 0, 16)])
(OUT / "secret.raw").unlink(missing_ok=True)
samples.expect_error("external.h5", "other files")

# ---- a folder of files -----------------------------------------------------------------------------------------------
folder = OUT / "folder"
(folder / "layers").mkdir(parents=True)
np.save(folder / "layers" / "0.attn.npy", f4)
torch.save(base, folder / "layers" / "0.mlp.pt")
safetensors.numpy.save_file({"w": np.arange(3.0), "b": np.arange(2.0)}, folder / "weights.safetensors")
(folder / "readme.txt").write_text("not a tensor\n")
expect("folder", {"layers/0.attn": f4, "layers/0.mlp": base, "weights/w": np.arange(3.0), "weights/b": np.arange(2.0)})

# ---- msprobe: a tree after its documentation; msprobe_samples.py has those that the tool itself wrote ------------------
def leaf(tensor, name, folder):
    torch.save(tensor, folder / "dump_tensor_data" / f"{name}.pt")
    return {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape), "Max": float("nan"),
            "Min": float("-inf"), "Mean": None, "Norm": float("inf"), "requires_grad": True, "data_name": f"{name}.pt"}


def statistics_only(tensor):
    return {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape), "Max": 1.0}


records = {}
for step in (0, 1):
    rank = OUT / "msprobe" / f"step{step}" / "proc4711"
    (rank / "dump_tensor_data").mkdir(parents=True)
    x, y, w = torch.full((2, 3), 1.0 + step), torch.arange(2).bfloat16(), torch.eye(3)[: 2 + step]
    m, api = "Module.layers.0.mlp.MLP", "Functional.linear.0"
    data = {
        f"{api}.forward": {
            "input_args": [leaf(x, f"{api}.forward.input.0", rank), None, {"type": "int", "value": 3}],
            "input_kwargs": {"bias": leaf(y, f"{api}.forward.input.bias", rank)},
            "output": [leaf(w, f"{api}.forward.output.0", rank)]},
        f"{m}.forward.1": {
            "input_args": [[leaf(x, f"{m}.forward.1.input.0.0", rank), statistics_only(x)]], "input_kwargs": {},
            "output": [leaf(y, f"{m}.forward.1.output.0", rank)],
            "parameters": {"weight": leaf(w, f"{m}.forward.1.parameters.weight", rank)}, "is_recompute": False},
        f"{m}.backward.1": {
            "input": [leaf(y, f"{m}.backward.1.input.0", rank)], "output": [leaf(x, f"{m}.backward.1.output.0", rank)]},
        f"{m}.parameters_grad.2": {"weight": [leaf(w, f"{m}.parameters_grad.2.weight", rank)]},
    }
    top = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": "/elsewhere", "data": data}
    (rank / "dump.json").write_text(json.dumps(top, indent=1))
    (rank / "stack.json").write_text(json.dumps({"0": [[f"{api}.forward"], ["File \"x.py\", line 1, NaN"]]}))
    (rank / "construct.json").write_text(json.dumps({f"{api}.forward": f"{m}.forward.1", f"{m}.forward.1": None}))
    for name, tensor in {
        "Functional.linear|forward|input|0|0": x, "Functional.linear|forward|input|bias|0": y,
        "Functional.linear|forward|output|0|0": w, "layers.0.mlp|forward|input|0.0|1": x,
        "layers.0.mlp|forward|output|0|1": y, "layers.0.mlp|forward|param|weight|1": w,
        "layers.0.mlp|backward|grad_output|0|0": y, "layers.0.mlp|backward|grad_input|0|0": x,
        "layers.0.mlp|backward|grad|weight|2": w,
    }.items():
        records[f"{name}|{step}"] = tensor
    records[f"layers.0.mlp|forward|input|0.1|1|{step}"] = without_bits("float32", x.shape, {"max": 1.0})
expect("msprobe", records)

# ---- assay-dump, JSON Lines and safetensors ----------------------------------------------------------------------------
dump = OUT / "assay_dump"
dump.mkdir()
whole = {"embedding|forward|param|weight|0|0": torch.arange(14.0).reshape(7, 2), "head|forward|output||0|0": torch.arange(6).bfloat16()}
(dump / "manifest.json").write_text(json.dumps({"format": "assay-dump", "version": 1, "world_size": 2, "mesh": {"dims": ["tp"], "shape": [2]}, "producer": {"framework": "torch"}}))
for rank in (0, 1):
    parts, lines = {}, []
    for seq, (name, tensor) in enumerate(whole.items()):
        module, phase, slot, arg, call, step = name.split("|")
        parts[f"t{seq:08}"] = part = tensor.chunk(2)[rank].contiguous()
        lines.append({"seq": seq, "step": int(step), "micro_batch": -1, "phase": phase, "module": module, "slot": slot, "arg": arg, "call": int(call),
                      "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(part.shape), "global_shape": list(tensor.shape),
                      "placements": ["Shard(dim=0)"], "mesh_coordinate": [rank], "data": {"file": f"rank{rank:05}.safetensors", "name": f"t{seq:08}"}})
    safetensors.torch.save_file(parts, dump / f"rank{rank:05}.safetensors")
    (dump / f"rank{rank:05}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
expect("assay_dump", whole, merged=True)

samples.write()
