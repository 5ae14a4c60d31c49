"""Recordings under PyTorch's DebugMode: of each call that it sees."""

import json
import os
import subprocess
import sys
from pathlib import Path

import assay
import pytest
from recording import run

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils._debug_mode")

# In one process: its tests share what they record.
pytestmark = pytest.mark.xdist_group("debug mode")
PROGRAM = Path(__file__).with_name("debugged_program.py")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Runs the program once for each way, and returns its dump."""
    folder = tmp_path_factory.mktemp("debugged")

    def record(how, *options, ranks=1):
        out = folder / "-".join([how, *options])
        if out.exists():
            return out
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        done = subprocess.run(
            [sys.executable, *(launcher if ranks > 1 else []), str(PROGRAM), how, str(out), *options],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        assert "not recorded" not in done.stderr, done.stderr
        return out

    return record


def diff(actual, reference, *options):
    done = subprocess.run(
        [sys.executable, "-m", "assay_command", "diff", str(actual), str(reference), *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout


def values(dump, name):
    return torch.from_dlpack(dump[name].read())


def test_calls_have_their_modules_arguments_and_attributes(recorded):
    dump = assay.inspect(recorded("eager"))
    at = "(step 1, micro-batch 1, forward)"
    x = values(dump, f"layers.1.mlp.silu() input x {at}")
    assert torch.equal(torch.nn.functional.silu(x), values(dump, f"layers.1.mlp.silu() output y {at}"))
    assert dump[f"layers.1.mlp.silu() output y {at}"].op == "silu"
    mat1, mat2, bias = (values(dump, f"head.addmm() input {arg} {at}") for arg in ("mat1", "mat2", "self"))
    assert torch.equal(torch.addmm(bias, mat1, mat2), values(dump, f"head.addmm() output y {at}"))
    norm = dump[f"layers.0.norm.layer_norm() output rstd {at}"]
    assert norm.op == "layer_norm" and norm.shape == (3, 8, 1)


def test_calls_in_backward_belong_to_the_module_of_their_node(recorded):
    dump = assay.inspect(recorded("eager"))
    at = "(step 0, micro-batch 1, backward)"
    gradient, x = (values(dump, f"layers.1.mlp.silu_backward() input {arg} {at}") for arg in ("grad_output", "self"))
    assert torch.equal(x, values(dump, "layers.1.mlp.silu() input x (step 0, micro-batch 1, forward)"))
    assert torch.equal(gradient, values(dump, f"layers.1.mlp.down grad_input input {at}"))
    made = values(dump, f"layers.1.mlp.silu_backward() output y {at}")
    assert torch.equal(made, values(dump, f"layers.1.mlp.up grad_output y {at}"))
    # What micro-batch 1 adds to the gradient that micro-batch 0 has left.
    added = values(dump, f"head.weight.add() output y {at}")
    assert torch.equal(added, values(dump, "head grad weight (step 0, backward)"))


@pytest.mark.slow
def test_two_of_them_and_a_recording_of_modules_agree(recorded, tmp_path):
    status, text = diff(recorded("eager"), recorded("eager", "0"))
    assert status == 0 and " 0 not compared" in text, text
    plain = tmp_path / "plain"
    done = run(plain, [sys.executable, PROGRAM, "plain", "-"])
    assert done.returncode == 0, done.stderr
    status, text = diff(recorded("eager"), plain)
    assert status == 0, text
    assert f"{len(assay.inspect(plain))} compared" in text, "the modules have the same names"


@pytest.mark.slow
def test_the_program_computes_the_same(recorded, tmp_path):
    """The recorder's own copies are no calls of the program."""
    logs = []
    for how in ("logged", "logged"):
        logs.append(recorded(how, *["0"] * len(logs)).read_text())
    assert logs[0] == logs[1]
    dump = assay.inspect(recorded("eager"))
    seen = sum("head.addmm() output y" in t.name for t in dump)
    assert seen == 4, "a call of each micro-batch"


