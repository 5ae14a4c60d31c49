"""Calls that activation checkpointing repeats in backward are recorded once, and held against the first."""

import contextlib
import sys
from pathlib import Path

import assay
import pytest
from recording import run

torch = pytest.importorskip("torch")

import assay.torch  # noqa: E402
from assay.torch._recomputed import Recomputed  # noqa: E402
from assay.torch._records import Place  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

PROGRAM = Path(__file__).with_name("recorded_program.py")
OTHER = "activation checkpointing repeats calls with other results"


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    out = tmp_path_factory.mktemp("checkpointing") / "single"
    assert run(out, [sys.executable, PROGRAM, "single"]).returncode == 0
    return out


def test_memory_tells_the_first_call_of_a_checkpoint_alone():
    """A gradient was lost in one of 28 runs: an address that a later micro-batch had, too, decided."""
    reused, calls = torch.ones(2), Recomputed()
    kept = [torch.ones(2) for _ in range(2)]
    places = [(Place(0, part, "first", "Linear", 0), Place(0, part, "second", "Linear", 0)) for part in range(2)]
    for x, (first, second) in zip(kept, places, strict=True):
        calls.note("first", first, [("x", x)])
        calls.note("second", second, [("x", reused)])
    assert calls.place_of("first", [("x", kept[0])], 1) == places[0][0]
    assert calls.place_of("second", [("x", reused)], 1) == places[0][1]


@pytest.mark.parametrize("mode", ["checkpoint", "reentrant"])
def test_calls_are_recorded_once_with_their_gradients(single, tmp_path, mode):
    done = run(tmp_path / "dump", [sys.executable, PROGRAM, mode])
    assert done.returncode == 0, done.stderr
    assert "calls that activation checkpointing repeats are recorded once" in done.stderr
    assert OTHER not in done.stderr
    assert {t.name for t in assay.inspect(tmp_path / "dump")} == {t.name for t in assay.inspect(single)}
    verdict = assay.diff(tmp_path / "dump", single)
    assert verdict, verdict.report()


class Block(torch.nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.up, self.drop, self.down = torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)
        self.how = how

    def body(self, x):
        return self.down(self.drop(self.up(x)))

    def forward(self, x):
        return checkpoint(self.body, x, **self.how)


def train(out, is_pipelined=False, **how):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Block(**how), Block(**how))
    recorder = assay.torch.record(model, out=out, steps="0")
    batches = [torch.randn(2, 8) for _ in range(3)]
    losses = []
    for batch in batches:
        losses.append(model(batch).square().sum())
        if not is_pipelined:
            losses.pop().backward()
    for loss in losses:
        loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    recorder.close()
    return model


@pytest.mark.parametrize("is_pipelined", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("preserve_rng_state", [False, True])
def test_other_results_are_said(tmp_path, capfd, is_pipelined, use_reentrant, preserve_rng_state):
    train(tmp_path / "dump", is_pipelined, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    said = capfd.readouterr().err
    if preserve_rng_state:
        assert OTHER not in said
    else:
        assert f"{OTHER}, and gradients are of these: '2.drop' (3 calls), '1.drop' (3 calls);" in said


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_are_of_their_micro_batches(tmp_path, use_reentrant):
    """Backward of the first comes behind the forward passes of all."""
    model = train(tmp_path / "dump", True, use_reentrant=use_reentrant, preserve_rng_state=True)
    dump = assay.inspect(tmp_path / "dump")
    whole = torch.zeros(8, 8)
    for m in range(3):
        y = torch.tensor(dump[f"2.down input input (step 0, micro-batch {m}, forward)"].read())
        gradient = torch.tensor(dump[f"2.down grad_output y (step 0, micro-batch {m}, backward)"].read())
        handed_back = torch.tensor(dump[f"2.down grad_input input (step 0, micro-batch {m}, backward)"].read())
        before = torch.tensor(dump["2.down param weight (step 0, forward)"].read())
        torch.testing.assert_close(handed_back, gradient @ before)
        whole += gradient.T @ y
    torch.testing.assert_close(whole, model[2].down.weight.grad)


def test_a_layer_that_is_called_twice(tmp_path, capfd):
    block = Block(use_reentrant=True, preserve_rng_state=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), block, block)
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0")
    model(torch.randn(2, 8)).square().sum().backward()
    recorder.close()
    assert OTHER not in capfd.readouterr().err
    dump = [t for t in assay.inspect(tmp_path / "dump") if t.module == "1.down"]
    weight = next(torch.tensor(t.read()) for t in dump if t.slot == "param")
    of_model = next(t.read() for t in assay.inspect(tmp_path / "dump") if t.module == "" and t.slot == "grad_output")
    of_last = next(t.read() for t in dump if t.call == 1 and t.slot == "grad_output")
    assert (of_last == of_model).all()
    for call in (0, 1):
        of_call = {t.slot: torch.tensor(t.read()) for t in dump if t.call == call and t.slot.startswith("grad_")}
        torch.testing.assert_close(of_call["grad_input"], of_call["grad_output"] @ weight)


def test_a_checkpoint_whose_input_lies_elsewhere_is_of_the_last_micro_batch(tmp_path, capfd):
    """As where it is kept on the host: its memory does not tell."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Block(use_reentrant=True, preserve_rng_state=True))
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0")

    def elsewhere(x):
        return x.clone()

    for hooks in (contextlib.nullcontext(), torch.autograd.graph.saved_tensors_hooks(elsewhere, elsewhere)):
        with hooks:
            y = model(torch.randn(2, 8))
        y.square().sum().backward()
    recorder.close()
    assert OTHER not in capfd.readouterr().err
    gradients = [t for t in assay.inspect(tmp_path / "dump") if t.module == "1.down" and t.slot == "grad_output"]
    assert sorted(t.micro_batch for t in gradients) == [0, 1]


def test_what_a_model_calls_without_gradients_is_recorded_without_them(tmp_path):
    class Frozen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tower, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                y = self.tower(x)
            return self.head(y)

    model = Frozen()
    recorder = assay.torch.record(model, out=tmp_path / "dump")
    model(torch.randn(2, 4)).sum().backward()
    with torch.no_grad():
        model(torch.randn(2, 4))  # is no training
    recorder.close()
    dump = assay.inspect(tmp_path / "dump")
    assert {t.slot for t in dump if t.module == "tower"} == {"input", "output", "param"}
    assert {(t.micro_batch, t.call) for t in dump} == {(-1, 0), (0, 0)}
