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
    """Records a program without the vector unit and with it."""

    def record(program, dtype="float32", name="right", options=("--functions",), sides=("default", "dump")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "program.py").write_text(program)
        monkeypatch.setenv("DTYPE", dtype)
        for side in sides:
            with monkeypatch.context() as here:
                if side == "default":
                    here.setenv("ATEN_CPU_CAPABILITY", side)
                done = run(folder / side, [sys.executable, folder / "program.py"], *options)
            assert done.returncode == 0, done.stderr
        return [folder / side for side in sides]

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


PRODUCTS = """
import os, torch, torch.nn.functional as F
class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(((torch.arange(2 * 6 * 8.) * 7 % 31) / 32 - 0.5).view(2, 6, 8))
    def forward(self, x):
        return sum(F.linear(x, w) for w in self.weight)
Experts()((torch.arange(40.).view(5, 8) * 11 % 17) / 8 - 1).sum().backward()
"""


def test_a_product_needs_no_bias(sides):
    (reference,) = sides(PRODUCTS, sides=["dump"])
    calls = [t.shape for t in assay.inspect(reference) if t.module == "linear()" and t.slot == "output"]
    assert calls == [(5, 6), (5, 6)]


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
    (reference,) = sides(ROUTED, sides=["dump"])
    wrong = ROUTED.replace("self.gate(x), dim=-1", "self.gate(x), dim=0")
    (actual,) = sides(wrong, name="wrong", sides=["default"])
    verdict = assay.diff(actual, reference)
    assert "it is softmax with dim = -2, where the reference has dim = -1" in verdict.report()


# Scores that are added to in place, keys as they are multiplied, weights that are handed out, a head with the weight
# and the bias of others.
ATTENTION = """
import os, torch, torch.nn.functional as F
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)
    def forward(self, x, bias):
        q, k, v = (m(x).view(2, 9, 2, 8).transpose(1, 2) for m in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(2, 3)) * 8 ** -0.5
        scores += bias
        p = F.dropout(F.softmax(scores, dim=-1), 0.0, training=True)
        return self.norm(x + (p @ v).transpose(1, 2).reshape(2, 9, 16)), p
class Head(torch.nn.Module):
    def __init__(self, words):
        super().__init__()
        self.bias, self.decoder = torch.nn.Parameter(torch.zeros(24)), torch.nn.Linear(16, 24)
        self.decoder.weight, self.decoder.bias = words, self.bias
    def forward(self, x):
        return self.decoder(x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(24, 16)
        self.layers = torch.nn.ModuleList(Attention() for _ in range(2))
        self.head = Head(self.words.weight)
        for p in {id(p): p for p in self.parameters()}.values():
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.5)
    def forward(self, ids, bias):
        x = self.words(ids)
        for layer in self.layers:
            x, p = layer(x, bias)
        return self.head(x), p
torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
ids = torch.arange(18).view(2, 9) * 5 % 24
logits, _ = Model()(ids, (torch.arange(81.).view(9, 9) % 7) / 8)
F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten()).backward()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_tensor_under_several_names(sides, dtype):
    actual, reference = sides(ATTENTION, dtype)
    dump = assay.inspect(reference)
    added = dump["layers.0.add() input a (step 0, micro-batch 0, forward)"].read()
    scores = dump["layers.0.mul() output y (step 0, micro-batch 0, forward)"].read()
    assert (added == scores).all(), "as they were before they were added to"
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict
    inside = ("matmul()", "softmax()", "add()", "head")
    assert [name for name in unjudged(verdict) if any(word in name for word in inside)] == []


CONVOLUTIONAL = """
import os, torch, torch.nn.functional as F
class Pixels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.act = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), torch.nn.LeakyReLU(0.2)
        self.mix = torch.nn.Parameter(torch.ones(2, 6, 3, 3))
        for p in self.parameters():
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.5)
    def forward(self, x):
        y = F.mish(self.act(self.patches(x)))
        return F.leaky_relu(F.conv2d(y, self.mix, padding="same", dilation=(1, 2)), 0.1).sum()