def test_a_fault_is_named_at_its_first_call(recorded):
    status, text = diff(recorded("eager", "0.5"), recorded("eager"), "--only", "layers.*() output *")
    assert status == 1
    assert "first in execution order: layers.1.mlp.up.addmm() output y (step 0, micro-batch 0, forward)" in text


def test_compiled_regions_are_seen(recorded):
    status, text = diff(recorded("compiled"), recorded("eager"), "--only", "layers.*() *")
    assert status == 0, text
    compared = int(text.rpartition(" compared: ")[0].split()[-1])
    # Eager adds the gradients of the residual within the norm's backward pass, a compiled region elsewhere.
    names = [t.name for t in assay.inspect(recorded("compiled")) if t.name.startswith("layers.") and "() " in t.name]
    assert compared == sum("native_layer_norm_backward()" not in name for name in names), text


def test_what_checkpointing_repeats_is_recorded_once(recorded):
    calls = [
        {t.name for t in assay.inspect(recorded(how)) if "forward" in t.name and "layers" in t.name}
        for how in ("checkpoint", "eager")
    ]
    assert calls[0] == calls[1]


def test_collectives_are_recorded_with_what_they_return(recorded):
    dump = assay.inspect(recorded("ranks", ranks=2))
    at = "(step 0, micro-batch 0, forward)"
    summed = dump[f"layers.0.mlp.all_reduce() output y {at}"]
    assert summed.op == "_c10d_functional.all_reduce"
    assert torch.equal(values(dump, summed.name), values(dump, f"layers.0.mlp output y {at}"))
    # What each rank has given is half of the sum, of which nothing says the layout.
    weight = values(dump, "layers.0.mlp.down param weight (step 0, forward)")
    x = values(dump, f"layers.0.mlp.silu() output y {at}")
    torch.testing.assert_close(values(dump, summed.name), x @ weight.T, rtol=1e-5, atol=1e-5)


def test_a_log_is_read_and_names_the_call_that_differs(recorded):
    status, text = diff(recorded("logged"), recorded("logged", "0"), "--accept-statistics")
    assert status == 0, text
    status, text = diff(recorded("logged", "0.5"), recorded("logged"), "--tolerance", "bitwise")
    assert status == 1
    assert "first in execution order: layers.1.mlp.up.t() output y (step 0, forward)" in text, text


def test_norms_in_a_log_are_those_of_the_recorded_values(recorded):
    command = [sys.executable, "-m", "assay_command", "inspect", "--json", str(recorded("logged"))]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)["tensors"]
    logged = [t for t in listed if (t["module"], t["slot"]) == ("layers.1.mlp.silu()", "output")]
    assert len(logged) == 4
    dump = assay.inspect(recorded("eager"))
    for call, t in enumerate(logged):
        y = values(dump, f"layers.1.mlp.silu() output y (step {call // 2}, micro-batch {call % 2}, forward)")
        assert t["shape"] == list(y.shape)
        assert t["recorded"][0]["abs_sum"] == pytest.approx(y.double().abs().sum().item(), rel=1e-13)


def test_a_block_without_an_optimizer_has_its_gradients(tmp_path):
    import assay.torch
    from torch.utils._debug_mode import DebugMode

    model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    with DebugMode() as mode, assay.torch.debug_mode(out=tmp_path / "dump"):
        model(x).sum().backward()
    assert "clone" not in mode.debug_string(), "the recorder's own copies are no calls of the program"
    dump = assay.inspect(tmp_path / "dump")
    assert torch.equal(values(dump, "grad weight (step 0, backward)"), model.weight.grad)
    assert torch.equal(values(dump, "addmm() input mat1 (step 0, micro-batch 0, forward)"), x)


def test_a_mode_must_be_active(tmp_path):
    import assay.torch

    with (
        pytest.raises(ValueError, match="no DebugMode is active; expected: with DebugMode"),
        assay.torch.debug_mode(out=tmp_path / "dump"),
    ):
        pass
    with pytest.raises(ValueError, match="leave it out"):
        assay.torch.debug_mode(out=tmp_path / "dump", functions=True)
    assert not (tmp_path / "dump").exists()
