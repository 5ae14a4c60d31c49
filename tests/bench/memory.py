#!/usr/bin/env python3
"""Memory that `assay diff` takes beside mapped pages (RssAnon) for pairs of dumps far larger than it.

Pairs: one safetensors file against another, two ranks (assay-dump, Shard(dim=0)) against one, and many small
tensors.  usage: memory.py path/to/assay [GB per side, default 4] [small tensors, default 100000]
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

from resident import peak_of

BLOCK = 1 << 22  # elements that are drawn; every tensor is made of them
MB = 1e6


def safetensors(path, tensors, block):
    """tensors: {name: shape} of float32."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, count = end, 1
        for extent in shape:
            count *= extent
        end += 4 * count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left = end
        while left > 0:
            file.write(block[: min(left, len(block))])
            left -= min(left, len(block))


def assay_dump(folder, ranks, rows, columns, block):
    """One tensor [rows, columns], cut over tp."""
    folder.mkdir()
    mesh = {"dims": ["tp"], "shape": [ranks]}
    manifest = {"format": "assay-dump", "version": 1, "world_size": ranks, "mesh": mesh}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for rank in range(ranks):
        name, shape = f"rank{rank:05d}.safetensors", [rows // ranks, columns]
        safetensors(folder / name, {"t": shape}, block)
        line = {"seq": 0, "step": 0, "phase": "forward", "module": "m", "slot": "param", "dtype": "float32",
                "shape": shape, "global_shape": [rows, columns], "placements": ["Shard(dim=0)"],
                "mesh_coordinate": [rank], "data": {"file": name, "name": "t"}}
        (folder / f"rank{rank:05d}.jsonl").write_text(json.dumps(line) + "\n")


def peak(command):
    """(seconds, largest RssAnon in bytes, last line printed)"""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    largest = peak_of(process)
    return time.monotonic() - start, largest, process.stdout.read().strip().splitlines()[-1]


def main():
    assay = sys.argv[1]
    side = int(float(sys.argv[2]) * 1e9) if len(sys.argv) > 2 else 4_000_000_000
    small = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    random.seed(1)
    block = struct.pack(f"<{BLOCK // 64}f", *(random.gauss(0, 1) for _ in range(BLOCK // 64))) * 64
    columns = 4096
    rows = side // 4 // columns // 2048 * 2048  # so that a rank holds a whole number of blocks
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as scratch:
        at = pathlib.Path(scratch)
        safetensors(at / "a.safetensors", {"weight": [rows, columns]}, block)
        safetensors(at / "b.safetensors", {"weight": [rows, columns]}, block)
        assay_dump(at / "two", 2, rows, columns, block)
        assay_dump(at / "one", 1, rows, columns, block)
        names = {f"layers.{i // 100}.mlp.experts.{i % 100}.weight": [8] for i in range(small)}
        safetensors(at / "small_a.safetensors", names, block)
        safetensors(at / "small_b.safetensors", names, block)
        for what, actual, reference in (
            (f"one tensor of {side / 1e9:.1f} GB a side", "a.safetensors", "b.safetensors"),
            ("the same from two ranks", "two", "one"),
            (f"{small:,} tensors of 32 bytes", "small_a.safetensors", "small_b.safetensors"),
        ):
            seconds, largest, last = peak([assay, "diff", at / actual, at / reference])
            print(f"{what:34} {largest / MB:7.0f} MB beside mapped pages, {seconds:6.1f} s: {last}")


main()