torch.set_default_dtype(getattr(torch, os.environ["DTYPE"]))
Pixels()((torch.arange(320.).view(1, 4, 8, 10) * 11 % 17) / 8 - 1).backward()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions_are_judged_with_their_attributes(sides, dtype):
    actual, reference = sides(CONVOLUTIONAL, dtype)
    convolutions = [t for t in assay.inspect(reference) if t.op in ("conv", "Conv2d") and t.slot == "output"]
    assert [t.attributes for t in convolutions] == [
        {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 2},
        {"padding": "same", "dilation": [1, 2]},
    ]
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict
    assert unjudged(verdict) == []


# Modules that say what their shapes do not: how far windows lie apart, and what is beside the ends.
CONVOLUTIONS = """
import os, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(6, 6, 3, padding=2, groups=6)
        self.patch, self.up = nn.Conv2d(1, 4, (2, 3), stride=(2, 1)), nn.ConvTranspose1d(6, 4, 3, stride=2, padding=1)
        for p in self.parameters():
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.4)
    def forward(self, x):
        h = self.mix(x)[..., :10]
        return self.patch(h.unsqueeze(1)).square().mean() + self.up(h).square().mean()
net = Net().to(getattr(torch, os.environ["DTYPE"]))
for part in range(2):
    x = ((torch.arange(120) * (11 + part)) % 37).view(2, 6, 10) / 16 - 1
    net(x.to(net.mix.weight.dtype)).backward()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions_are_judged_as_modules(sides, dtype):
    actual, reference = sides(CONVOLUTIONS, dtype, options=())
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict
    assert [name for name in unjudged(verdict) if " output y " in name or " weight " in name] == []
    program = CONVOLUTIONS.replace("stride=2, padding=1", "stride=2, padding=2")
    (wrong,) = sides(program, dtype, "wrong", options=(), sides=["default"])
    assert "up output y" in assay.diff(wrong, reference).report()


# Windows, statistics of a batch, and a loss of images; a temperature is a parameter of one number.
IMAGES = """
import os, torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2),
            nn.InstanceNorm2d(8, affine=True), nn.ELU(), nn.AvgPool2d(2),
            nn.ConvTranspose2d(8, 6, 2, stride=2), nn.AdaptiveMaxPool2d(3), nn.Hardtanh(-9.0, 9.0),
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 5)
        self.scale = nn.Parameter(torch.tensor(1.3))
        for p in self.parameters():  # the same on each machine
            p.data.copy_((torch.arange(p.numel()) * 7 % 31).view(p.shape) / 32 - 0.4)
    def forward(self, x, y):
        logits = self.head(self.pool(self.body(x)).flatten(1)) * self.scale.exp()
        return F.binary_cross_entropy_with_logits(logits, y) + F.huber_loss(logits, y, delta=0.3)
net = Net().to(getattr(torch, os.environ["DTYPE"]))
dtype = net.scale.dtype
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(2):
    for part in range(2):
        x = ((torch.arange(4 * 3 * 64) * (11 + part) + step) % 37).view(4, 3, 8, 8) / 16 - 1
        net(x.to(dtype), ((torch.arange(20) * 3 % 7).view(4, 5) / 7).to(dtype)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_images(sides, dtype):
    actual, reference = sides(IMAGES, dtype)
    verdict = assay.diff(actual, reference)
    assert verdict.passed, verdict


def test_a_pool_of_other_windows_is_found(sides):
    (reference,) = sides(IMAGES, sides=["dump"])
    wrong = IMAGES.replace("nn.AvgPool2d(2)", "nn.AvgPool2d(3, 2, 1)")
    (actual,) = sides(wrong, name="wrong", sides=["default"])
    verdict = assay.diff(actual, reference)
    assert "first in execution order: body.6.avg_pool() output y" in verdict.report()
