#!/usr/bin/env python3
"""Samples of the files that need no framework's reader: numpy's, safetensors with index and shards, GGUF, raw bytes.

Each is written by the library that defines its format. Run with: python tests/data/files_samples.py
(numpy, ml_dtypes, torch 2.13, safetensors, gguf 0.19). What no writer makes is by hand, and says so."""
import json
import struct
import zipfile

import gguf
import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import save
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from sample import Samples, describe

WEIGHT = torch.arange(35, dtype=torch.float32).reshape(5, 7)
BIAS = torch.arange(5).bfloat16()
COLUMNS = torch.arange(12, dtype=torch.float64).reshape(3, 4)


def by_hand(path, header, data):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_npy(samples):
    def npy(name, text, data, dtype, array, **options):
        head = text.encode()
        (samples.folder / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
        samples.expect(f"{name}.npy", {name: describe(array, dtype)}, **options)

    b = np.arange(-3, 3).astype(ml_dtypes.bfloat16).reshape(2, 3)
    npy("bfloat16_by_hand", "{'descr': 'bfloat16', 'fortran_order': False, 'shape': (2, 3), }\n", b.tobytes(), "bfloat16", b)
    i = np.arange(6, dtype="i4").reshape(2, 3)
    npy("python2", "{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 3L), }\n", i.tobytes(), "int32", i)
    # As numpy did before 1.14: data at a multiple of 16 only, here of none.
    npy("unaligned", '{"shape":(2,3),"fortran_order":True,"descr":">i4"}', i.T.astype(">i4").tobytes(), "int32", i)
    arrays = {"bf16": np.arange(4).astype(ml_dtypes.bfloat16), "f4": np.arange(3, dtype="f4"), "u1": np.arange(3, dtype="u1")}
    np.savez(samples.folder / "hinted.npz", **arrays)
    samples.expect("hinted.npz", {"bf16": describe(arrays["bf16"], "bfloat16"), "f4": arrays["f4"], "u1": arrays["u1"]}, dtype_hint="bfloat16")
    # Objects, structures and text stand beside numbers in many an npz.
    np.savez(samples.folder / "mixed.npz", objects=np.array([None, {}]), pairs=np.zeros(2, "f4,i4"), text=np.array("a"), x=np.arange(3.0))
    with zipfile.ZipFile(samples.folder / "mixed.npz", "a") as archive:
        archive.writestr("readme.txt", "no array")
    samples.expect("mixed.npz", {"x": np.arange(3.0)}, notes=4)


def make_safetensors(samples):
    # Leading white space, and data at any address, as old writers and MLX left it.
    by_hand(samples.folder / "unaligned.safetensors",
            b' \n{"odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"x":{"dtype":"F64","shape":[2],"data_offsets":[3,19]},'
            b'"u":{"dtype":"U64","shape":[1],"data_offsets":[19,27]}}',
            bytes([1, 2, 3]) + struct.pack("<2dQ", 1.5, -2.5, 2**64 - 1))
    samples.expect("unaligned.safetensors", {"odd": np.array([1, 2, 3], "u1"), "x": np.array([1.5, -2.5]), "u": np.array([2**64 - 1], "u8")})
    # Types without a name in assay are left out; the file is read.
    others = {"c": torch.ones(2, dtype=torch.complex64), "e": torch.ones(3).to(torch.float8_e8m0fnu), "x": torch.ones(2),
              "z": torch.ones(3).to(torch.float8_e4m3fnuz)}
    safetensors.torch.save_file(others, samples.folder / "others.safetensors")
    samples.expect("others.safetensors", {"x": torch.ones(2)}, notes=3)
    # A sub-byte type, which torch writes for float4_e2m1fn_x2; by hand, as numpy and torch 2.13 disagree about its shape.
    by_hand(samples.folder / "packed.safetensors",
            {"q": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}, "x": {"dtype": "U16", "shape": [1], "data_offsets": [2, 4]}}, b"\1\2\3\4")
    samples.expect("packed.safetensors", {"q": describe(np.array([1, 0, 2, 0], "u1"), "float4_e2m1fn"), "x": np.array([0x0403], "u2")})


