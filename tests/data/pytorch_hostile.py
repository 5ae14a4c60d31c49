#!/usr/bin/env python3
"""Writes tests/data/hostile/pytorch: files and folders of the PyTorch family that lie, and expected.json: per entry a part
of the error, or of the note or left-out line, that must be given. Nothing but Python is needed; the outputs are committed.

Every payload that could run would create /tmp/assay_canary_pytorch.
"""

import hashlib
import io
import json
import pathlib
import pickle
import shutil
import struct
import tarfile
import zipfile

OUT = pathlib.Path(__file__).parent / "hostile" / "pytorch"
CANARY = "touch /tmp/assay_canary_pytorch"
BIG = 2**62


# ---- a pickle, put together from what torch never wrote ----------------------------------------------------------------
class Global:
    def __init__(self, name):
        self.module, self.name = name.rsplit(".", 1)


class Call:
    def __init__(self, function, *arguments, state=None):
        self.function, self.arguments, self.state = Global(function) if isinstance(function, str) else function, arguments, state


class Id:
    def __init__(self, value):
        self.value = value


class Raw:
    def __init__(self, text):
        self.text = text


def ops(value):
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Global):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        state = b"" if value.state is None else ops(value.state) + b"b"
        return ops(value.function) + ops(value.arguments) + b"R" + state
    if isinstance(value, Id):
        return ops(value.value) + b"Q"
    if isinstance(value, dict):
        return b"}(" + b"".join(ops(k) + ops(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(ops, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(ops, value)) + b"t"
    return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"")


def pickled(value):
    return b"\x80\x02" + ops(value) + b"."


def zipped(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def archive(value, storages=(("0", FLOATS),), more=()):
    data = value if isinstance(value, bytes) else pickled(value)
    return zipped([("x/data.pkl", data), *((f"x/data/{key}", bits) for key, bits in storages), *more])


def storage(key="0", count=4, kind="torch.FloatStorage", part=()):
    return Id(("storage", Global(kind), key, "cpu", count, *part))


HOOKS = Call("collections.OrderedDict")


def tensor(shape=(4,), stride=(1,), offset=0, of=None):
    return Call("torch._utils._rebuild_tensor_v2", of or storage(), offset, shape, stride, False, HOOKS)


ATTACK = Call("os.system", CANARY)

expected = {}


def write(name, content, part):
    (OUT / name).write_bytes(content)
    expected[name] = part


def pt(name, value, part, **options):
    write(f"{name}.pt", archive(value, **options), part)


# ---- .pt: tensors that lie ---------------------------------------------------------------------------------------------
def lying_tensors():
    for name, view in {
        "shape_negative": tensor((-4,)), "shape_overflow": tensor((BIG, BIG), (1, 1)), "stride_negative": tensor((4,), (-1,)),
        "stride_overflow": tensor((4, 4), (BIG, BIG)), "offset_negative": tensor(offset=-1), "offset_largest": tensor(offset=2**63 - 1),
        "offset_past_end": tensor(offset=1), "expand_bomb": tensor((2**40,), (0,)), "strides_missing": tensor((2, 2), (1,)),
        "shape_then_empty": tensor((BIG, 4, 0), (1, 1, 1)),
    }.items():
        pt(name, {"t": view}, "do not fit its storage of 4 elements")
    for name, of in {"count_short": storage(count=2), "count_long": storage(count=5), "count_negative": storage(count=-1),
                     "count_overflow": storage(count=BIG), "count_as_bytes": storage(count=4, kind="torch.UntypedStorage")}.items():
        view = tensor(of=of)
        if name == "count_as_bytes":
            view = Call("torch._utils._rebuild_tensor_v3", of, 0, (4,), (1,), False, HOOKS, Global("torch.float32"))
        pt(name, {"t": view}, "its storage should have")
    pt("rank_65", {"t": tensor((1,) * 65, (1,) * 65)}, "expected at most 64 integers")
    pt("shape_text", {"t": tensor(("4",))}, "its shape is damaged")
    pt("shape_call", {"t": tensor(ATTACK)}, "its shape is damaged")
    pt("shape_long", {"t": tensor((2**80,))}, "its shape is damaged")
    pt("key_path", {"t": tensor(of=storage("../../etc/passwd"))}, "is not in the file")
    pt("key_absent", {"t": tensor(of=storage("7"))}, "is not in the file")
    pt("id_call", {"t": tensor(of=Id(ATTACK))}, "not described as torch.save does")
    pt("id_text", {"t": tensor(of=Id("storage"))}, "not described as torch.save does")
    pt("few_arguments", {"t": Call("torch._utils._rebuild_tensor_v2", storage())}, "not described as torch.save does")
    pt("parameter_of_nothing", {"t": Call("torch._utils._rebuild_parameter")}, "a parameter without a tensor")
    # GET of the dict that is being made: a parameter of itself
    circle = Raw(b"ctorch._utils\n_rebuild_parameter\n(h\x01tRq\x01")
    pt("parameter_circle", b"\x80\x02}q\x01X\x01\0\0\0t" + ops(circle) + b"s.", "not a tensor")
    wrapped = tensor()
    for _ in range(20):
        wrapped = Call("torch._utils._rebuild_parameter", wrapped, False, HOOKS)
    pt("parameter_deep", {"t": wrapped}, "an object, not a tensor")
    # one key of 1024 characters, four times
    pt("name_long", b"\x80\x02}" + ops("n" * 1024) + b"q\x01" + b"}h\x01" * 3 + ops(tensor()) + b"ssss.", "4099 characters")


def array(shape=(3,), code="f8", data=bytes(24), state=None, dtype=None):
    dtype = dtype or Call("numpy.dtype", code, False, True, state=(3, "<", None, None, None, -1, -1, 0))
    text = Call("_codecs.encode", data.decode("latin1"), "latin1")
    state = state or (1, shape, dtype, False, text)
    return Call("numpy._core.multiarray._reconstruct", Global("numpy.ndarray"), (0,), text, state=state)


def lying_arrays():
    pt("array_short", {"a": array((4,))}, "needs 4 elements")
    pt("array_odd", {"a": array(data=bytes(23))}, "needs 3 elements")
    pt("array_negative", {"a": array((-3,))}, "is no shape of an array")
    pt("array_overflow", {"a": array((BIG, BIG))}, "is no shape of an array")
    pt("array_without_state", {"a": Call("numpy._core.multiarray._reconstruct", Global("numpy.ndarray"), (0,), "b")}, "five items of state")
    pt("array_of_objects", {"a": array(code="O8", state=(1, (1,), Call("numpy.dtype", "O8"), False, [ATTACK]))}, "dtype 'O8'")
    pt("array_of_attack", {"a": array(state=(1, (3,), ATTACK, False, ATTACK))}, "an unknown dtype")
    pt("array_data_attack", {"a": array(state=(1, (3,), Call("numpy.dtype", "f8"), False, ATTACK))}, "not given as bytes")


def mesh(shape=(2,), at=(0,)):
    axes = tuple(Call("torch.distributed._mesh_layout._FlatLayout", state={"shape": (n,)}) for n in shape)
    layout = Call("torch.distributed._mesh_layout._MeshLayout", state={"axes": axes})
    return Call("torch.distributed.device_mesh.DeviceMesh", state={"_layout": layout, "_mesh_dim_names": ("tp",) * len(shape), "_coordinate_on_dim": at, "_rank": 0})


def dtensor(shape=(8,), local=None, of=None, placements=None, cls="torch.distributed.tensor.DTensor"):
    shard = Call("torch.distributed.tensor.placement_types.Shard", state={"dim": 0})
    spec = Call("torch.distributed.tensor._dtensor_spec.DTensorSpec", state={"mesh": of or mesh(), "placements": placements or (shard,)})
    outer = (Global(cls), Global("torch.float32"), shape, (1,), 0)
    return Call("torch._tensor._rebuild_from_type_v2", Global("torch._utils._rebuild_wrapper_subclass"), Global(cls), outer,
                (None, {"_local_tensor": local or tensor(), "_spec": spec}))


def lying_dtensors():
    pt("dtensor_place_outside", {"d": dtensor(of=mesh(at=(2,)))}, "is not in the mesh")
    pt("dtensor_place_negative", {"d": dtensor(of=mesh(at=(-1,)))}, "is not in the mesh")
    pt("dtensor_mesh_zero", {"d": dtensor(of=mesh((0,)))}, "a mesh of shape [0]")
    pt("dtensor_mesh_huge", {"d": dtensor(of=mesh((BIG, BIG), (0, 0)))}, "1 placements on a mesh")
    pt("dtensor_mesh_overflow", {"d": dtensor(of=mesh((2**20, 2**20), (0, 0)), placements=(Call("torch.distributed.tensor.placement_types.Replicate"),) * 2)},
       "a mesh of shape")
    pt("dtensor_placed_by_attack", {"d": dtensor(placements=(ATTACK,))}, "placed by os.system")
    pt("dtensor_dim_negative", {"d": dtensor(placements=(Call("torch.distributed.tensor.placement_types.Shard", state={"dim": -1}),))}, "placed by")
    pt("dtensor_dim_outside", {"d": dtensor(placements=(Call("torch.distributed.tensor.placement_types.Shard", state={"dim": 9}),))}, "does not fit its shape or the mesh")
    pt("dtensor_split_zero", {"d": dtensor(placements=(Call("torch.distributed.tensor.placement_types._StridedShard", state={"dim": 0, "split_factor": 0}),))}, "placed by")
    pt("dtensor_shape_negative", {"d": dtensor((-8,))}, "is no shape of a DTensor")
    pt("dtensor_shape_overflow", {"d": dtensor((BIG, BIG))}, "is no shape of a DTensor")
    pt("dtensor_other_rank", {"d": dtensor((8, 1))}, "its part has shape")
    pt("dtensor_part_too_large", {"d": dtensor((4,))}, "put it at [0:2]")
    pt("dtensor_of_dtensor", {"d": dtensor(local=dtensor())}, "not a tensor")
    pt("dtensor_evil_class", {"d": dtensor(cls="os.system")}, "os.system")


# ---- .pt: the pickle ---------------------------------------------------------------------------------------------------
def evil_pickles():
    pt("system", {"t": tensor(), "evil": ATTACK}, "os.system")
    pt("system_is_all", ATTACK, "os.system")
    pt("system_with_tensor", {"evil": Call("os.system", CANARY, tensor())}, "os.system")
    pt("eval_in_state", {"evil": Call("builtins.object", state=Call("builtins.eval", f"__import__('os').system('{CANARY}')"))}, "builtins.object")
    pt("getattr", {"evil": Call(Call("builtins.getattr", Global("os.path"), "os.system"), CANARY)}, "hold no tensor")
    pt("dotted_name", {"evil": Call(Global("torch.os.system"), CANARY)}, "torch.os.system")
    pt("run_as_rebuild", {"evil": Call("torch._utils.os.system", CANARY)}, "torch._utils.os.system")
    pt("from_type_attack", {"evil": Call("torch._tensor._rebuild_from_type_v2", Global("os.system"), Global("torch.Tensor"), (CANARY, tensor()), None)},
       "os.system")
    pt("hooks_attack", {"t": Call("torch._utils._rebuild_tensor_v2", storage(), 0, (5,), (1,), False, ATTACK)}, "do not fit")
    for name, data, part in [
        ("memo_4e9", b"j" + struct.pack("<I", 4_000_000_000) + b".", "never stored"), ("stack_empty", b"0.", "the stack is empty"),
        ("mark_missing", b"Nt.", "no MARK"), ("key_without_value", b"}(Nu.", "a key without a value"), ("two_values", b"NN.", "more than one value"),
        ("no_stop", b"N", "it ends early"), ("text_long", b"X\xff\xff\xff\xffa.", "it ends early"), ("text_longest", b"\x8d" + b"\xff" * 8 + b"a.", "it ends early"),
        ("integer_long", b"\x8b\xff\xff\xff\x7f.", "it ends early"), ("opcode_inst", b"(ios\nsystem\n.", "torch.save does not write"),
        ("opcode_extension", b"\x82\x01.", "torch.save does not write"), ("opcode_persid", b"Pstorage\n.", "torch.save does not write"),
        ("protocol_9", b"\x80\x09N.", "a protocol above 5"), ("after_the_end", b"N.cos\nsystem\n", "its pickle ends at"),
        ("reduce_without_tuple", b"cos\nsystem\nNR.", "arguments that are no tuple"), ("append_to_number", b"K\x01K\x02a.", "no container"),
        ("global_cut", b"cos\nsyst", "a line without an end"), ("global_of_numbers", b"K\x01K\x02\x93.", "a global without a name"),
        ("deep", b"]" * 1000 + b"a" * 999 + b".", "nested deeper"), ("circle", b"]q\x01h\x01a.", "occur again"),
        # 40 lists, each holding the one before it twice
        ("shared_2_to_40", b"]" + b"".join(b"q%c](h%ch%ce" % (i, i, i) for i in range(1, 41)) + b".", "more than one value"),
        ("dict_of_itself", b"}q\x01X\x01\0\0\0ah\x01s.", "occur again"),
    ]:
        pt(name, data if data[:1] == b"\x80" else b"\x80\x02" + data, part)
    doubled = b"\x80\x02]" + b"".join(b"q%c0](h%ch%ce" % (i, i, i) for i in range(1, 41)) + b"."
    pt("shared_lists", doubled, "occur again")


# ---- .pt: the archive --------------------------------------------------------------------------------------------------
def evil_archives():
    good = archive({"t": tensor()})
    write("cut_in_half.pt", good[: len(good) // 2], "truncated")
    write("cut_at_the_end.pt", good[:-1], "truncated")
    write("one_byte_more.pt", good + b"x", "truncated")
    write("wrong_crc_of_data.pt", good.replace(FLOATS, FLOATS[::-1]), "has checksum")
    write("wrong_crc_of_pickle.pt", good.replace(b"torch\nFloatStorage", b"torch\nLongStorage\0"), "has checksum")
    write("two_pickles.pt", archive({"t": tensor()}, more=[("y/data.pkl", pickled(None))]), "has two pickles")
    write("byteorder.pt", archive({"t": tensor()}, more=[("x/byteorder", b"middle")]), "expected little or big")
    write("member_up.pt", archive({"t": tensor()}, more=[("x/../../evil", b"")]), "unsafe name")
    write("member_root.pt", archive({"t": tensor()}, more=[("/etc/evil", b"")]), "unsafe name")
    write("member_twice.pt", archive({"t": tensor()}, more=[("x/data/1", b"a"), ("x/data/2", b"b")]).replace(b"x/data/2", b"x/data/1"), "stands twice")
    directory = good.rfind(b"PK\x01\x02")
    for name, at, value, part in [("encrypted", 8, b"\x01\x00", "encrypted"), ("claims_size", 24, b"\xff\xff\xff\x7f", "claims"),
                                  ("header_elsewhere", 42, b"\xff\xff\xff\x7f", "local header")]:
        write(f"{name}.pt", good[: directory + at] + value + good[directory + at + len(value) :], part)
    deflated = io.BytesIO()
    with zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x/data.pkl", pickled({"t": tensor()}))
        z.writestr("x/data/0", bytes(16))
    bomb = deflated.getvalue()
    at = bomb.rfind(b"PK\x01\x02") + 24
    write("bomb.pt", bomb[:at] + b"\x00\x40\x00\x00" + bomb[at + 4 :], "claims")


# ---- the old forms -----------------------------------------------------------------------------------------------------
def stream(value, keys=("0",), parts=None, protocol=1001):
    heads = [b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b".", pickled(protocol), pickled({"little_endian": True})]
    parts = parts or [(4).to_bytes(8, "little") + FLOATS]
    return b"".join(heads) + pickled(value) + pickled(list(keys)) + b"".join(parts)


def evil_streams():
    t, data = {"t": tensor()}, (4).to_bytes(8, "little") + FLOATS
    for name, content, part in [
        ("cut_in_data", stream(t)[:-1], "it is truncated"), ("cut_before_data", stream(t, parts=[data[:5]]), "it is truncated"),
        ("cut_in_pickles", stream(t)[:60], "a line without an end"), ("more", stream(t) + b"x", "last storage ends at"),
        ("count_overflow", stream(t, parts=[(2**62).to_bytes(8, "little") + FLOATS]), "claims"),
        ("count_large", stream(t, parts=[(2**40).to_bytes(8, "little") + FLOATS]), "it is truncated"),
        ("count_lies", stream(t, parts=[(3).to_bytes(8, "little") + FLOATS[:12]]), "its storage should have"),
        ("key_twice", stream(t, keys=("0", "0"), parts=[data, data]), "is there twice"),
        ("key_unknown", stream(t, keys=("0", "9"), parts=[data, data]), "is of no known type"),
        ("key_missing", stream(t, keys=(), parts=[b""]), "is not in the file"), ("keys_no_list", stream(t)[:-24].rsplit(b"\x80\x02", 1)[0] + b"\x80\x02N.", "no list"),
        ("protocol", stream(t, protocol=1002), "expected protocol version 1001"),
        ("part_outside", stream({"t": tensor((2,), of=storage(part=(("1", 3, 2),)))}), "which has 4"),
        ("part_negative", stream({"t": tensor((2,), of=storage(part=(("1", -1, 2),)))}), "which has 4"),
        ("part_too_small", stream({"t": tensor((3,), of=storage(part=(("1", 1, 2),)))}), "storage of 2 elements"),
        ("part_odd", stream({"t": tensor((2,), of=storage(part=("1",)))}), "the part of its storage"),
        ("two_sizes", stream({"t": tensor(), "u": tensor(of=storage(kind="torch.LongStorage"))}), "has elements of"),
        ("system", stream({"t": tensor(), "evil": ATTACK}), "os.system"),
    ]:
        write(f"stream_{name}.pt", content, part)


# ---- distributed checkpoints -------------------------------------------------------------------------------------------
M = "torch.distributed.checkpoint.metadata."


def size(*extents):
    return Call("torch.Size", extents)


def chunk(offsets, sizes):
    return Call(M + "ChunkStorageMetadata", state={"offsets": size(*offsets), "sizes": size(*sizes)})


def entry(shape, chunks, dtype="torch.float32", format=None):
    properties = Call(M + "TensorProperties", state=(Global(dtype), Call("torch.serialization._get_layout", "torch.strided"), False, format or Call(M + "_MEM_FORMAT_ENCODING", 0), False))
    return Call(M + "TensorStorageMetadata", state={"properties": properties, "size": size(*shape), "chunks": chunks})


CHUNK = archive(tensor())


def place(name, offsets, at=0, length=len(CHUNK), file="__0_0.distcp"):
    key = Call(M + "MetadataIndex", state={"fqn": name, "offset": size(*offsets), "index": 0})
    return (key, Call("torch.distributed.checkpoint.filesystem._StorageInfo", state={"relative_path": file, "offset": at, "length": length}))


def metadata(tensors, places, top=M + "Metadata", planner=None):
    pairs = Raw(b"}(" + b"".join(ops(k) + ops(v) for k, v in places) + b"u")
    return pickled(Call(top, state={"state_dict_metadata": tensors, "planner_data": planner, "storage_data": pairs}))


def dcp(name, tensors, places, part, data=CHUNK, **options):
    folder(name, metadata(tensors, places, **options), part, data)


def folder(name, head, part, data=CHUNK, **more):
    (OUT / name).mkdir()
    for file, content in ({".metadata": head, "__0_0.distcp": data} | more).items():
        (OUT / name / file).write_bytes(content)
    expected[name] = part


def evil_checkpoints():
    one = {"w": entry((4,), [chunk((0,), (4,))])}
    for name, file in {"up": "../dcp_up/__0_0.distcp", "root": "/etc/passwd", "dots": "..", "empty": "", "nul": "__0_0.distcp\0x", "below": "a/b"}.items():
        dcp(f"dcp_path_{name}", one, [place("w", (0,), file=file)], "lies in the file")
    dcp("dcp_file_missing", one, [place("w", (0,), file="__7_0.distcp")], "__7_0.distcp")
    dcp("dcp_past_end", one, [place("w", (0,), length=len(CHUNK) + 1)], "it is truncated")
    dcp("dcp_range_overflow", one, [place("w", (0,), at=2**63 - 1, length=2**63 - 1)], "it is truncated")
    dcp("dcp_offset_negative", one, [place("w", (0,), at=-1)], "is no size")
    dcp("dcp_length_negative", one, [place("w", (0,), length=-1)], "is no size")
    dcp("dcp_length_long", one, [place("w", (0,), length=2**70)], "is no size")
    dcp("dcp_cut_archive", one, [place("w", (0,), length=len(CHUNK) - 1)], "truncated")
    dcp("dcp_not_at_archive", one, [place("w", (0,), at=1, length=len(CHUNK) - 1)], "zip")
    for name, offsets, sizes in [("outside", (1,), (4,)), ("negative", (-1,), (4,)), ("size_negative", (0,), (-4,)), ("rank", (0, 0), (4, 1)),
                                 ("overflow", (2**63 - 1,), (2**63 - 1,))]:
        dcp(f"dcp_chunk_{name}", {"w": entry((4,), [chunk(offsets, sizes)])}, [place("w", offsets)], "which is not inside")
    dcp("dcp_shape_overflow", {"w": entry((BIG, BIG), [chunk((0, 0), (4, 1))])}, [place("w", (0, 0))], "is no shape of 'w'")
    dcp("dcp_shape_bomb", {"w": entry((2**50,), [chunk((0,), (2**50,))])}, [place("w", (0,))], "as .metadata says")
    dcp("dcp_gap", {"w": entry((9,), [chunk((0,), (4,)), chunk((5,), (4,))])}, [place("w", (0,)), place("w", (5,), at=len(CHUNK))],
        "hold 8 of 9 elements", data=CHUNK + CHUNK)
    dcp("dcp_overlap", {"w": entry((7,), [chunk((0,), (4,)), chunk((3,), (4,))])}, [place("w", (0,)), place("w", (3,), at=len(CHUNK))],
        "they overlap", data=CHUNK + CHUNK)
    dcp("dcp_same_place", {"w": entry((8,), [chunk((0,), (4,)), chunk((4,), (4,))])}, [place("w", (0,)), place("w", (4,))], "overlap in __0_0.distcp")
    dcp("dcp_chunk_twice", {"w": entry((4,), [chunk((0,), (4,))] * 2)}, [place("w", (0,))], "has two chunks at [0]")
    dcp("dcp_two_places", one, [place("w", (0,)), place("w", (0,), at=1)], "has two places")
    dcp("dcp_in_no_file", one, [], "is in no file")
    dcp("dcp_no_part", {}, [place("w", (0,))], "is no part of a tensor")
    dcp("dcp_other_dtype", {"w": entry((4,), [chunk((0,), (4,))], "torch.int32")}, [place("w", (0,))], "as .metadata says")
    dcp("dcp_unknown_dtype", {"w": entry((4,), [chunk((0,), (4,))], "torch.complex64")}, [place("w", (0,))], "an unknown dtype")
    dcp("dcp_other_shape", {"w": entry((3,), [chunk((0,), (3,))])}, [place("w", (0,))], "as .metadata says")
    dcp("dcp_two_tensors", one, [place("w", (0,), length=len(archive([tensor(), tensor()])))], "holds 2 tensors", data=archive([tensor(), tensor()]))
    attack = archive({"evil": Call("os.system", CANARY, tensor())})
    dcp("dcp_attack_in_chunk", one, [place("w", (0,), length=len(attack))], "holds 0 tensors", data=attack)
    dcp("dcp_system", one, [place("w", (0,))], "os.system", planner=ATTACK)
    for name, call in {"os": Call("builtins.getattr", Global("os.path"), "system"), "class": Call("builtins.getattr", Global(M + "_MEM_FORMAT_ENCODING"), "__class__"),
                       "three": Call("builtins.getattr", Global(M + "_MEM_FORMAT_ENCODING"), "TORCH_CHANNELS_LAST", ATTACK)}.items():
        dcp(f"dcp_getattr_{name}", {"w": entry((4,), [chunk((0,), (4,))], format=call)}, [place("w", (0,))], "not to be trusted")
    dcp("dcp_other_top", one, [place("w", (0,))], "expected torch.distributed.checkpoint.metadata.Metadata", top="os.system")
    dcp("dcp_name_no_text", {7: one["w"]}, [], "is no text")
    dcp("dcp_entry_attack", {"w": ATTACK}, [], "os.system")
    whole = metadata(one, [place("w", (0,))])
    folder("dcp_cut", whole[:-20], "damaged")
    folder("dcp_more", whole + b"x", "its pickle ends at")
    folder("dcp_name_twice", metadata(Raw(b"}(" + (ops("w") + ops(one["w"])) * 2 + b"u"), [place("w", (0,))]), "is there twice")
    folder("dcp_no_storage", pickled(Call(M + "Metadata", state={"state_dict_metadata": {}})), "has no storage_data")
    digest = {"algorithm": "sha256", "files": {"__0_0.distcp": hashlib.sha256(b"other").hexdigest()}}
    folder("dcp_integrity", whole, "integrity.json says", **{"integrity.json": json.dumps(digest).encode()})
    folder("dcp_integrity_algorithm", whole, "expected sha256", **{"integrity.json": b'{"algorithm": "none", "files": {}}'})
    folder("dcp_zarr", whole, "expected torch_dist", **{"metadata.json": b'{"sharded_backend": "zarr"}'})
    folder("dcp_common_attack", whole, "os.system", **{"common.pt": archive({"evil": ATTACK})})


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for part in (lying_tensors, lying_arrays, lying_dtensors, evil_pickles, evil_archives, evil_streams, evil_checkpoints):
        part()
    (OUT / "deepspeed/zero/w").mkdir(parents=True)
    (OUT / "deepspeed/zero/w/fp32.pt").write_bytes(archive({"param": tensor((5,))}))
    expected["deepspeed"] = "do not fit"
    (OUT / "deepspeed_not_pt/zero/w").mkdir(parents=True)
    (OUT / "deepspeed_not_pt/zero/w/fp32.pt").write_bytes(b"hello")
    expected["deepspeed_not_pt"] = "not a .pt file"
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    assert all(path.stat().st_size < 4096 for path in OUT.rglob("*") if path.is_file() and path.name != "expected.json")
    print(len(expected), "entries")


if __name__ == "__main__":
    main()
