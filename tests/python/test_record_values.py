"""assay record --values: what is computed of tensors instead of these; --phases."""

import hashlib
import re
import sys
from pathlib import Path

import assay
import numpy as np
import pytest
from recording import run

torch = pytest.importorskip("torch")

import assay.torch  # noqa: E402

PROGRAM = Path(__file__).with_name("recorded_program.py")


class Odd(torch.nn.Module):
    """Tensors that arithmetic is special for: bfloat16, integers, bool, nothing, what is not finite, strides."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6, dtype=torch.bfloat16)

    def forward(self, x):
        y = self.linear(x)
        inf = torch.tensor([1.0, float("-inf")])
        nan = torch.tensor([float("nan"), 2.0])
        return y, y.T, y > 0, y.argmax(-1), y[:0], inf, nan, y[0, 0].float(), y.to(torch.complex64)


def recorded(out, **selection):
    torch.manual_seed(0)
    model = Odd()
    recorder = assay.torch.record(model, out=out, steps="0", **selection)
    model(torch.randn(300, 6, dtype=torch.bfloat16))[0].sum().backward()
    recorder.close()
    return assay.inspect(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("values") / "whole")


def report(actual, reference, *options):
    import subprocess

    done = subprocess.run(["assay", "diff", actual, reference, *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def statistics_in(path):
    """By name, as the index of the dump has them."""
    import json

    lines = (path / "rank00000.h5").read_bytes()
    start = lines.index(b'{"seq"')
    text = lines[start : lines.rindex(b"}\n") + 1].decode()
    return [json.loads(line) for line in text.splitlines()]


def test_statistics_are_those_of_numpy(whole, tmp_path):
    dump = recorded(tmp_path / "statistics", values="statistics")
    assert [t.name for t in dump] == [t.name for t in whole] and not any(t.has_values for t in dump)
    with pytest.raises(assay.Error, match="only its statistics were recorded"):
        dump[0].read()
    entries = {(e["slot"], e["module"], e["arg"]): e for e in statistics_in(tmp_path / "statistics")}
    for t in whole:
        x = np.asarray(t.to_torch().double())
        found = entries[t.slot, t.module, t.arg]["statistics"]
        assert found.pop("arithmetic") == "float64"
        found = {name: float(value) for name, value in found.items()}
        if not x.size:
            assert found == {"min": 0, "max": 0, "mean": 0, "l2": 0}
            continue
        with np.errstate(invalid="ignore"):
            expected = {"min": x.min(), "max": x.max(), "mean": x.mean(), "l2": np.linalg.norm(x)}
        for name, value in expected.items():
            limit = 0 if name in ("min", "max") or not np.isfinite(value) else 1e-12 * np.abs(x).sum()
            assert found[name] == value or abs(found[name] - value) <= limit or np.isnan([found[name], value]).all()


def test_hashes_are_those_of_inspect(whole, tmp_path):
    recorded(tmp_path / "hashes", values="hashes")
    entries = {(e["slot"], e["module"], e["arg"]): e for e in statistics_in(tmp_path / "hashes")}
    for t in whole:
        bits = t.to_torch().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if 0 not in t.shape else b""
        assert entries[t.slot, t.module, t.arg]["checksum"] == f"sha256:{hashlib.sha256(bits).hexdigest()}"
    verdict = assay.diff(tmp_path / "hashes", whole.path)
    assert verdict, verdict.report()
    assert "every bit equal, by sha256" in verdict.report()


def test_a_selection_that_says_nothing_is_refused():
    with pytest.raises(ValueError, match="values 'means': expected full, statistics, sketches, hashes"):
        assay.torch.Selection(values="means")
    with pytest.raises(ValueError, match="phases 'update': expected forward, backward, optimizer"):
        assay.torch.Selection(phases=["update"])


def test_a_phase_can_be_chosen(whole, tmp_path):
    for phase in ("forward", "backward"):
        dump = recorded(tmp_path / phase, phases=[phase])
        assert [t.name for t in dump] == [t.name for t in whole if t.phase == phase] and len(dump) > 1


def program(out, mode, *options, ranks=1, rate=1e-2):
    launch = [sys.executable]
    if ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = run(out, [*launch, PROGRAM, mode, rate], "--steps", "0", *options)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    out = tmp_path_factory.mktemp("values") / "single"
    program(out, "single")
    return out


def test_ranks_statistics_are_put_together(single, tmp_path):
    said = program(tmp_path / "dump", "tp", "--values", "statistics", ranks=2)
    size = re.search(r"([\d.]+) kB for 1 step of 2 ranks", said)
    micro_batch = re.search(r"\(([\d.]+) kB more", said)
    actual = sum(len(str(e)) for e in statistics_in(tmp_path / "dump"))
    estimated = 1e3 * (float(size[1]) / 2 + 3 * float(micro_batch[1]))
    assert abs(estimated - actual) < 0.1 * actual
    verdict = assay.diff(tmp_path / "dump", single)
    count = len(assay.inspect(single))
    # Of partial sums, which no layer hands on, statistics say nothing.
    partial = [f for f in verdict.failures if f.verdict == "not comparable"]
    assert {f.name.split(" (")[0] for f in partial} == {
        "embedding output y", "layers.0.down output y", "layers.1.down output y", "head grad_input input",
        "layers.0.up grad_input input", "layers.1.up grad_input input",
    }  # fmt: skip
    others = [f for f in verdict.failures if f not in partial]
    assert len(others) == count - len(partial) and {f.verdict for f in others} == {"statistics agree"}
    assert any("max, min, l2 agree" in f.reason for f in others)


def test_a_wrong_rate_shows_in_statistics(single, tmp_path):
    program(tmp_path / "dump", "single", "--values", "statistics", "--phases", "optimizer", rate=2e-2)
    verdict = assay.diff(tmp_path / "dump", single, only="*param weight*optimizer)")
    wrong = [f for f in verdict.failures if f.verdict == "failed"]
    assert wrong and all("optimizer" in f.name for f in wrong)


@pytest.mark.slow
def test_ranks_hashes_are_held_against_values_and_hashes(tmp_path):
    for values in ("full", "hashes"):
        program(tmp_path / values, "tp", "--values", values, ranks=2)
    for reference in ("full", "hashes"):
        verdict = assay.diff(tmp_path / "hashes", tmp_path / reference, only="*param*")
        assert verdict, verdict.report()
        assert "by sha256 of 2 parts" in verdict.report()


def test_micro_batches_are_numbered_over_ranks_without_what_models_are_given(single, tmp_path):
    for name, *options in (("modules", "--modules", "layers.*"), ("phases", "--phases", "backward")):
        program(tmp_path / name, "ddp", *options, ranks=2)
        found = {t.micro_batch for t in assay.inspect(tmp_path / name) if t.slot == "grad_output"}
        assert found == {0, 1, 2, 3}, name
