#!/usr/bin/env python3
"""Writes tests/data/hdf5_samples: HDF5 files of every layout, index and filter by h5py, and expected.json.

pip install numpy torch h5py ml_dtypes; then: hdf5_samples.py. The outputs are committed. No file is newer than what
HDF5 1.10 reads.
"""

import h5py
import ml_dtypes
import numpy as np

from sample import Samples, describe

samples = Samples("hdf5_samples")
OUT, expect = samples.folder, samples.expect
random = np.random.default_rng(20260201)
OLD, NEW = ("earliest", "v108"), ("v110", "v110")


def integers(*shape, dtype="f4"):
    """Small ones, which compress."""
    return random.integers(-9, 9, shape).astype(dtype)


def float_type(size, exponent, fraction, bias, order=h5py.h5t.ORDER_LE):
    t = h5py.h5t.IEEE_F32LE.copy()
    t.set_fields(8 * size - 1, fraction, exponent, 0, fraction)
    t.set_size(size)
    t.set_ebias(bias)
    t.set_order(order)
    return t


def raw(group, name, array, file_type, plist=None):
    space = h5py.h5s.create_simple(array.shape)
    dataset = h5py.h5d.create(group.id, name.encode(), file_type, space, plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=file_type)


def filtered(f, tensors, name, array, **options):
    f.create_dataset(name, data=array, **options)
    tensors[name] = describe(array.astype(array.dtype.newbyteorder("=")))


# Chunks: every index, filters in every order, chunks that are cut by the edge or larger than the tensor.
for version, libver in (("old", OLD), ("new", NEW)):
    tensors = {}
    with h5py.File(OUT / f"chunks_{version}.h5", "w", libver=libver) as f:
        x = integers(13, 21)
        filtered(f, tensors, "plain", x, chunks=(4, 8))
        filtered(f, tensors, "single", x, chunks=(13, 21))
        filtered(f, tensors, "larger", integers(3), chunks=(8,), maxshape=(None,))
        filtered(f, tensors, "rows", x, chunks=(3, 21))
        filtered(f, tensors, "deep", integers(3, 4, 5, 6, dtype="i2"), chunks=(2, 3, 2, 4))
        filtered(f, tensors, "gzip", x, chunks=(4, 8), compression="gzip")
        filtered(f, tensors, "single_gzip", x, chunks=(13, 21), compression="gzip")
        filtered(f, tensors, "shuffle", x, chunks=(4, 8), shuffle=True)
        filtered(f, tensors, "fletcher32", integers(13, 21, dtype="i1"), chunks=(3, 7), fletcher32=True)
        filtered(f, tensors, "all_three", x, chunks=(4, 8), compression=9, shuffle=True, fletcher32=True)
        filtered(f, tensors, "big_endian", integers(9, dtype=">i4"), chunks=(4,), compression="gzip", shuffle=True)
        filtered(f, tensors, "one_unlimited", x, chunks=(4, 8), maxshape=(None, 21), compression="gzip", shuffle=True)
        filtered(f, tensors, "two_unlimited", x, chunks=(4, 8), maxshape=(None, None))
        filtered(f, tensors, "scaleoffset", integers(40, dtype="i4"), chunks=(16,), scaleoffset=0)
        filtered(f, tensors, "many", integers(600, dtype="i1"), chunks=(2,))
        f.create_dataset("empty", (0, 4), "f4", chunks=(2, 2), maxshape=(None, 4))
        tensors["empty"] = describe(np.zeros((0, 4), "f4"))
        # Half of the chunks are missing.
        for name, options in (("holes", {}), ("holes_gzip", {"compression": "gzip"}), ("holes_unlimited", {"maxshape": (None, None)})):
            holes = np.full((10, 10), 2.5, "f4")
            d = f.create_dataset(name, (10, 10), "f4", chunks=(4, 4), fillvalue=2.5, **options)
            for corner in ((0, 4), (8, 8)):
                part = tuple(slice(c, min(c + 4, 10)) for c in corner)
                d[part] = holes[part] = integers(*holes[part].shape)
            tensors[name] = describe(holes)
        # One chunk of its own making: what a filter did not shrink is stored without it.
        d = f.create_dataset("skipped", (8,), "f4", chunks=(4,), compression="gzip")
        d[:4] = y = np.arange(8, dtype="f4")[:4]
        d.id.write_direct_chunk((4,), np.arange(4, 8, dtype="f4").tobytes(), 1)
        tensors["skipped"] = describe(np.arange(8, dtype="f4"))
        if libver == NEW:
            early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            early.set_chunk((4, 8))
            early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            raw(f, "implicit", x, h5py.h5t.IEEE_F32LE, early)
            tensors["implicit"] = describe(x)
    expect(f"chunks_{version}.h5", tensors)

# A paged fixed array: more than 1024 chunks.
with h5py.File(OUT / "pages.h5", "w", libver=NEW) as f:
    f["x"] = np.arange(3)
    many = integers(1100, dtype="u1")
    f.create_dataset("many", data=many, chunks=(1,))
    expect("pages.h5", {"x": np.arange(3), "many": many})

