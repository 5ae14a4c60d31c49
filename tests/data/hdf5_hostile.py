#!/usr/bin/env python3
"""Writes tests/data/hostile/hdf5: HDF5 files that lie, and expected.json with a part of the error that each must end in
(a list where it depends on the version of the HDF5 library, which finds more itself from 1.14 on).

pip install numpy h5py; then: hdf5_hostile.py. The outputs are committed. Files are written by h5py and then changed
where the old file format has no checksums.
"""

import json
import pathlib
import shutil
import struct
import zlib

import h5py
import numpy as np

OUT = pathlib.Path(__file__).parent / "hostile" / "hdf5"
shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
OLD, NEW = ("earliest", "v108"), ("v110", "v110")
BY_LIBRARY = "object 'x' cannot be read"
expected = {}


def made(name, error, make, libver=OLD):
    with h5py.File(OUT / f"{name}.h5", "w", libver=libver) as f:
        make(f)
    if error is not None:
        expected[f"{name}.h5"] = error


def changed(name, error, make, change, libver=OLD):
    made(name, error, make, libver)
    data = bytearray((OUT / f"{name}.h5").read_bytes())
    change(data)
    (OUT / f"{name}.h5").write_bytes(data)


def replace(old, new, which=0):
    """The occurrence number `which` of `old`; -1: all of them."""
    def change(data):
        at, count, found = -1, 0, False
        while (at := data.find(old, at + 1)) >= 0:
            if which in (-1, count):
                data[at : at + len(old)] = new
                found = True
            count += 1
        assert found and len(old) == len(new), (old, count)
    return change


def u64(value):
    return struct.pack("<Q", value)


x = np.arange(64, dtype="f4")

# Other files.
def external(path):
    return lambda f: f.create_dataset("x", (4,), "f4", external=[(path, 0, 16)])

made("external_passwd", "other files", external("/etc/passwd"))
made("external_relative", "other files", external("raw.bin"))
made("external_up", "other files", external("../../sample.py"))
(OUT / "raw.bin").unlink(missing_ok=True)


def virtual(source, name="x", shape=(4,), dtype="f4", part=None):
    def make(f):
        f["here"] = np.arange(4, dtype="f4")
        layout = h5py.VirtualLayout((4,), dtype)
        v = h5py.VirtualSource(source, name, shape)
        layout[:] = v if part is None else v[part]
        f.create_virtual_dataset("v", layout)
    return make

made("virtual_up", "expected letters, digits", virtual("../x.h5"), NEW)
made("virtual_absolute", "expected letters, digits", virtual("/etc/passwd"), NEW)
made("virtual_folder", "expected letters, digits", virtual("folder/x.h5"), NEW)
made("virtual_missing", "cannot be opened", virtual("nothing.h5"), NEW)
made("virtual_missing_dataset", "is not in the file", virtual(".", "nothing"), NEW)
made("virtual_no_hdf5", "expected.json", virtual("expected.json"), NEW)
made("virtual_self", "is part of itself", virtual(".", "v"), NEW)
made("virtual_self_by_name", "is part of itself", virtual("virtual_self_by_name.h5", "/v"), NEW)
made("virtual_other_type", "its source", virtual(".", "here", dtype="f8"), NEW)
made("virtual_beyond", "not in the shape", virtual(".", "here", (9,), part=slice(5, 9)), NEW)
made("virtual_other_rank", "number of dimensions", virtual(".", "here", (4, 4), part=(0, slice(0, 4))), NEW)
made("virtual_circle_a", "is part of itself", virtual("virtual_circle_b.h5", "v"), NEW)
made("virtual_circle_b", "is part of itself", virtual("virtual_circle_a.h5", "v"), NEW)


