#!/usr/bin/env python3
"""Files that lie: npy, npz, safetensors with index and shards, GGUF and raw bytes that must each give one clear error.

Written by hand from the formats' descriptions, since no library writes them. expected.json says what the error must
name. Each file is smaller than 4 kB. Needs only Python: python tests/data/files_hostile.py"""
import json
import pathlib
import shutil
import struct
import zlib

FOLDER = pathlib.Path(__file__).parent / "hostile" / "files"
expected = {}
shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)


def lie(name, content, says, **options):
    """content: bytes, or {file: bytes} for a folder."""
    path = FOLDER / name
    if isinstance(content, bytes):
        content = {"": content}
    else:
        path.mkdir()
    for file, data in content.items():
        assert len(data) < 4096, name
        (path / file if file else path).write_bytes(data)
    expected[name] = {"error": says} | options


# ---- npy ---------------------------------------------------------------------------------------------------------------
def npy(descr="'<f4'", order="False", shape="(2,)", data=8, version=(1, 0), text=None, length=None):
    text = text if text is not None else f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", size) + text.encode() + bytes(data)


lie("npy_magic_only.npy", b"\x93NUMPY", "not a whole npy file")
lie("npy_version_4.npy", npy(version=(4, 0)), "npy version 4.0")
lie("npy_version_1_1.npy", npy(version=(1, 1)), "npy version 1.1")
lie("npy_no_length.npy", b"\x93NUMPY\x02\x00\x01\x00", "cut off")
lie("npy_header_past_the_end.npy", npy(length=4000), "claims 4000 bytes")
lie("npy_header_over_the_limit.npy", npy(version=(2, 0), length=70_000), "limit")
lie("npy_header_of_4_gib.npy", npy(version=(3, 0), length=2**32 - 1), "claims 4294967295 bytes")
lie("npy_short.npy", npy(data=7), "does not fill the 7 bytes")
lie("npy_long.npy", npy(data=9), "does not fill the 9 bytes")
lie("npy_product_overflows.npy", npy(shape=f"({2**62}, {2**62}, 0)", data=0), "does not fill")
lie("npy_bytes_overflow.npy", npy(shape=f"({2**61},)", data=0), "does not fill")
lie("npy_wraps_to_its_size.npy", npy(shape=f"({2**62 + 2},)", data=8), "does not fill")
lie("npy_extent_over_64_bits.npy", npy(shape="(99999999999999999999,)"), "expected an extent")
lie("npy_negative.npy", npy(shape="(-2,)"), "expected an extent")
lie("npy_two_negatives.npy", npy(shape="(-1, -2)"), "expected an extent")
lie("npy_65_extents.npy", npy(shape="(" + "1, " * 65 + ")", data=4), "at most 64")
lie("npy_open_shape.npy", npy(shape="(2"), "other text")
lie("npy_many_parentheses.npy", npy(shape="(" * 3000), "expected an extent")
lie("npy_key_twice.npy", npy(text="{'descr': '<f4', 'shape': (2,), 'descr': '<f8', 'fortran_order': False}"), "once each")
lie("npy_no_order.npy", npy(text="{'descr': '<f4', 'shape': (2,)}"), "a missing key")
lie("npy_code.npy", npy(descr="__import__('os').system('touch pwned')"), "a quoted string")
lie("npy_open_string.npy", npy(text="{'descr': '<f4"), "an open string")
lie("npy_text_behind.npy", npy(text="{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + x"), "text behind the dict")
lie("npy_objects.npy", npy(descr="'|O'", data=40), "never loaded")
lie("npy_structure.npy", npy(descr="[('a', '<f4'), ('b', '<f4')]"), "structured dtype")
lie("npy_complex.npy", npy(descr="'<c8'"), "numpy type '<c8'")
lie("npy_text.npy", npy(descr="'<U2'"), "numpy type '<U2'")
lie("npy_order_is_a_number.npy", npy(order="1"), "True or False")


# ---- npz and zip -------------------------------------------------------------------------------------------------------
def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def member(name="x.npy", data=None, method=0, **lies):
    data = npy() if data is None else data
    stored = data if method != 8 else deflate(data)
    return {"name": name.encode() if isinstance(name, str) else name, "stored": stored, "method": method, "size": len(data), "csize": len(stored),
            "crc": zlib.crc32(data), "flags": 0, "attributes": 0, "extra": b"", "local_extra": b"", "local": {}, "offset": None} | lies


