#!/usr/bin/env python3
"""Writes tests/data/pytorch_samples: what torch.save and torch.distributed.checkpoint write, in all their forms.

pip install numpy torch; then: pytorch_samples.py. The outputs are committed. Megatron's and DeepSpeed's folders follow
their sources (dist_checkpointing/core.py, checkpoint/constants.py): the files in them are torch's own.
"""

import argparse
import collections
import hashlib
import io
import json
import os
import pickle
import tarfile

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.filesystem
import torch.distributed.checkpoint.metadata as dcp_metadata
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from sample import Samples, bits, describe

base = torch.arange(24.0).reshape(4, 6)


def values(count, dtype=torch.float32):
    return (torch.arange(count) * 1.5 - 3).to(dtype)


# ---- two ranks -------------------------------------------------------------------------------------------------------
UNEVEN, COLUMNS, BOTH = values(14).reshape(7, 2), values(12, torch.bfloat16).reshape(3, 4), values(24).reshape(4, 6)


def rank_main(rank):
    """Every rank saves its DTensors by torch.save, then all ranks save a distributed checkpoint."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.distributed.checkpoint.filesystem._generate_uuid = lambda: "0"
    line, plane = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    uneven = distribute_tensor(UNEVEN, line, [Shard(0)])
    columns = distribute_tensor(COLUMNS, line, [Shard(1)])
    copy = distribute_tensor(base, line, [Replicate()])
    partial = DTensor.from_local(torch.full((3,), 1.0 + rank), line, [Partial()])
    both = distribute_tensor(BOTH, plane, [Replicate(), Shard(0)])
    largest = DTensor.from_local(torch.ones(2), line, [Partial("max")])
    parts = {"uneven": uneven, "columns": torch.nn.Parameter(columns), "copy": copy, "partial": partial, "plain": base[0]}
    for file in (f"dtensor_rank{rank}.pt", f"ranks/step3_rank{rank}.pt"):
        torch.save(parts, file)
    torch.save({"both": both, "other_mesh": copy, "largest": largest}, f"dtensor_2d_rank{rank}.pt")
    state = {"model": {"uneven": uneven, "columns": columns, "copy": copy, "both": both, "plain": base[1]},
             "optimizer": {"step": torch.tensor(3.0), "rate": 0.5}, "scalar": torch.tensor(7), "empty": torch.zeros(0, 3)}
    dcp.save(state, checkpoint_id="dcp")
    dist.barrier()
    dist.destroy_process_group()


class Stranger:
    """An object that only this script knows."""

    def __init__(self):
        self.tensor = torch.ones(1)


class OldStorage:
    """Stands for a storage in legacy_parts: its persistent id is what torch wrote while storages had views."""

    def __init__(self, id):
        self.id = id


def main():
    samples = Samples("pytorch_samples")
    expect = samples.expect
    os.chdir(samples.folder)
    save_pt(expect)
    save_streams(samples)
    os.mkdir("ranks")
    torch.multiprocessing.spawn(rank_main, nprocs=2)
    for rank in (0, 1):
        parts = {"uneven": UNEVEN[:4] if rank == 0 else UNEVEN[4:], "columns": COLUMNS[:, 2 * rank : 2 * rank + 2]}
        expect(f"dtensor_rank{rank}.pt", parts | {"copy": base, "partial": torch.full((3,), 1.0 + rank), "plain": base[0]}, notes=1)
        expect(f"dtensor_2d_rank{rank}.pt", {"both": BOTH[2 * rank : 2 * rank + 2]}, notes=3)
    merged = {"uneven": UNEVEN, "columns": COLUMNS, "copy": base, "partial": torch.full((3,), 3.0)}
    expect("ranks", {f"step3_rank/{k}": v for k, v in merged.items()} | {f"step3_rank{rank}/plain": base[0] for rank in (0, 1)}, merged=True, notes=2)
    whole = {"model.uneven": UNEVEN, "model.columns": COLUMNS, "model.copy": base, "model.both": BOTH, "model.plain": base[1],
             "optimizer.step": torch.tensor(3.0), "scalar": torch.tensor(7), "empty": torch.zeros(0, 3)}
    expect("dcp", whole, merged=True, notes=1)
    save_one_process(expect)
    save_deepspeed(samples)
    samples.write()


# ---- .pt -------------------------------------------------------------------------------------------------------------
def save_pt(expect):
    attribute = torch.arange(3.0)
    attribute.note = "an attribute"
    arrays = {
        "f8": np.arange(3.0), "fortran": np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)), "big": np.arange(4, dtype=">i4"),
        "u1": np.arange(120, 136, dtype="u1"), "flag": np.array([True, False]), "scalar": np.float32(2.5), "empty": np.zeros((0, 2)),
        "zero_d": np.array(5), "half": np.arange(3, dtype="f2"),
    }
    tree = {
        "parameter": torch.nn.Parameter(base), "attribute": attribute, "views": [base[1:3, 2:5], (base.t(), base[:, 1])],
        "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "expanded": torch.tensor(2.0).expand(2, 3), "e4m3": values(5, torch.float8_e4m3fn), "e5m2": values(5, torch.float8_e5m2),
        "u16": torch.arange(3).to(torch.uint16), "u64": torch.arange(3).to(torch.uint64), "one": torch.tensor([1.0])[:, None],
        "default": collections.defaultdict(list, a=[base[0]]), "ordered": collections.OrderedDict(b=base[1]),
        "numpy": arrays, 7: {True: base[2]},
    }
    names = {
        "parameter": base, "attribute": attribute, "views.0": base[1:3, 2:5], "views.1.0": base.t(), "views.1.1": base[:, 1],
        "default.a.0": base[0], "ordered.b": base[1], "7.1": base[2],
    }
    names |= {k: tree[k] for k in ("channels_last", "expanded", "e4m3", "e5m2", "u16", "u64", "one")}
    for name, array in arrays.items():
        names[f"numpy.{name}"] = describe(np.asarray(array), "bool" if name == "flag" else np.asarray(array).dtype.newbyteorder("=").name)
    for protocol in (2, 4, 5):
        torch.save(tree, f"tree_{protocol}.pt", pickle_protocol=protocol)
        expect(f"tree_{protocol}.pt", names, notes=0)

    quiet = {"size": base.shape, "device": torch.device("npu:1") if hasattr(torch, "npu") else torch.device("cuda:1"), "dtype": torch.float16,
             "set": {1, 2}, "text": "x", "number": 1.5, "none": None, "settings": argparse.Namespace(a=[1])}
    strange = {
        "stranger": Stranger(), "set": {torch.ones(1)}, "sparse": base.to_sparse(), "complex": torch.ones(2, dtype=torch.complex64),
        "negated": torch._neg_view(base), "e8m0": torch.ones(2).to(torch.float8_e8m0fnu), "fnuz": torch.ones(2).to(torch.float8_e4m3fnuz),
        "meta": torch.ones(2, device="meta"), "storage": torch.ones(2).untyped_storage(), "objects": np.array([None, "x"], dtype=object),
        "record": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]), "nested": torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)]),
    }
    torch.save({"x": base[0]} | {"quiet": quiet} | strange, "objects.pt")
    expect("objects.pt", {"x": base[0]}, notes=len(strange) + 2)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    torch.save(module, "module.pt")
    expect("module.pt", {}, notes=1)
    torch.save(np.arange(3), "array.pt")
    expect("array.pt", {"array": np.arange(3)})


# ---- the old forms ---------------------------------------------------------------------------------------------------
def save_streams(samples):
    shared = torch.arange(10.0)
    tree = {"a": shared, "b": shared[4:].reshape(2, 3).t(), "p": torch.nn.Parameter(base), "half": values(5, torch.bfloat16),
            "e5m2": values(3, torch.float8_e5m2), "flag": torch.tensor([True, False]), "n": np.arange(3.0), "empty": torch.zeros(0, 2)}
    for protocol in (2, 4):
        torch.save(tree | {"complex": torch.ones(2, dtype=torch.complex64)}, f"stream_{protocol}.pt", pickle_protocol=protocol,
                   _use_new_zipfile_serialization=False)
        samples.expect(f"stream_{protocol}.pt", tree, notes=1)

    # What torch wrote while a storage could be a part of another: key, offset and size of the part come last. torch
    # still reads it, so it is the judge of this file.
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.id if isinstance(obj, OldStorage) else None

    def tensor(part, offset, size):
        class Pickled:
            def __reduce__(self):
                storage = OldStorage(("storage", torch.FloatStorage, "11", "cpu", 10, part))
                return torch._utils._rebuild_tensor, (storage, offset, (size,), (1,))
        return Pickled()

    with open("stream_parts.pt", "wb") as f:
        for header in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
            pickle.dump(header, f, protocol=2)
        Pickler(f, protocol=2).dump({"whole": tensor(None, 2, 3), "part": tensor(("12", 4, 6), 1, 5)})
        pickle.dump(["11"], f, protocol=2)
        f.write((10).to_bytes(8, "little") + bits(shared))
    judge = torch.load("stream_parts.pt")
    assert torch.equal(judge["whole"], shared[2:5]) and torch.equal(judge["part"], shared[5:10])
    samples.expect("stream_parts.pt", judge)

    with tarfile.open("old_tar.pt", "w") as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    samples.expect_error("old_tar.pt", "before 0.1.10")


# ---- checkpoints of one process --------------------------------------------------------------------------------------
def save_one_process(expect):
    # Python 3.11.0 to 3.11.3 pickled the members of an enum so.
    torch.distributed.checkpoint.filesystem._generate_uuid = lambda: "0"
    encoding = dcp_metadata._MEM_FORMAT_ENCODING
    encoding.__reduce_ex__ = lambda self, protocol: (getattr, (encoding, self._name_))
    dcp.save({"x": base, "y": base[0].half()}, checkpoint_id="dcp_getattr", no_dist=True)
    del encoding.__reduce_ex__
    expect("dcp_getattr", {"x": base, "y": base[0].half()}, merged=True)

    dcp.save({"decoder.layers.mlp.weight": base}, checkpoint_id="megatron", no_dist=True)
    torch.save({"args": {"lr": 0.1}, "iteration": 3, "rng": torch.arange(4)}, "megatron/common.pt")
    with open("megatron/metadata.json", "w") as f:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}, f)
    digests = {name: hashlib.sha256(open(f"megatron/{name}", "rb").read()).hexdigest() for name in sorted(os.listdir("megatron"))}
    with open("megatron/integrity.json", "w") as f:
        json.dump({"algorithm": "sha256", "files": digests}, f)
    expect("megatron", {"decoder.layers.mlp.weight": base, "common/rng": torch.arange(4)}, merged=True, notes=1)


def save_deepspeed(samples):
    names = {}
    for number, parameter in enumerate(("model.layers.0.weight", "model.norm.bias")):
        folder = f"deepspeed/zero/{parameter}"
        os.makedirs(folder)
        for state in ("fp32", "exp_avg", "exp_avg_sq"):
            value = base[: 2 + number] + len(state)
            torch.save({"param": value, "cat_dim": 0} if number == 0 else value, f"{folder}/{state}.pt")
            names[f"{parameter}|none|param||0|0" if state == "fp32" else f"{parameter}|none|state|{state}|0|0"] = value
        torch.save(torch.tensor(5.0) if number == 0 else 5, f"{folder}/step.pt")
    names["model.layers.0.weight|none|state|step|0|0"] = torch.tensor(5.0)
    torch.save({"module": {}}, "deepspeed/mp_rank_00_model_states.pt")
    samples.expect("deepspeed", names, notes=2)
    os.mkdir("deepspeed_shards")
    torch.save({}, "deepspeed_shards/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
    samples.expect_error("deepspeed_shards", "ds_to_universal")


if __name__ == "__main__":
    main()
