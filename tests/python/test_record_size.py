"""How large a dump will be is said before it is written, and one that does not fit is not begun."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import assay
import pytest
from recording import run

torch = pytest.importorskip("torch")

import assay.torch  # noqa: E402

PROGRAM = Path(__file__).with_name("recorded_program.py")
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


def size_of(dump):
    """Bytes of values: equal ones are written once for a rank."""
    return sum({(t.dtype, t.shape, t.read().tobytes()): t.read().nbytes for t in assay.inspect(dump)}.values())


def estimated(said):
    """Bytes of the dump, and of a further micro-batch."""
    found = re.search(r"the dump has about .* \((\S+) (\S+) more for each other\), (\S+) (\S+) for", said)
    more, unit, total, total_unit = found.groups()
    return float(total) * UNITS[total_unit], float(more) * UNITS[unit]


# The estimate sees one call of the model: what a call hands back beside what another user of the tensor does, as in a
# residual stream, is a gradient of its own that it does not know of: 2 of 13 in a layer.
TOLERANCE = 0.1


@pytest.mark.parametrize("options", [[], ["--functions"], ["--kinds", "activations"], ["--modules", "layers.0.*"]])
def test_the_estimate_is_near_the_dump(tmp_path, options):
    chosen = ["--micro-batches", "0", *options]
    done = run(tmp_path / "dump", [sys.executable, PROGRAM, "single"], *chosen)
    assert done.returncode == 0, done.stderr
    total, _ = estimated(done.stderr)
    assert abs(total - size_of(tmp_path / "dump")) < TOLERANCE * total


def test_further_micro_batches_are_counted(tmp_path):
    done = run(tmp_path / "dump", [sys.executable, PROGRAM, "single"])
    total, more = estimated(done.stderr)
    assert "2 steps" in done.stderr and "free" in done.stderr
    whole = total + 2 * 3 * more
    assert abs(whole - size_of(tmp_path / "dump")) < TOLERANCE * whole


def test_each_user_of_a_tensor_hands_a_gradient_back(tmp_path, capfd):
    class Thrice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.a, self.b, self.c = (torch.nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            h = self.first(x)
            return self.a(h) + 2 * self.b(h) + 3 * self.c(h)

    model = Thrice()
    recorder = assay.torch.record(model, out=tmp_path / "dump", kinds=["activations", "gradients"])
    model(torch.randn(2000, 8)).square().sum().backward()
    recorder.close()
    # x, h, a, b, c, the sum; their gradients but of x, where a's is the sum's; three that are handed back for h.
    exact = 2000 * 8 * 4 * (6 + 4 + 3)
    assert abs(size_of(tmp_path / "dump") - exact) < 0.01 * exact
    _, micro_batch = estimated(capfd.readouterr().err)
    assert abs(micro_batch - 2000 * 8 * 4 * (6 + 5 + 3)) < 0.01 * exact  # that two gradients are equal it cannot see


def train(recorder, model, steps=3, rows=2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(rows, 64)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    recorder.close()


def with_free(monkeypatch, free):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))


def test_a_dump_that_does_not_fit_is_not_begun(tmp_path, monkeypatch, capfd):
    """2 x 16.6 kB of weights, their gradients and two states of each: 83 kB in the first step."""
    with_free(monkeypatch, 80_000)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0-9999")
    hooks = len(model._forward_hooks)
    for _ in range(1000):  # the thread that writes says so when it gets there
        if not model._forward_hooks:
            break
        model(torch.randn(2, 64)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
    recorder.close()
    assert hooks > 0 and not model._forward_hooks  # the program has its speed again
    said = capfd.readouterr().err
    assert "has 80 kB free" in said and "it does not fit; choose less of it: --modules, --depth, --kinds" in said
    assert list((tmp_path / "dump").iterdir()) == []


def test_a_dump_that_fits_is_written(tmp_path, monkeypatch, capfd):
    with_free(monkeypatch, 95_000)
    model = torch.nn.Linear(64, 64)
    train(assay.torch.record(model, out=tmp_path / "dump", steps="0"), model)
    assert "does not fit" not in capfd.readouterr().err
    assert 80_000 < size_of(tmp_path / "dump") < 95_000


def test_steps_that_do_not_fit_are_not_begun(tmp_path, monkeypatch, capfd):
    """Nobody knows how many there will be: the second is seen to be too large when the first is over."""
    with_free(monkeypatch, 95_000)
    model = torch.nn.Linear(64, 64)
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0-")
    for rows in (1, 40):  # two micro-batches in the first step, the second of them large
        model(torch.randn(rows, 64)).square().sum().backward()
    train(recorder, model)
    said = capfd.readouterr().err
    assert "for each step" in said
    assert "is not recorded any more: the next steps have about" in said
    assert {t.step for t in assay.inspect(tmp_path / "dump")} <= {0, 1}


def test_the_command_says_why_nothing_was_recorded(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import shutil, torch\nusage = shutil.disk_usage('/')\n"
        "shutil.disk_usage = lambda _: usage._replace(free=1000)\n"
        "m = torch.nn.Linear(30, 30)\nm(torch.ones(1, 30)).sum().backward()\nprint('went on')\n"
    )
    done = run(tmp_path / "dump", [sys.executable, program])
    assert "went on" in done.stdout and done.returncode == 2
    assert "it does not fit" in done.stderr
    assert "no process called a model" not in done.stderr
    again = run(tmp_path / "dump", [sys.executable, "-c", "pass"])  # the empty folder is in nobody's way
    assert "exists" not in again.stderr


def test_sets_of_names_have_one_order_in_all_recordings(tmp_path, monkeypatch):
    program = [sys.executable, "-c", "import os; print('seed', os.environ['PYTHONHASHSEED'])"]
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert "seed 0\n" in run(tmp_path / "ours", program).stdout
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert "seed 7\n" in run(tmp_path / "theirs", program).stdout


ENDLESS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
"""


def test_an_estimate_writes_nothing_and_ends_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ENDLESS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    estimate = [sys.executable, "-m", "assay_command", "record", "--estimate", "--steps", "0-1", "--"]
    done = subprocess.run(
        [*estimate, *torchrun, str(program), "ddp"],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["program.py"]
    rows = re.findall(r"^(\w[\w ]*?) +(\d+) tensors +(\S+) (\wB)$", done.stdout, re.M)
    assert [(kind, int(tensors)) for kind, tensors, *_ in rows] == [
        ("activations", 2 * 3),  # input, output, loss
        ("parameters", 2 * 4),  # before and behind the step
        ("gradients", 2 * 3),  # of the output and both parameters
        ("states", 2 * 4),
        ("in all", 2 * 14),
    ]
    sizes = {kind: float(size) * UNITS[unit] for kind, _, size, unit in rows}
    weights = 4 * (64 * 64 + 64)
    assert abs(sizes["states"] - 2 * 2 * weights) < 0.01 * sizes["states"]
    assert abs(sizes["in all"] - sum(size for kind, size in sizes.items() if kind != "in all")) < 0.01 * sizes["in all"]
    again = sizes["in all"] - 2 * weights  # which the first step has written, too
    total = re.search(r"^2 steps: about (\S+) kB; .* free$", done.stdout, re.M)
    assert abs(1000 * float(total[1]) - sizes["in all"] - again) < 0.01 * again


def test_an_estimate_of_a_program_without_a_step(tmp_path):
    estimate = [sys.executable, "-m", "assay_command", "record", "--estimate", "--", sys.executable, "-c"]
    done = subprocess.run([*estimate, "import torch"], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 2
    assert "no estimate: the command has not come to the end of a first step" in done.stderr