def virtual_unlimited(f):
    layout = h5py.VirtualLayout((4,), "f4", maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = h5py.VirtualSource(".", "here", (4,), maxshape=(None,))[: h5py.h5s.UNLIMITED]
    f["here"] = x[:4]
    f.create_virtual_dataset("v", layout)

made("virtual_unlimited", "not in the shape", virtual_unlimited, NEW)


def virtual_claims(f):
    layout = h5py.VirtualLayout((1 << 40,), "f4")
    layout[:4] = h5py.VirtualSource(".", "here", (4,))
    f["here"] = x[:4]
    f.create_virtual_dataset("v", layout)

made("virtual_claims", "claims", virtual_claims, NEW)

# Shapes.
made("shape_contiguous", "claims", lambda f: f.create_dataset("x", (1 << 40,), "f4"))
made("shape_chunked", "claims", lambda f: f.create_dataset("x", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip"))
made("shape_chunks", "chunks", lambda f: f.create_dataset("x", (50_000_000,), "u1", chunks=(1,)))
changed("shape_overflow", ["2^63", BY_LIBRARY], lambda f: f.create_dataset("x", (0x1122334455, 3), "f4", chunks=(1, 1)), replace(u64(0x1122334455), u64(1 << 62)))
changed("shape_negative", "cannot be read", lambda f: f.create_dataset("x", (0x1122334455, 3), "f4", chunks=(1, 1)), replace(u64(0x1122334455), u64(2**64 - 2)))
changed("shape_longer", ["the file ends at", BY_LIBRARY], lambda f: f.create_dataset("x", data=x), replace(u64(64), u64(65), -1))

# Filters.
made("filter_lzf", "filter 32000 (lzf)", lambda f: f.create_dataset("x", data=x, chunks=(64,), compression="lzf"))
changed("filter_blosc", "filter 32001", lambda f: f.create_dataset("x", data=x, chunks=(64,), compression="lzf"), replace(b"\x00\x7d", b"\x01\x7d"))
changed("filter_private", "filter 60000", lambda f: f.create_dataset("x", data=x, chunks=(64,), compression="lzf"), replace(b"\x00\x7d", struct.pack("<H", 60000)))


def direct(chunk, **options):
    def make(f):
        f.create_dataset("x", (64,), "f4", chunks=(64,), **options).id.write_direct_chunk((0,), chunk)
    return make

packed = zlib.compress(x.tobytes())
made("deflate_longer", "is damaged", direct(zlib.compress(bytes(1 << 20)), compression="gzip"))
made("deflate_shorter", "is damaged", direct(zlib.compress(bytes(252)), compression="gzip"))
made("deflate_cut", "is damaged", direct(packed[:-20], compression="gzip"))
made("deflate_noise", "is damaged", direct(bytes(range(200)), compression="gzip"))
made("fletcher32_wrong", "is damaged", direct(x.tobytes() + b"abcd", fletcher32=True))
made("fletcher32_short", "is damaged", direct(b"ab", fletcher32=True))
made("shuffle_short", "is damaged", direct(x.tobytes()[:-8], shuffle=True))


# Chunks that lie elsewhere.
def chunked(f):
    d = f.create_dataset("x", (64, 8), "f4", chunks=(1, 8))
    d[:] = np.arange(512, dtype="f4").reshape(64, 8)


def address(make, number=0):
    with h5py.File(OUT / "scratch.h5", "w", libver=OLD) as f:
        make(f)
    with h5py.File(OUT / "scratch.h5") as f:
        place = f["x"].id.get_chunk_info(number).byte_offset if f["x"].chunks else f["x"].id.get_offset()
    (OUT / "scratch.h5").unlink()
    return u64(place)


first, gzipped = address(chunked), lambda f: f.create_dataset("x", data=x, chunks=(64,), compression="gzip")
contiguous = lambda f: f.create_dataset("x", data=x)
changed("chunk_beyond", "cannot be read", chunked, replace(first, u64(1 << 40)))
changed("chunk_at_end", "cannot be read", chunked, lambda data: replace(first, u64(len(data) - 4))(data))
changed("chunk_far", "cannot be read", chunked, replace(first, u64(2**63)))


def set_chunk_size(data):
    at = data.find(b"TREE\x01") + 24
    data[at : at + 4] = struct.pack("<I", 0x7fffffff)


changed("chunk_size", "cannot be read", gzipped, set_chunk_size)


def overlap(f):
    d = f.create_dataset("x", (16, 4096), "f4", chunks=(1, 4096), compression="gzip")
    d[0] = np.random.default_rng(1).integers(0, 2, 4096)
    for i in range(1, 16):
        d.id.write_direct_chunk((i, 0), bytes(1))


def overlap_change(data):
    """All chunks are the first one, so that the file holds more than itself."""
    at = data.find(b"TREE\x01") + 24
    key, size = 8 + 3 * 8, struct.unpack("<I", data[at : at + 4])[0]
    place = data[at + key : at + key + 8]
    for i in range(16):
        here = at + i * (key + 8)
        data[here : here + 4] = struct.pack("<I", size)
        data[here + key : here + key + 8] = place

changed("chunk_overlap", "overlap", overlap, overlap_change)
layout = b"\x03\x01"  # version and class of the layout message, which the address follows
for name, place in (("beyond", lambda size: 1 << 40), ("at_end", lambda size: size - 4), ("far", lambda size: 2**63 + 8), ("past_signed", lambda size: 2**64 - 8)):
    changed(f"contiguous_{name}", ["dataset 'x'", BY_LIBRARY], contiguous,
            lambda data: replace(layout + address(contiguous), layout + u64(place(len(data))))(data))

# Structure.
two = lambda f: (f.create_dataset("aa", data=x[:4]), f.create_dataset("ab", data=x[4:8]))
changed("name_twice", "twice", two, replace(b"ab\0", b"aa\0"))


def tree_loop(data):
    at = data.find(b"TREE\x00")
    data[at + 5] = 1  # a level above the leaves
    data[at + 32 : at + 40] = u64(at)  # whose first child is itself


changed("tree_loop", "ended by signal", two, tree_loop)
changed("heap_gone", "cannot be", two, replace(b"HEAP", b"HEAQ"))
changed("symbols_gone", "cannot be", two, replace(b"SNOD", b"SNOT"))
changed("superblock_version", "cannot open", two, lambda data: data.__setitem__(8, 99))
changed("superblock_root", "cannot", two, lambda data: data.__setitem__(slice(64, 72), u64(1 << 40)))
changed("superblock_end", "cannot open", two, lambda data: data.__setitem__(slice(40, 48), u64(1 << 40)))
changed("superblock_base", "cannot", two, lambda data: data.__setitem__(slice(24, 32), u64(512)))
whole = lambda f: [f.create_dataset(n, data=x, **o) for n, o in (("a", {}), ("b", {"chunks": (16,), "compression": "gzip"}), ("c/d", {"chunks": (8,)}))]
made("whole", None, whole)
good = (OUT / "whole.h5").read_bytes()
(OUT / "whole.h5").unlink()
for part in (1, 2, 3, 4, 5, 6):
    (OUT / f"cut_{part}.h5").write_bytes(good[: len(good) * part // 8])
    expected[f"cut_{part}.h5"] = "cannot open"

for name in expected:
    assert (OUT / name).stat().st_size < 8192, (name, (OUT / name).stat().st_size)
(OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
print(len(expected), "files")