def archive(members, comment=b"", before_end=b"", behind=b"", **end):
    out, directory = b"", b""
    for m in members:
        at = len(out)
        local = m | m["local"]
        out += struct.pack("<4s5H3I2H", b"PK\3\4", 45, local["flags"], local["method"], 0, 0, local["crc"], local["csize"], local["size"],
                           len(local["name"]), len(m["local_extra"])) + local["name"] + m["local_extra"] + m["stored"]
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", 3 << 8 | 45, 45, m["flags"], m["method"], 0, 0, m["crc"], m["csize"], m["size"],
                                 len(m["name"]), len(m["extra"]), 0, 0, 0, m["attributes"], at if m["offset"] is None else m["offset"])
        directory += m["name"] + m["extra"]
    e = {"disk": 0, "first_disk": 0, "here": len(members), "all": len(members), "size": len(directory), "offset": len(out), "comment": len(comment)} | end
    return out + directory + before_end + struct.pack("<4s4H2IH", b"PK\5\6", e["disk"], e["first_disk"], e["here"], e["all"], e["size"], e["offset"],
                                                      e["comment"]) + comment + behind


def end64(members, gap=b"", locator_at=None, **lies):
    """The zip64 records of an archive of these members."""
    plain = archive(members)
    directory = plain.rindex(b"PK\5\6")
    offset = struct.unpack_from("<I", plain, directory + 16)[0]
    e = {"length": 44, "disk": 0, "here": len(members), "all": len(members), "size": directory - offset, "offset": offset} | lies
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", e["length"], 45, 45, e["disk"], 0, e["here"], e["all"], e["size"], e["offset"])
    return record + gap + struct.pack("<4sIQI", b"PK\6\7", e["disk"], directory if locator_at is None else locator_at, 1)


one = [member()]
lie("npz_no_end.npz", archive(one)[:-22], "no end record")
lie("npz_end_cut.npz", archive(one)[:-1], "no end record")
lie("npz_byte_behind.npz", archive(one, behind=b"x"), "no end record")
lie("npz_comment_too_long.npz", archive(one, comment=b"abc")[:-1], "no end record")
lie("npz_second_disk.npz", archive(one, disk=1), "on several")
lie("npz_other_count_on_this_disk.npz", archive(one, here=2), "on several")
lie("npz_directory_too_small.npz", archive(one, size=20), "does not end where")
lie("npz_directory_elsewhere.npz", archive(one, offset=0), "does not end where")
lie("npz_directory_past_the_end.npz", archive(one, offset=0x7fffffff), "does not end where")
lie("npz_count_too_large.npz", archive(one, here=60000, all=60000), "does not end where")
lie("npz_count_too_small.npz", archive(one + [member("y.npy")], here=1, all=1), "more than its 1 members")
lie("npz_count_one_more.npz", archive(one, before_end=bytes(46), here=2, all=2, size=51 + 46), "member 1 of the zip directory is damaged")
lie("npz_no_locator.npz", archive(one, offset=0xffffffff), "no zip64 end record")
lie("npz_locator_past_the_end.npz", archive(one, before_end=end64(one, locator_at=2**63)), "no zip64 end record")
lie("npz_zip64_gap.npz", archive(one, before_end=end64(one, gap=b"hidden")), "no zip64 end record")
lie("npz_zip64_contradicts.npz", archive(one, before_end=end64(one, here=2, all=2)), "contradict each other")
lie("npz_zip64_second_disk.npz", archive(one, before_end=end64(one, disk=1)), "on several")
lie("npz_zip64_huge_count.npz", archive(one, here=0xffff, all=0xffff, before_end=end64(one, here=2**63, all=2**63)), "does not end where")
lie("npz_encrypted.npz", archive([member(flags=1)]), "is encrypted")
lie("npz_encrypted_locally.npz", archive([member(local={"flags": 1})]), "contradicts the directory")
lie("npz_strongly_encrypted.npz", archive([member(flags=0x40)]), "is encrypted")
lie("npz_bzip2.npz", archive([member(method=12)]), "compressed by method 12")
lie("npz_link.npz", archive([member(data=b"/etc/passwd", attributes=0xA1FF << 16)]), "a link")
for number, name in enumerate(("../x.npy", "/x.npy", "a/../../x.npy", "a\\x.npy", "C:x.npy", "x\0.npy", "", "..")):
    lie(f"npz_unsafe_name_{number}.npz", archive([member(name)]), "unsafe name")
