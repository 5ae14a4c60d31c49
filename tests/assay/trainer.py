"""A subject of an alignment that trains nothing: y = 2 x, cut over tp, in an assay-dump written with the standard
library alone.   usage: trainer.py TROUBLE DUMP TP; the trouble comes with tp=2 only.
"""
import json
import os
import struct
import sys
import time
from pathlib import Path


def write_rank(dump, rank, tensors):
    """tensors: (index fields, shape, values as float32)"""
    header, data, lines = {}, b"", []
    for number, (fields, shape, values) in enumerate(tensors):
        raw = struct.pack(f"<{len(values)}f", *values)
        header[f"t{number}"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
        line = {"seq": number, "step": 0, "micro_batch": 0, "phase": "forward", "call": 0, "dtype": "float32", "shape": shape,
                "mesh_coordinate": [rank], "data": {"file": f"rank{rank:05}.safetensors", "name": f"t{number}"}}
        lines.append(json.dumps(line | fields) + "\n")
    text = json.dumps(header).encode()
    Path(dump, f"rank{rank:05}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    Path(dump, f"rank{rank:05}.jsonl").write_text("".join(lines))


def write_manifest(dump, ranks):
    os.makedirs(dump)
    manifest = {"format": "assay-dump", "version": 1, "world_size": ranks, "mesh": {"dims": ["tp"], "shape": [ranks]}}
    Path(dump, "manifest.json").write_text(json.dumps(manifest))


def main(trouble, dump, tp):
    if tp != 2:
        trouble = ""
    if trouble == "exits":
        sys.exit("starting\nRuntimeError: no data\n=======")
    if trouble == "status":
        print("no data")
        sys.exit(3)
    if trouble == "hangs":
        print("step 0", flush=True)
        time.sleep(100)
    if trouble == "killed":
        os.kill(os.getpid(), 9)
    if trouble == "nothing":
        return
    write_manifest(dump, tp)
    module = "block.1" if trouble == "names" else "layers.1"
    for rank in range(tp):
        part = range(4)[rank * 4 // tp : (rank + 1) * 4 // tp]
        y = [2 * x + (trouble == "wrong") for x in part]
        if trouble == "nan" and rank == 1:
            y[0] = float("nan")
        fields = {"module": module, "global_shape": [4], "placements": ["Shard(dim=0)"]}
        write_rank(dump, rank, [(fields | {"slot": "input", "arg": "x"}, [len(y)], part), (fields | {"slot": "output", "arg": "y"}, [len(y)], y)])
    index, tensors, manifest = (Path(dump, name) for name in ("rank00001.jsonl", "rank00001.safetensors", "manifest.json"))
    if trouble == "no rank":
        index.unlink()
        tensors.unlink()
    if trouble == "no tensors":
        tensors.unlink()
    if trouble == "cut tensors":
        tensors.write_bytes(tensors.read_bytes()[:-6])
    if trouble == "cut index":
        index.write_text(index.read_text()[:-20])
    if trouble == "cut at a line":
        index.write_text(index.read_text().splitlines(True)[0])
    if trouble == "unfinished":
        manifest.rename(f"{manifest}.unfinished")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
