"""The installed wheel in a root that has neither its source nor numpy: tools/try_wheel runs it there."""

import array
import json
import re
import subprocess
import sys
from importlib.metadata import files, requires
from pathlib import Path

import assay
import assay.testing
import pytest


def command(*words: str, status: int = 0) -> str:
    done = subprocess.run(["assay", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_it_needs_nothing_else():
    assert [r.partition("~")[0] for r in requires("assay") or []] == ["nanobind-backend"]
    assert "numpy" not in sys.modules


def test_arrays_of_the_standard_library_are_judged():
    x = memoryview(array.array("f", [0.5, -1.0, 2.0, 0.25]))
    y = assay.golden("softmax", x)["y"].values()
    assert assay.judge("softmax", x, memoryview(array.array("f", y)))
    wrong = assay.judge("softmax", x, memoryview(array.array("f", y[::-1])))
    assert not wrong and wrong.score == 0


def test_matrices_are_multiplied_with_the_blas_of_the_wheel():
    n = 64
    ones = memoryview(array.array("d", [1.0] * (n * n))).cast("B").cast("d", (n, n))
    assert set(assay.golden("matmul", {"a": ones, "b": ones})["y"].values()) == {float(n)}


def test_a_failing_assertion_shows_its_cause():
    x = [0.1 * i * i - 1.3 for i in range(40)]
    y = assay.golden("silu", x)["y"].values()
    with pytest.raises(AssertionError, match="actual = 2 x reference"):
        assay.testing.assert_matches_golden("silu", x, [2 * v for v in y])


def test_the_command_replays_and_compares(tmp_path: Path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for words in (["--dump", one], ["--parallel", "dp=2", "--dump", two]):
        command("replay", "--model", "qwen3-moe-tiny", "--precision", "exact", "--micro-batches", "2", *words)
    assert command("diff", two, one).startswith("PASS")
    assert "expected" in command("replay", "--model", "nobodys", status=2)


def test_the_command_plans_without_glpk(tmp_path: Path):
    plan = str(tmp_path / "plan.toml")
    strategy = ["--model", "telechat3-438b", "--parallel", "tp=8,sp=1,dp=2,zero=1,pp=4", "--sequences", "16"]
    assert re.search(r"they have (\d+) of \1 paths", command("plan", *strategy, "-o", plan))
    assert "stages" in command("align", plan, "--plan-only")
    said = command("plan", *strategy, "--memory-per-device", "2000", "--balance", status=2)
    assert "built without GLPK" in said and "libglpk-dev" in said
    assert not any("glpk" in file.name for file in files("assay") or [])


def test_hdf5_is_in_it(tmp_path: Path):
    dump = tmp_path / "dump"
    command("replay", "--model", "qwen3-moe-tiny", "--dump", str(dump))
    found = json.loads(command("inspect", "--json", str(dump)))
    assert found["format"] == "assay-dump" and any(dump.glob("*.h5"))
    assay.convert(dump, tmp_path / "x.h5")
    assert len(assay.inspect(tmp_path / "x.h5")) == len(found["tensors"])