lie("npz_name_twice.npz", archive([member(), member()]), "stands twice")
lie("npz_other_local_name.npz", archive([member(local={"name": b"y.npy"})]), "contradicts the directory")
lie("npz_other_local_method.npz", archive([member(local={"method": 8})]), "contradicts the directory")
lie("npz_other_local_checksum.npz", archive([member(local={"crc": 1})]), "contradicts the directory")
lie("npz_other_local_size.npz", archive([member(local={"csize": 1})]), "contradicts the directory")
lie("npz_no_local_header.npz", archive([member(offset=1)]), "contradicts the directory")
lie("npz_local_header_past_the_end.npz", archive([member(offset=0x7fffffff)]), "but the archive ends at")
lie("npz_member_in_a_member.npz", archive([member(csize=2 * len(npy()), size=2 * len(npy()), local={"csize": 0, "size": 0}), member("y.npy")]), "overlap")
lie("npz_data_in_the_next_header.npz", archive([member(csize=len(npy()) + 3, size=len(npy()) + 3, local={"csize": 0, "size": 0}), member("y.npy")]), "overlap")
lie("npz_alias.npz", archive([member(), member("y.npy", offset=0, local={"name": b"y.npy"})]), "contradicts the directory")
lie("npz_stored_in_other_size.npz", archive([member(size=9999)]), "claims 9999 bytes")
lie("npz_reaches_past.npz", archive([member(csize=3000, size=3000, local={"csize": 0, "size": 0})]), "reaches past the data")
lie("npz_impossible_ratio.npz", archive([member(method=8, size=2**30, local={"size": 0})]), "claims 1073741824 bytes")
lie("npz_bomb.npz", archive([member(data=npy(shape=f"({2**32 - 32},)", data=0) + bytes(2_000_000), method=8, extra=struct.pack("<HHQ", 1, 8, 2**34), size=0xffffffff,
                                    local={"size": 0})]), "claims 17179869184 bytes")
lie("npz_inflates_to_more.npz", archive([member(data=npy(data=40), method=8, size=len(npy()), local={"size": 0})]), "does not inflate")
lie("npz_inflates_to_less.npz", archive([member(data=npy(data=4), method=8, size=len(npy()), local={"size": 0})]), "does not inflate")
lie("npz_checksum.npz", archive([member(crc=1)]), "checksum")
lie("npz_no_deflate.npz", archive([member(data=npy(), method=8) | {"stored": b"\xff" * 60, "csize": 60}]), "not a whole npy file")
lie("npz_zip64_field_cut.npz", archive([member(extra=struct.pack("<HHI", 1, 4, 8), size=0xffffffff)]), "cut off")
lie("npz_lying_member.npz", archive([member(data=npy(shape=f"({2**62}, 4, 0)"))]), "does not fill")


# ---- safetensors -------------------------------------------------------------------------------------------------------
def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(2,), begin=0, end=8, **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]} | more


def st(name, header, says, data=8, **more):
    lie(f"st_{name}.safetensors", safetensors(header, bytes(data), **more), says)


