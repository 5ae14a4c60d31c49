import doctest
import json
import math
import os
import subprocess
import sys

import assay
import numpy as np
import pytest
from assay import _api, _declarations, _verdict, testing

RMS = {"N": [4], "C": [8]}


@pytest.mark.parametrize("module", [assay, _api, _declarations, _verdict, testing], ids=lambda m: m.__name__)
def test_docstrings(module):
    found = doctest.testmod(module, extraglobs={"assay": assay})
    assert found.attempted > 0
    assert found.failed == 0


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_golden_values_are_those_of_the_formula():
    x = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(assay.golden("softmax", x)["y"], softmax(x), rtol=1e-14)
    np.testing.assert_allclose(assay.golden("softmax", x, {"dim": 0})["y"], softmax(x, 0), rtol=1e-14)
    both = assay.golden("softmax", {"x": x, "grad_y": np.ones_like(x)})
    np.testing.assert_allclose(both["grad_x"], 0, atol=1e-15)
    assert assay.golden("softmax", x.astype(np.float32), level="report")["y"].dtype == np.float32


def test_a_call_has_the_error_that_float32_makes():
    x = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    error = np.abs(softmax(x) - assay.golden("softmax", x)["y"])
    bound = assay.bound("softmax", x)["y"] + 2.0**-24 * np.abs(softmax(x))
    assert 0 < (error / bound).max() < 1
    assert (assay.bound("softmax", x, dtype="float64")["y"] < bound * 1e-8).all()


def test_a_verdict():
    x = np.random.default_rng(2).normal(size=(6, 9)).astype(np.float32)
    right = assay.judge("softmax", x, softmax(x))
    assert right
    assert right.exit_status == 0
    assert right.failures == ()
    assert right.findings[0].dtype == "float32"
    assert 0 < right.ratio <= 1
    wrong = assay.judge("softmax", {"x": x}, {"y": softmax(x, 0)})
    assert not wrong
    assert wrong.exit_status == 1
    assert "dim = -2" in wrong.findings[0].causes[0]
    assert wrong.findings[0].causes[0] in " ".join(wrong.report(width=1000).split())
    assert wrong.findings[0].worst_index is not None
    assert json.loads(json.dumps(wrong.to_dict()))["exit_status"] == 1
    assert wrong._repr_html_().startswith("<iframe")
    assert "FAIL" in repr(wrong)
    assert str(wrong) == wrong.report()


@pytest.mark.parametrize(
    "output",
    [
        lambda y: np.full_like(y, np.nan),
        lambda y: np.zeros_like(y),
        lambda y: np.full_like(y, y.mean()),
        lambda y: y[::-1].copy(),
        lambda y: y.T.copy(),
        lambda y: y[:3],
    ],
    ids=["NaN", "zeros", "mean", "other rows", "other shape", "some rows"],
)
def test_what_no_kernel_makes_is_no_exception(output):
    x = np.random.default_rng(3).normal(size=(6, 9)).astype(np.float32)
    assert not assay.judge("softmax", x, output(softmax(x)))


def test_narrow_outputs_are_judged_in_their_dtype():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = np.random.default_rng(4).normal(size=(6, 9)).astype(ml_dtypes.bfloat16)
    y = softmax(x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert assay.judge("softmax", x, y)
    assert not assay.judge("softmax", x, y.astype(np.float32)), "rounded to bfloat16, float32 is off"


def test_several_outputs_and_gradients():
    call = assay.generate("rms_norm", RMS)
    made = assay.golden("rms_norm", call)
    assert assay.judge("rms_norm", call, made)
    made["grad_x"] = made["grad_x"] * 1.001
    verdict = assay.judge("rms_norm", call, made)
    assert [f.output for f in verdict.failures] == ["grad_x"]


def test_attributes_take_python_values():
    call = assay.generate("rms_norm", RMS)
    assert assay.golden("rms_norm", call, {"eps": 1})["y"][0, 0] != assay.golden("rms_norm", call)["y"][0, 0]
    for wrong, why in (
        ({"epsilon": 1e-5}, "epsilon"),
        ({"eps": "small"}, "eps"),
        ({"eps": object()}, "expected a number"),
    ):
        with pytest.raises(assay.Error, match=why):
            assay.golden("rms_norm", call, wrong)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: assay.golden("sofmax", [1.0]), "sofmax"),
        (lambda: assay.golden("softmax", {"y": [1.0]}), "'y'"),
        (lambda: assay.golden("softmax", [1.0], {"dim": 3}), "dim"),
        (lambda: assay.golden("softmax", [1.0], level="fp32"), "fp32"),
        (lambda: assay.golden("softmax", {"x": object()}), "input 'x'"),
        (lambda: assay.judge("softmax", [1.0], {"z": [1.0]}), "'z'"),
        (lambda: assay.judge("softmax", [1.0], [1.0], tolerance="loose"), "loose"),
        (lambda: assay.judge("softmax", [1.0], [1.0], level="bound"), "bound"),
        (lambda: assay.judge("softmax", [1.0], [1.0], accumulator="fast"), "fast"),
        (lambda: assay.judge("softmax", [1.0], [1.0], intermediate="half precision"), "half precision"),
        (lambda: assay.bound("softmax", [1.0], dtype="int8"), "int8"),
        (lambda: assay.generate("softmax", {"A": 2}), "C|extent"),
        (lambda: assay.set_threads(0), "at least 1"),
        (lambda: assay.diff("/nowhere/a", "/nowhere/b"), "/nowhere"),
    ],
)
def test_what_is_no_call_is_an_error_with_a_sentence(call, why):
    with pytest.raises(assay.Error, match=why):
        call()