# Other layouts and types.
with h5py.File(OUT / "layouts.h5", "w", libver=OLD) as f:
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    x = integers(3, 5)
    bf16 = integers(70).astype(ml_dtypes.bfloat16)
    tensors = {"compact": x, "compact_big_endian": x, "scalar": np.float64(2.5), "one": np.ones((1, 1, 1), "u1")}
    raw(f, "compact", x, h5py.h5t.IEEE_F32LE, compact)
    raw(f, "compact_big_endian", x.astype(">f4"), h5py.h5t.IEEE_F32BE, compact)
    f["scalar"] = tensors["scalar"]
    f["one"] = tensors["one"]
    f.create_dataset("never_written", (2, 3), ">i2", fillvalue=-3)
    tensors["never_written"] = np.full((2, 3), -3, "i2")
    fill = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    fill.set_fill_value(np.array(1.5, "f4"))
    h5py.h5d.create(f.id, b"bf16_never_written", float_type(2, 8, 7, 127), h5py.h5s.create_simple((3,)), fill)
    tensors["bf16_never_written"] = describe(np.full(3, 1.5, ml_dtypes.bfloat16), "bfloat16")
    # Every code of both 8-bit floats, through gzip: none may be converted.
    codes = np.arange(256, dtype="u1")
    gzip = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    gzip.set_chunk((64,))
    gzip.set_deflate(9)
    raw(f, "e4m3", codes, float_type(1, 4, 3, 7), gzip)
    raw(f, "e5m2", codes, float_type(1, 5, 2, 15), gzip)
    raw(f, "bf16", bf16.view("u2"), float_type(2, 8, 7, 127), gzip)
    raw(f, "bf16_big_endian", bf16.view("u2").byteswap(), float_type(2, 8, 7, 127, h5py.h5t.ORDER_BE), gzip)
    tensors |= {"e4m3": describe(codes, "float8_e4m3fn"), "e5m2": describe(codes, "float8_e5m2"),
                "bf16": describe(bf16, "bfloat16"), "bf16_big_endian": describe(bf16, "bfloat16")}
    f["nested/groups/a/b/c"] = tensors["nested/groups/a/b/c"] = np.arange(3)
    f["nested/second_name"] = f["nested/groups"]
    f["nested/up"] = f["/"]
    f["nested/soft"] = h5py.SoftLink("/scalar")
    f["nested/dangling"] = h5py.SoftLink("/nothing")
    f["committed"] = np.dtype("f4")
    f["with space/é"] = tensors["with space/é"] = np.arange(2.0)
    f["array"] = np.zeros(2, dtype=[("x", "f4", 3)])
    f.create_dataset("null", dtype="f4", data=h5py.Empty("f4"))
    expect("layouts.h5", {name: t if isinstance(t, dict) else describe(t) for name, t in tensors.items()}, notes=6)
with h5py.File(OUT / "user_block_chunks.h5", "w", userblock_size=1024) as f:
    x = integers(6, 6)
    for name, options in (("plain", {}), ("gzip", {"compression": "gzip"}), ("contiguous", {"chunks": None})):
        f.create_dataset(name, data=x, **({"chunks": (3, 6)} | options))
    expect("user_block_chunks.h5", {"plain": x, "gzip": x, "contiguous": x})

# Virtual datasets: put together from files of the same folder, from the file itself, and from each other.
parts = [integers(2, 6) for _ in range(3)]
for i, part in enumerate(parts):
    with h5py.File(OUT / f"part{i}.h5", "w", libver=NEW) as f:
        f.create_dataset("x", data=part, chunks=(1, 6), compression="gzip") if i == 1 else f.create_dataset("x", data=part)
    expect(f"part{i}.h5", {"x": part})
with h5py.File(OUT / "virtual.h5", "w", libver=NEW) as f:
    layout = h5py.VirtualLayout((7, 6), "f4")
    for i in range(3):
        layout[2 * i : 2 * i + 2] = h5py.VirtualSource(f"part{i}.h5", "x", (2, 6))
    f.create_virtual_dataset("stacked", layout, fillvalue=-1)
    stacked = np.concatenate(parts + [np.full((1, 6), -1, "f4")])
    layout = h5py.VirtualLayout((6, 2), "f4")  # every other row and column of one, a block of another
    layout[0:4:2, :] = h5py.VirtualSource("part0.h5", "x", (2, 6))[:, 0:4:2]
    layout[1:5:2, 0:2] = h5py.VirtualSource("part2.h5", "/x", (2, 6))[:, 4:6]
    f.create_virtual_dataset("strided", layout, fillvalue=7)
    strided = np.full((6, 2), 7, "f4")
    strided[0:4:2, :] = parts[0][:, 0:4:2]
    strided[1:5:2, :] = parts[2][:, 4:6]
    f["own"] = np.arange(4, dtype="f4")
    layout = h5py.VirtualLayout((2, 4), "f4")
    layout[0] = h5py.VirtualSource(".", "own", (4,))
    layout[1] = h5py.VirtualSource("virtual.h5", "own", (4,))
    f.create_virtual_dataset("twice", layout)
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(".", "twice", (2, 4))[1]
    f.create_virtual_dataset("of_virtual", layout)
    expect("virtual.h5", {"stacked": stacked, "strided": strided, "own": f["own"][()], "twice": np.stack([f["own"][()]] * 2),
                          "of_virtual": f["own"][()]})

samples.write()