st("header_of_2_63", {"x": tensor()}, "no known format", length=2**63)
st("header_past_the_end", {"x": tensor()}, "header claims 99999 bytes", length=99_999)
st("header_over_the_limit", {"x": tensor()}, "no known format", length=100_000_001)
st("no_json", b"{not json at all}", "not valid JSON")
st("deep", b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}", "nested deeper than 64")
st("deep_objects", b'{"x":' * 500 + b"0" + b"}" * 500, "nested deeper than 64")
st("key_twice", b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', "stands twice")
st("field_twice", b'{"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', "stands twice")
st("overlap", {"x": tensor(), "y": tensor(begin=4, end=12)}, "a hole or an overlap", data=12)
st("alias", {"x": tensor(), "y": tensor()}, "a hole or an overlap")
st("hole", {"x": tensor(shape=[1], end=4), "y": tensor(shape=[1], begin=8, end=12)}, "a hole or an overlap", data=12)
st("hole_in_front", {"x": tensor(begin=8, end=16)}, "a hole or an overlap", data=16)
st("bytes_behind", {"x": tensor()}, "truncated or damaged", data=9)
st("truncated", {"x": tensor()}, "truncated or damaged", data=7)
st("nothing_but_data", {}, "truncated or damaged")
st("backwards", {"x": tensor(begin=8, end=0)}, "does not fill its bytes")
st("negative_offset", {"x": tensor(begin=-8, end=0)}, "does not fill its bytes")
st("other_size", {"x": tensor(shape=[3])}, "does not fill its bytes")
st("wraps", {"x": tensor(shape=[2**62, 2**62, 0], end=0)}, "x", data=0)
st("wraps_in_bits", {"x": tensor(shape=[2**60 + 2])}, "does not fill its bytes")
st("negative_extents", {"x": tensor(shape=[-1, -2])}, "x")
st("extent_over_64_bits", b'{"x":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}}', "expected an integer")
st("extent_is_a_float", b'{"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', "expected an integer")
st("extent_is_a_bool", {"x": tensor(shape=[True, 2])}, "expected an integer")
st("65_extents", {"x": tensor(shape=[1] * 65, end=4)}, "at most 64", data=4)
st("half_a_byte", {"x": tensor("F4", [3], end=2)}, "does not fill its bytes", data=2)
st("unknown_type", {"x": tensor("F99")}, "unknown dtype 'F99'")
st("a_field_more", {"x": tensor(code="x")}, "exactly dtype, shape and data_offsets")
st("three_offsets", {"x": tensor() | {"data_offsets": [0, 4, 8]}}, "3 numbers")
st("metadata_is_a_number", {"__metadata__": {"a": 1}, "x": tensor()}, "expected a string")
st("list", {"x": [1, 2]}, "expected an object")


def dcp(name, info, says):
    text = info if isinstance(info, str) else json.dumps(info)
    st(f"dcp_{name}", {"__metadata__": {"DCP_SHARDING_INFO": text}, "x": tensor()}, says)


dcp("no_json", "{", "not valid JSON")
dcp("deep", "[" * 500 + "]" * 500, "nested deeper than 64")
dcp("other_rank", {"x": {"saved_offsets": [0, 0]}}, "do not fit the shape")
dcp("negative", {"x": {"saved_offsets": [-1]}}, "do not fit the shape")
dcp("overflow", {"x": {"saved_offsets": [2**63 - 1]}}, "do not fit the shape")
dcp("no_such_tensor", {"y": {"saved_offsets": [0]}}, "is not in the file")
dcp("not_all", {}, "no saved_offsets of tensor 'x'")
dcp("no_offsets", {"x": {}}, "without the key 'saved_offsets'")
sharding = {"__metadata__": {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [0]}})}, "x": tensor()}
two = {"__metadata__": {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [0, 0]}})}, "x": tensor(shape=[1, 2])}
lie("dcp_ranks_differ", {"a.safetensors": safetensors(sharding, bytes(8)), "b.safetensors": safetensors(two, bytes(8))}, "2 dimensions, in another file 1")
far = {"__metadata__": {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [2**62, 2**62]}})}, "x": tensor(shape=[1, 2])}
lie("dcp_whole_overflows", {"a.safetensors": safetensors(two, bytes(8)), "b.safetensors": safetensors(far, bytes(8))}, "tensor 'x'")


def index(name, weight_map, says, files=("a.safetensors",), text=None, **more):
    text = text or json.dumps({"weight_map": weight_map}).encode()
    content = {"m.safetensors.index.json": text} | {f: safetensors({"x": tensor()}, bytes(8)) for f in files} | more
    lie(f"index_{name}", content, says)


for number, name in enumerate(("../a.safetensors", "/etc/passwd", "b/a.safetensors", "..", "", "a\0.safetensors", "a b", "file:a")):
    index(f"unsafe_name_{number}", {"x": name}, "expected letters, digits")
index("no_such_file", {"x": "b.safetensors"}, "cannot be opened")
index("not_in_its_file", {"x": "a.safetensors", "y": "a.safetensors"}, "tensor 'y' is not in")
index("in_two_files", {"x": "a.safetensors", "y": "b.safetensors"}, "tensor 'x' is also in", **{"b.safetensors": safetensors({"x": tensor(), "y": tensor(begin=8, end=16)}, bytes(16))})
index("no_map", {}, "without the key 'weight_map'", text=b"{}")
index("no_object", {}, "expected an object", text=b'{"weight_map":[]}')
index("number", {"x": 1}, "expected a string")
index("key_twice", {}, "stands twice", text=b'{"weight_map":{"x":"a.safetensors","x":"b.safetensors"}}')
index("deep", {}, "nested deeper than 64", text=b'{"weight_map":' + b"[" * 1000 + b"]" * 1000 + b"}")
index("two_of_them", {"x": "a.safetensors"}, "expected one", **{"n.safetensors.index.json": b"{}"})
index("itself", {"x": "m.safetensors.index.json"}, "header claims")


# ---- GGUF --------------------------------------------------------------------------------------------------------------
def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def value(key, kind, data):
    return text(key) + struct.pack("<I", kind) + data


def info(name="x", dims=(2,), kind=0, offset=0):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def gguf(name, says, values=(), infos=(info(),), data=bytes(8), version=3, counts=None, pad=32):
    tensors, keys = counts or (len(infos), len(values))
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(values) + b"".join(infos)
    lie(f"gguf_{name}.gguf", head + bytes(-len(head) % pad) + data, says)