def test_gates_can_be_proved():
    call = assay.generate("rms_norm", RMS)
    made = {"y": assay.golden("rms_norm", call)["y"].astype(np.float32)}
    verdict = assay.judge("rms_norm", call, made, prove=True)
    injected = [f for f in verdict.findings if f.injected]
    assert verdict
    assert len(injected) > 3
    assert {f.verdict for f in injected} <= {"passed", "ignored"}


def test_every_operator_is_described():
    names = assay.operators()
    assert len(names) == len(set(names)) > 90
    for name in names:
        op = assay.operator(name)
        assert op.name == name
        assert op.outputs or op.args
        assert op.math
        assert op.source
    assert assay.operator("torch.nn.functional.rms_norm").name == "rms_norm"


def test_threads_change_no_bit():
    call = assay.generate("cross_entropy", {"N": [64], "V": 500, "D": []}, leave_out=["weight", "target_probs"])
    alone = assay.golden("cross_entropy", call)
    assay.set_threads(3)
    try:
        together = assay.golden("cross_entropy", call)
    finally:
        assay.set_threads(1)
    assert all((alone[k] == together[k]).all() for k in alone)


def test_cases_are_what_parametrize_takes():
    cases = assay.cases("rms_norm", [RMS, {"N": [], "C": 3}], ["float32", "bfloat16"], {"eps": 1e-6}, seeds=2)
    assert len({c.id for c in cases}) == len(cases) == 8
    assert cases[0].__name__ == cases[0].id == "rms_norm-float32-N4_C8"
    x = assay.cases("rms_norm", [RMS], ["bfloat16"])[0].inputs["x"]
    assert x.dtype == np.float64
    assert (x.astype(np.float32).view(np.uint32) << 16 == 0).all(), "values of bfloat16"
    assert cases[0].judge(assay.golden("rms_norm", cases[0].inputs, {"eps": 1e-6})["y"])


def test_state_dicts_are_compared():
    a = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
    b = {**a, "b": np.array([0, 0.5, 0], np.float32)}
    assert assay.diff(a, a)
    verdict = assay.diff(a, b)
    assert [f.name for f in verdict.failures] == ["b"]
    assert assay.diff(a, b, only="w")
    with pytest.raises(TypeError, match="two paths or two mappings"):
        assay.diff("a", b)
    with pytest.raises(TypeError, match="mapping"):
        assay.diff(a["w"], a["w"])


def test_files_are_compared(tmp_path):
    for name, scale in (("a", 1), ("b", 1), ("c", 2)):
        np.savez(tmp_path / name, w=np.ones(3, np.float32) * scale)
    assert assay.diff(tmp_path / "a.npz", tmp_path / "b.npz")
    assert not assay.diff(tmp_path / "a.npz", str(tmp_path / "c.npz"))


def test_a_saved_call_is_one_that_check_reads(tmp_path):
    folder = tmp_path / "case"
    assay.save_case(folder, "softmax", [0.0, 0.0], [0.5, 0.5], {"dim": 0})
    text = json.loads((folder / "case.json").read_text())
    assert text["op"] == "softmax"
    assert text["attributes"]["dim"] == 0
    with pytest.raises(assay.Error, match="not empty"):
        assay.save_case(folder, "softmax", [0.0], [1.0])


def test_ratios_of_what_cannot_be_judged():
    assert math.isinf(assay.judge("softmax", [0.0, 0.0], [0.5, math.nan]).ratio)


def test_scalars_are_refused_where_channels_are_needed():
    one = np.float32(1)
    with pytest.raises(assay.Error, match="gated_add"):
        assay.golden("gated_add", {"x": one, "gate": one, "z": one})


def test_a_ctrl_c_ends_a_long_call():
    code = """
import os, signal, threading, time
import numpy as np
import assay
x = np.ones(6_000_000, np.float32)
def interrupt():
    time.sleep(0.5)
    print(time.perf_counter(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    assay.bound("gelu", {"x": x, "grad_y": x})  # seconds
except KeyboardInterrupt:
    print(time.perf_counter())
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    sent, ended = (float(line) for line in done.stdout.split())
    assert ended - sent < 1, done.stderr
