"""inspect, convert and tolerance."""

import os
import sys
import types
from pathlib import Path

import assay
import numpy as np
import pytest

DEMO = Path(__file__).parents[2] / "demo"


def test_a_dump_of_two_ranks_is_read_as_on_one_device():
    dump = assay.inspect(DEMO / "clean")
    assert dump.world_size == 2 and len(dump) > 100
    whole = [t for t in dump if t.parts == 2 and t.has_values and t.slot == "output"]
    values = whole[0].read()
    assert values.shape == whole[0].shape
    assert dump[whole[0].name] is whole[0]
    assert "2 ranks" in repr(dump)
    assert whole[0] in dump and whole[0].name in dump and "nonsense" not in dump
    assert dump[:2] == dump.tensors[:2]
    with pytest.raises(KeyError, match="no tensor has the name 'nonsense'"):
        dump["nonsense"]


def test_a_file_that_was_shortened_since_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(100_000))
    [x] = assay.inspect(tmp_path / "x.npy")
    before = x.read()
    os.truncate(tmp_path / "x.npy", 4096)
    assert before.sum() == 100_000  # the caller's own copy
    with pytest.raises(assay.Error, match=r"x\.npy"):
        x.read()


def test_a_format_that_is_not_written_is_an_error(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(assay.Error, match="'zarr' is no format that assay writes; expected assay-dump, safetensors"):
        assay.convert(tmp_path / "x.npy", tmp_path / "y", to="zarr")
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("name", ["x.safetensors", "x.h5", "npy folder", "assay-dump"])
def test_what_is_converted_has_the_same_bits(tmp_path, name):
    rng = np.random.default_rng(1)
    given = {"a.weight": rng.random((3, 5), dtype=np.float32), "b": np.arange(4)}
    np.savez(tmp_path / "given.npz", **given)
    done = assay.convert(tmp_path / "given.npz", tmp_path / name, to="npy" if name == "npy folder" else "")
    assert done.tensors == 2 and done.left_out == ()
    back = {t.module or t.arg: t.read() for t in assay.inspect(tmp_path / name)}
    for key, array in given.items():
        found = [v for k, v in back.items() if key.startswith(k) and v.shape == array.shape]
        assert len(found) == 1 and found[0].dtype == array.dtype and (found[0] == array).all()
    assert assay.diff(tmp_path / "given.npz", tmp_path / name, tolerance="bitwise")


def test_nothing_is_overwritten(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "y.safetensors").write_text("mine")
    with pytest.raises(assay.Error, match=r"y\.safetensors"):
        assay.convert(tmp_path / "x.npy", tmp_path / "y.safetensors")
    assert (tmp_path / "y.safetensors").read_text() == "mine"


def test_what_is_no_dump_is_said(tmp_path):
    with pytest.raises(assay.Error, match="nowhere"):
        assay.inspect(tmp_path / "nowhere")
    (tmp_path / "x.safetensors").write_bytes(np.random.default_rng(2).bytes(64))
    with pytest.raises(assay.Error, match=r"x\.safetensors"):
        assay.inspect(tmp_path / "x.safetensors")


def test_tolerances_are_the_tables_rows():
    loose, strict = assay.tolerance("bfloat16", 100_000), assay.tolerance("bfloat16")
    assert loose.atol > strict.atol and loose.source
    with pytest.raises(assay.Error, match="float33"):
        assay.tolerance("float33")
    with pytest.raises(assay.Error, match="nobodys"):
        assay.tolerance("float32", policy="nobodys")


def test_progress_is_shown_where_somebody_looks(monkeypatch):
    told = []

    class Bar:
        def __init__(self, total, desc, **_):
            self.n, self.desc, self.total = 0, desc, total

        def update(self, more):
            self.n += more
            told.append((self.desc, self.n, self.total))

        def close(self):
            told.append("closed")

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(__spec__=object(), auto=None))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    side = {f"w{i}": np.ones(1000, np.float32) for i in range(3)}
    assert assay.diff(side, side)
    assert told == []  # stderr is no terminal
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert assay.diff(side, side)
    assert told[0][0] == "comparing" and told[-1] == "closed"
    assert all(0 <= done <= total for _, done, total in told[:-1] if total)


def test_names_that_are_no_text_are_read(tmp_path):
    folder = os.fsencode(tmp_path / "run") + b"\xff"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system has no such names")
    path = os.fsdecode(folder + b"/x.npy")
    np.save(path, np.ones(3))
    [x] = assay.inspect(path)
    assert x.read().tolist() == [1, 1, 1]
    assert assay.diff(path, path).passed
    assert assay.convert(path, os.fsdecode(folder + b"/x.safetensors")).tensors == 1
    with pytest.raises(assay.Error, match=r"run.*none\.npy"):
        assay.inspect(os.fsdecode(folder + b"/none.npy"))
    with pytest.raises(assay.Error, match="run"):
        assay.tolerance("float32", policy=os.fsdecode(folder + b"/none.toml"))
    assay.save_case(os.fsdecode(folder + b"/case\xfe"), "relu", [1.0, -1.0], [1.0, 0.0])
    assert os.path.exists(folder + b"/case\xfe/case.json")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "bool"])
def test_a_tensor_of_torch_has_the_same_bits(tmp_path, name):
    torch = pytest.importorskip("torch")
    x = torch.arange(12).reshape(3, 4).float().to(getattr(torch, name))
    torch.save({"x": x}, tmp_path / "x.pt")
    found = assay.inspect(tmp_path / "x.pt")["x"].to_torch()
    assert found.dtype == x.dtype and torch.equal(found.float(), x.float())
    found.zero_()  # it is the caller's
