"""assay record --functions: what modules call between their submodules."""

import sys
from pathlib import Path

import assay
import pytest
from recording import run

torch = pytest.importorskip("torch")


def test_functions_within_modules(tmp_path):
    program = Path(__file__).with_name("recorded_program.py")
    done = run(tmp_path / "dump", [sys.executable, program, "single", 1e-2], "--functions", "--steps", "0")
    assert done.returncode == 0, done.stderr
    dump = assay.inspect(tmp_path / "dump")
    added = dump["layers.0.add() output y (step 0, micro-batch 0, forward)"]
    assert added.op == "add"
    inputs = [dump[f"layers.0.add() input {arg} (step 0, micro-batch 0, forward)"].read() for arg in "ab"]
    assert (inputs[0] + inputs[1] == added.read()).all()


FUNCTIONAL = """
import os, torch, torch.nn.functional as F
class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.w, self.b = torch.nn.Parameter(torch.ones(16)), torch.nn.Parameter(torch.zeros(16))
        for p in (self.w, self.b, *self.up.parameters()):  # of few digits, the same on each machine
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.5)
    def forward(self, x):
        x = F.layer_norm(self.up(x), (16,), self.w, self.b)
        x = (1 - torch.relu(x).square() * 0.3).clamp(min=-0.4)
        return 2 / (x.masked_fill(x > 0.9, 0.25) + 1.5) ** 3
torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
Gated()((torch.arange(40.).view(5, 8) * 11 % 17) / 8 - 1).sum().backward()
"""


@pytest.fixture
def sides(tmp_path, monkeypatch):
    """Records a program with the vector unit and without it."""

    def record(program, dtype="float32", name="right"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "program.py").write_text(program)
        monkeypatch.setenv("DTYPE", dtype)
        for side in ("dump", "default"):
            if side == "default":
                monkeypatch.setenv("ATEN_CPU_CAPABILITY", side)
            done = run(folder / side, [sys.executable, folder / "program.py"], "--functions")
            assert done.returncode == 0, done.stderr
        return folder / "default", folder / "dump"

    return record


def unjudged(verdict):
    return [f["name"] for f in verdict.to_dict()["findings"] if f.get("unjudged")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_numbers_are_operands_of_functions(sides, dtype):
    actual, reference = sides(FUNCTIONAL, dtype)
    dump = assay.inspect(reference)
    operands = {"pow b": 2, "mul b": 0.3, "sub a": 1, "clip min": -0.4, "where a": 0.25, "div a": 2}
    for (op, arg), value in ((name.split(), value) for name, value in operands.items()):
        number = dump[f"{op}() input {arg} (step 0, micro-batch 0, forward)"]
        assert number.shape == () and number.read() == (
            value if dtype == "float64" else float(torch.tensor(value).float())
        )
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict
    assert unjudged(verdict) == []


# GShard's way to choose an expert, and functions whose dimensions the values do not show.
ROUTED = """
import os, torch, torch.nn.functional as F
class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 2, bias=False)
        self.up, self.down = torch.nn.Parameter(torch.ones(2, 8, 12)), torch.nn.Parameter(torch.ones(2, 12, 8))
        for p in self.parameters():
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.5)
    def forward(self, x):
        x = x / x.norm(dim=0, keepdim=True) * torch.linalg.vector_norm(x, axis=1, keepdims=True)
        p = F.softmax(self.gate(x), dim=-1)
        p = p * F.one_hot(p.argmax(-1), 2)
        y = torch.einsum("tm,emf->tef", x, self.up).relu()
        y = torch.einsum("tef,efm,te->tm", y, self.down, p / p.sum(1, keepdim=True))
        best, places = y.topk(3, dim=0)
        return best.mean(dim=(0, 1)) + x.gather(0, places).cumsum(0).sum()
torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
Experts()((torch.arange(64.).view(8, 8) * 11 % 17) / 8 - 1).backward()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attributes_are_recorded(sides, dtype):
    actual, reference = sides(ROUTED, dtype)
    dump = assay.inspect(reference)
    first = dump["einsum() output y (step 0, micro-batch 0, forward)"]
    assert first.attributes == {"equation": "tm,emf->tef"}
    norms = [t for t in dump if t.op == "l2_norm" and t.slot == "output"]
    assert [t.attributes for t in norms] == [{"dim": 0, "keepdim": True}, {"dim": 1, "keepdim": True}]
    assert dump["reduce_mean() output y (step 0, micro-batch 0, forward)"].attributes == {"dims": [0, 1]}
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict
    assert unjudged(verdict) == []


def test_another_dimension_is_named(sides):
    _, reference = sides(ROUTED)
    actual, _ = sides(ROUTED.replace("self.gate(x), dim=-1", "self.gate(x), dim=0"), name="wrong")
    verdict = assay.diff(actual, reference)
    assert "it is softmax with dim = -2, where the reference has dim = -1" in verdict.report()