lie("gguf_magic_only.gguf", b"GGUF", "truncated or damaged")
gguf("version_1", "version 1", version=1)
gguf("version_99", "version 99", version=99)
gguf("tensors_2_63", "claims 9223372036854775808 tensors", counts=(2**63, 0))
gguf("values_2_63", "claims 9223372036854775808 metadata values", counts=(1, 2**63))
gguf("a_tensor_more", "truncated or damaged", counts=(2, 0), data=b"")
gguf("key_of_2_64", "claims 18446744073709551615 bytes", values=[struct.pack("<QI", 2**64 - 1, 4) + bytes(4)])
gguf("string_of_2_63", "truncated or damaged", values=[value("k", 8, struct.pack("<Q", 2**63))])
gguf("array_of_2_62", "claims 4611686018427387904", values=[value("k", 9, struct.pack("<IQ", 12, 2**62))])
gguf("array_past_the_end", "more than the", values=[value("k", 9, struct.pack("<IQ", 12, 60))])
gguf("strings_past_the_end", "truncated or damaged", values=[value("k", 9, struct.pack("<IQ", 8, 30) + b"\xff" * 16)])
gguf("arrays_in_arrays", "more than the", values=[value("k", 9, struct.pack("<IQ", 9, 1) * 300 + struct.pack("<IQ", 10, 500))])
gguf("arrays_that_double", "more than the", values=[value("k", 9, struct.pack("<IQ", 9, 2) * 300)])
gguf("unknown_value", "unknown type 13", values=[value("k", 13, b"")])
gguf("unknown_element", "unknown type 4294967295", values=[value("k", 9, struct.pack("<IQ", 2**32 - 1, 1))])
gguf("bool_2", "other than 0 and 1", values=[value("k", 7, b"\2")])
gguf("key_twice", "stands twice", values=[value("k", 0, b"\1"), value("k", 0, b"\1")])
gguf("alignment_0", "expected a power of two", values=[value("general.alignment", 4, struct.pack("<I", 0))])
gguf("alignment_24", "expected a power of two", values=[value("general.alignment", 4, struct.pack("<I", 24))])
gguf("alignment_text", "expected uint32", values=[value("general.alignment", 8, text("32"))])
gguf("alignment_2_31", "truncated or damaged", values=[value("general.alignment", 4, struct.pack("<I", 2**31))])
gguf("name_of_2_40", "claims 1099511627776 bytes", infos=[struct.pack("<Q", 2**40) + bytes(40)])
gguf("name_twice", "stands twice", infos=[info(), info(offset=32)], data=bytes(40))
gguf("5_dimensions", "5 dimensions", infos=[info(dims=[1] * 5)])
gguf("dimensions_2_32", "4294967295 dimensions", infos=[text("x") + struct.pack("<I", 2**32 - 1) + bytes(30)])
gguf("extent_2_63", "expected less than 2^63", infos=[info(dims=[2**63])])
gguf("product_overflows", "larger than the file", infos=[info(dims=[2**62, 2**62, 0])])
gguf("bytes_wrap", "larger than the file", infos=[info(dims=[2**62 + 2])])
gguf("half_a_block", "no whole number of blocks", infos=[info(dims=[33, 32], kind=8)], data=bytes(1200))
gguf("offset_odd", "expected a multiple of 32", infos=[info(offset=8)], data=bytes(16))
gguf("offset_past_the_end", "truncated or damaged", infos=[info(offset=4096)])
gguf("offset_2_64", "truncated or damaged", infos=[info(offset=2**64 - 32)])
gguf("overlap", "a hole or an overlap", infos=[info(dims=[16]), info("y", offset=32)], data=bytes(64))
gguf("alias", "a hole or an overlap", infos=[info(), info("y")])
gguf("hole", "a hole or an overlap", infos=[info(), info("y", offset=64)], data=bytes(72))
gguf("hole_in_front", "a hole or an overlap", infos=[info(offset=32)], data=bytes(40))
gguf("truncated", "truncated or damaged", data=bytes(7))
gguf("bytes_behind", "the tensors end at byte", data=bytes(9))
gguf("long_name", "4097 bytes", infos=[text("n" * 4097)[:3500]])

# ---- raw ---------------------------------------------------------------------------------------------------------------
for number, raw in enumerate(("float32:3", "float32:1", "float64:2", "float32:0", f"float32:{2**62},{2**62},0", f"float32:{2**62 + 2}", f"uint8:{2**63 - 1},2")):
    lie(f"raw_{number}.bin", bytes(8), "", raw=raw)

(FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
print(len(expected), "hostile files")