def make_index(samples):
    """As transformers' save_pretrained does; its index is by hand, since it is JSON."""
    folder = samples.folder / "sharded"
    folder.mkdir()
    files = {"model-00001-of-00002.safetensors": {"layers.0.weight": WEIGHT, "layers.0.bias": BIAS},
             "model-00002-of-00002.safetensors": {"head": COLUMNS}}
    for name, tensors in files.items():
        safetensors.torch.save_file(tensors, folder / name, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": {t: f for f, tensors in files.items() for t in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (folder / "config.json").write_text("{}\n")
    whole = {"layers.0.weight": WEIGHT, "layers.0.bias": BIAS, "head": COLUMNS}
    samples.expect("sharded", whole)
    samples.expect("sharded/model.safetensors.index.json", whole)


def make_one_file(samples):
    """As save_pretrained does with a model that is small; a trainer leaves other files beside it."""
    folder = samples.folder / "one_file"
    folder.mkdir()
    whole = {"layers.0.weight": WEIGHT, "head": COLUMNS}
    safetensors.torch.save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    safetensors.torch.save_file({"x": BIAS}, folder / "other.safetensors")
    (folder / "config.json").write_text("{}\n")
    samples.expect("one_file", whole, notes=1)


def write_shards(rank, folder, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = {"weight": distribute_tensor(WEIGHT, mesh, [Shard(0)]), "columns": distribute_tensor(COLUMNS, mesh, [Shard(1)]),
             "norm": distribute_tensor(BIAS, mesh, [Replicate()])}
    save(state, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
    dist.destroy_process_group()


def make_shards(samples):
    folder = samples.folder / "dcp"
    rendezvous = samples.folder / "rendezvous"
    torch.multiprocessing.spawn(write_shards, args=(str(folder), str(rendezvous)), nprocs=2)
    rendezvous.unlink(missing_ok=True)
    samples.expect("dcp", {"weight": WEIGHT, "columns": COLUMNS, "norm": BIAS}, merged=True, notes=1)


def make_gguf(samples):
    tensors = {"f32": np.arange(24, dtype="f4").reshape(2, 3, 4), "f16": np.arange(5, dtype="f2"), "f64": np.arange(3.0), "i8": np.arange(-2, 3, dtype="i1"),
               "i16": np.arange(3, dtype="i2"), "i32": np.arange(3, dtype="i4"), "i64": np.arange(-1, 2)}
    bf16 = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    for name, order, alignment in (("little", gguf.GGUFEndian.LITTLE, 32), ("big", gguf.GGUFEndian.BIG, 64)):
        path = samples.folder / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, "llama", endianess=order)
        writer.add_custom_alignment(alignment)
        writer.add_string("general.name", "tiny")
        writer.add_bool("yes", True)
        writer.add_float64("pi", 3.25)
        writer.add_array("tokens", ["<s>", "", "caf\u00e9"])
        writer.add_array("nested", [[1, 2], [3]])
        writer.add_array("empty", [1.5, 2.5])
        for key, tensor in tensors.items():
            writer.add_tensor(key, tensor)
        writer.add_tensor("bf16", bf16.view("u1") if order == gguf.GGUFEndian.LITTLE else bf16.view("u2").byteswap().view("u1"), raw_dtype=gguf.GGMLQuantizationType.BF16)
        writer.add_tensor("q8", gguf.quantize(np.ones((2, 32), "f4"), gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        samples.expect(f"{name}.gguf", tensors | {"bf16": describe(bf16, "bfloat16")}, notes=1)
    # Version 2 differs from 3 in the number alone.
    data = bytearray((samples.folder / "little.gguf").read_bytes())
    data[4] = 2
    (samples.folder / "version2.gguf").write_bytes(data)
    samples.expect("version2.gguf", tensors | {"bf16": describe(bf16, "bfloat16")}, notes=1)


if __name__ == "__main__":
    samples = Samples("files_samples")
    make_npy(samples)
    make_safetensors(samples)
    make_index(samples)
    make_one_file(samples)
    make_shards(samples)
    make_gguf(samples)
    samples.write()
