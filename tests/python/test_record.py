"""assay record on a program that knows nothing of assay."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import assay
import pytest
from recording import run

torch = pytest.importorskip("torch")

PROGRAM = Path(__file__).with_name("recorded_program.py")


def recorded(out, mode, *options, ranks=1, rate=1e-2):
    launch = [sys.executable]
    if ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = run(out, [*launch, PROGRAM, mode, rate], *options)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="session")
def single(tmp_path_factory):
    out = tmp_path_factory.mktemp("record") / "single"
    said = recorded(out, "single")
    assert f"recorded {len(assay.inspect(out))} tensors" in said
    return out


def test_steps_micro_batches_and_phases_are_found(single):
    dump = assay.inspect(single)
    assert {(t.step, t.micro_batch) for t in dump if t.slot == "output"} == {(s, m) for s in (0, 1) for m in range(4)}
    names = {t.name for t in dump}
    for name in (
        "embedding output y (step 0, micro-batch 3, forward)",
        "layers.1.down grad_input input (step 1, micro-batch 0, backward)",
        "layers.0 output y (step 0, micro-batch 0, forward)",
        "loss loss lm (step 0, micro-batch 0, forward)",
        "head grad weight (step 1, backward)",
        "layers.0.norm param weight (step 0, forward)",
        "layers.0.norm param weight (step 0, optimizer)",
        "layers.0.norm state weight.exp_avg_sq (step 1, optimizer)",
    ):
        assert name in names
    assert {t.op for t in dump if t.module == "layers.0.act"} == {"SiLU"}


def test_values_are_those_of_the_program(single, tmp_path):
    dump = assay.inspect(single)
    before = torch.tensor(dump["head param weight (step 0, forward)"].read())
    tokens = torch.tensor(dump["embedding input input (step 0, micro-batch 2, forward)"].read())
    logits = torch.tensor(dump["head output y (step 0, micro-batch 2, forward)"].read())
    # In a process of its own: products have other last bits where others have run before.
    torch.save(tokens, tmp_path / "tokens.pt")
    unrecorded = tmp_path / "unrecorded.py"
    unrecorded.write_text(
        PROGRAM.read_text().split("\nmain(sys.argv")[0]
        + "\ntorch.manual_seed(0)\ntorch.set_num_threads(1)\nmodel = Decoder()\n"
        "torch.save((model.head.weight.detach(), model(torch.load('tokens.pt')).detach()), 'values.pt')\n"
    )
    subprocess.run([sys.executable, unrecorded], cwd=tmp_path, timeout=100, check=True)
    for recorded_values, values in zip((before, logits), torch.load(tmp_path / "values.pt"), strict=True):
        assert torch.equal(recorded_values, values)
    written = torch.tensor(dump["head param weight (step 0, optimizer)"].read())
    assert torch.equal(written, torch.tensor(dump["head param weight (step 1, forward)"].read()))
    assert not torch.equal(written, before)


slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize("mode", ["fsdp", slow("ddp"), slow("tp"), slow("pipeline")])
def test_strategies_of_torch_need_no_layout(single, tmp_path, mode):
    recorded(tmp_path / "dump", mode, ranks=2)
    verdict = assay.diff(tmp_path / "dump", single)
    assert verdict, verdict.report()
    assert len(assay.inspect(tmp_path / "dump")) >= 480


@pytest.mark.parametrize(("mode", "dims"), [("tp_ddp", ["dp", "tp"]), slow("hsdp", ["dp_replicate", "dp_shard"])])
def test_meshes_of_two_dimensions(single, tmp_path, mode, dims):
    recorded(tmp_path / "dump", mode, ranks=4)
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert manifest["mesh"]["dims"] == dims and manifest["mesh"]["shape"] == [2, 2]
    verdict = assay.diff(tmp_path / "dump", single)
    assert verdict, verdict.report()
    # DDP has made plain tensors of the shards: the other side places them.
    count = len(assay.inspect(single))
    assert re.search(rf"^{count} compared: .* 0 not compared$", verdict.report(), re.M), verdict.report()


def test_a_wrong_rate_is_named(single, tmp_path):
    recorded(tmp_path / "dump", "ddp", ranks=2, rate=1.5e-2)
    verdict = assay.diff(tmp_path / "dump", single)
    assert not verdict
    assert "optimizer" in verdict.failures[0].name
    assert "learning rate" in verdict.report()


def test_what_is_compiled_is_recorded_at_its_boundary(tmp_path):
    said = recorded(tmp_path / "dump", "compile")
    assert "the model is compiled: nothing in it is recorded" in said
    dump = assay.inspect(tmp_path / "dump")
    assert {t.module for t in dump if t.slot == "output"} == {""}
    assert any(t.slot == "grad" and t.module == "layers.0.up" for t in dump)


def test_a_part_can_be_chosen(tmp_path):
    recorded(
        tmp_path / "dump", "single", "--steps", "1", "--micro-batches", "2-", "--modules", "layers.*",
        "--exclude", "*.act", "--kinds", "activations,states",
    )  # fmt: skip
    dump = assay.inspect(tmp_path / "dump")
    assert {t.step for t in dump} == {1}
    assert {t.micro_batch for t in dump} == {-1, 2, 3}
    assert {t.slot for t in dump} == {"input", "output", "state", "loss"}
    modules = {t.module for t in dump if t.slot == "output"}
    assert "layers.0.up" in modules and "head" not in modules and "layers.0.act" not in modules


def test_a_program_that_fails_leaves_what_it_had(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        "import torch\nm = torch.nn.Linear(3, 2)\nm(torch.ones(1, 3)).sum().backward()\n"
        "raise SystemError('out of luck')\n"
    )
    done = run(tmp_path / "dump", [sys.executable, program])
    assert done.returncode == 1
    assert "out of luck" in done.stderr and "is unfinished" in done.stderr
    dump = assay.inspect(tmp_path / "dump")
    assert len(dump) > 3 and any("did not finish" in text for text in dump.left_out)


def test_a_full_disk_stops_no_program(tmp_path):
    program = tmp_path / "goes_on.py"
    program.write_text(
        "import resource, signal, torch\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "m = torch.nn.Linear(300, 300)\noptimizer = torch.optim.SGD(m.parameters(), 0.1)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "for _ in range(2):\n    m(torch.ones(1, 300)).sum().backward()\n    optimizer.step()\nprint('went on')\n"
    )
    done = run(tmp_path / "dump", [sys.executable, program])
    assert "went on" in done.stdout
    assert "is not recorded any more" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "3-1"], "steps '3-1': expected a number, a range such as 0-3 or 5-, or */100"),
        (["--kinds", "weights"], "kinds 'weights': expected activations, parameters, gradients, states"),
    ],
)
def test_a_selection_that_says_nothing(tmp_path, options, said):
    done = run(tmp_path / "dump", ["python"], *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "dump").exists()


def test_nothing_is_overwritten(single, tmp_path):
    before = sorted((p.name, p.stat().st_size) for p in single.iterdir())
    done = run(single, [sys.executable, PROGRAM, "single"])
    assert done.returncode == 2 and "exists; a dump is recorded into a new folder only" in done.stderr
    assert sorted((p.name, p.stat().st_size) for p in single.iterdir()) == before
    done = run(tmp_path / "dump", ["no-such-program"])
    assert done.returncode == 2 and "no-such-program is no program that can be found" in done.stderr


def test_a_program_without_a_model(tmp_path):
    done = run(tmp_path / "dump", [sys.executable, "-c", "import torch; print(torch.ones(2).sum())"])
    assert done.returncode == 2
    assert "nothing was recorded" in done.stderr


def test_from_inside_without_a_process_group(tmp_path):
    import assay.torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 4)
    for _ in range(3):
        model(x).square().sum().backward()
        optimizer.step()
    recorder.close()
    dump = assay.inspect(tmp_path / "dump")
    assert {t.step for t in dump} == {0}
    assert (dump["0 input input (step 0, micro-batch 0, forward)"].read() == x.numpy()).all()
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert manifest["producer"]["optimizer"] == "SGD" and manifest["producer"]["lr"] == 0.1
    assert assay.torch.record(model) is None  # no folder


def test_no_tensor_of_the_program_is_kept_alive(tmp_path):
    import gc
    import weakref

    import assay.torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    recorder = assay.torch.record(model, out=tmp_path / "dump")
    y = model(torch.randn(2, 4))
    alive = weakref.ref(y)
    y.sum().backward()
    del y
    gc.collect()
    assert alive() is None
    recorder.close()


def test_ranks_in_one_mesh():
    from assay.torch._grid import Axis, Grid, grid_of

    assert grid_of(8, [Axis("dp", 4, 2), Axis("tp", 1, 4)]) == Grid(("dp", "tp"), (2, 4))
    # Experts over another cut of the same ranks.
    grid = grid_of(8, [Axis("dp", 2, 4), Axis("tp", 1, 2), Axis("ep", 2, 2)])
    assert grid == Grid(("dp", "ep", "tp"), (2, 2, 2))
    assert grid.dims_of(Axis("dp", 2, 4)) == range(2)
    assert grid.dims_of(Axis("ep", 2, 2)) == range(1, 2)
    assert grid.dims_of(Axis("x", 1, 3)) is None
    assert grid.coordinate(5) == (1, 0, 1)
    assert grid_of(6, [Axis("a", 1, 4)]) == Grid(("ranks",), (6,))  # what does not divide is left out


def test_the_program_keeps_its_last_bits_and_its_objects(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import copy, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Norm(nn.Module):
    def forward(self, x):
        self.seen = x
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.relu, self.same = Norm(), nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Identity()
    def forward(self, x):
        assert self.same(x) is x
        y = x + self.relu(self.up(self.norm(x)))
        assert self.norm.seen is x
        del self.norm.seen
        return y
model = nn.Sequential(Block(), Block(), Block())
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for _ in range(3):
    loss = model(torch.randn(8, 64, requires_grad=True)).square().mean()
    loss.backward()
    copy.deepcopy(model)(torch.ones(1, 64))
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
""")
    plain = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100, check=True)
    done = run(tmp_path / "dump", [sys.executable, program], "--steps", "0-2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout


def test_ranks_that_are_not_recorded_have_empty_parts(tmp_path):
    recorded(tmp_path / "dump", "ddp", "--ranks", "1", ranks=2)
    dump = assay.inspect(tmp_path / "dump")
    assert dump.world_size == 2
    assert {t.micro_batch for t in dump if t.slot == "output"} == {1, 3}


def test_models_of_one_class_have_names_of_their_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import torch
models = [torch.nn.Linear(2, 2) for _ in range(3)]
optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in models]
for _ in range(2):
    for m, o in zip(models, optimizers):
        m(torch.ones(1, 2)).sum().backward()
        o.step()
""")
    done = run(tmp_path / "dump", [sys.executable, program], "--steps", "0-")
    assert done.returncode == 0, done.stderr
    dump = assay.inspect(tmp_path / "dump")
    assert {t.module for t in dump if t.slot == "param"} == {"", "Linear", "Linear2"}
    assert assay.diff(tmp_path / "dump", tmp_path / "dump")


def test_a_forked_process_ends_its_recording(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing, torch
def train():
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
worker = multiprocessing.get_context("fork").Process(target=train)
worker.start()
worker.join()
""")
    done = run(tmp_path / "dump", [sys.executable, program])
    assert done.returncode == 0, done.stderr
    assert assay.inspect(tmp_path / "dump").left_out == ()


def test_a_program_that_records_itself_is_recorded_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import assay.torch, torch
model = torch.nn.Linear(2, 2)
assert assay.torch.record(model) is None
model(torch.ones(1, 2)).sum().backward()
""")
    done = run(tmp_path / "dump", [sys.executable, program])
    assert done.returncode == 0, done.stderr
    assert len(assay.inspect(tmp_path / "dump")) > 3


def test_depth_and_dtypes(tmp_path):
    recorded(tmp_path / "dump", "single", "--depth", "0", "--steps", "0", "--dtypes", "float32")
    dump = assay.inspect(tmp_path / "dump")
    modules = {t.module for t in dump if t.slot == "output"}
    assert "layers.0" not in modules and {"", "layers.0.up"} <= modules
    assert {t.dtype for t in dump} == {"float32"}


def test_masters_of_a_loop_that_keeps_them_itself(tmp_path):
    """Two weights have the same values at first: they are told apart by their order."""
    import assay.torch

    weights = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False, dtype=torch.bfloat16) for _ in range(3))
    with torch.no_grad():
        for linear in weights[1:]:
            linear.weight.fill_(0.5)
    model = torch.nn.Sequential(*weights)
    masters = [w.detach().float() for w in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=0.01)
    recorder = assay.torch.record(model, out=tmp_path / "dump", steps="0-")
    after = []
    for _ in range(2):
        model(torch.randn(2, 4, dtype=torch.bfloat16)).square().sum().backward()
        for weight, master in zip(model.parameters(), masters, strict=True):
            master.grad, weight.grad = weight.grad.float(), None
        optimizer.step()
        for weight, master in zip(model.parameters(), masters, strict=True):
            weight.data.copy_(master)
        after.append([master.clone() for master in masters])
    recorder.close()
    dump = assay.inspect(tmp_path / "dump")
    assert {t.step for t in dump} == {0, 1}
    for step, values in enumerate(after):
        for i, master in enumerate(values):
            state = dump[f"{i} state weight.master (step {step}, optimizer)"].read()
            assert (state == master.numpy()).all()
            param = dump[f"{i} param weight (step {step}, optimizer)"].read()
            assert (param.astype("float32") == master.bfloat16().float().numpy()).all()


def test_a_call_without_a_backward_is_an_evaluation(tmp_path, capfd):
    import assay.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = assay.torch.record(model, out=tmp_path / "dump")
    given = torch.randn(2, 5, 3, 4)
    for step in range(2):
        for evaluated, trained in (given[step, :2], given[step, 2:4]):
            model(evaluated)
            model(trained).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model(given[0, 4])  # a step in which nothing is handed back is none of training
    recorder.close()
    assert "4 calls of the model without a backward are no micro-batches" in capfd.readouterr().err
    dump = assay.inspect(tmp_path / "dump")
    names = {(t.step, t.micro_batch) for t in dump if t.slot == "output" and t.step < 2}
    assert names == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {(t.step, t.micro_batch) for t in dump if t.slot == "grad_output"} == names
    of_second = dump["0 input input (step 1, micro-batch 1, forward)"].read()
    assert torch.equal(torch.tensor(of_second), given[1, 3])


@pytest.mark.parametrize("mode", ["single", slow("tp"), slow("ddp")])
def test_sketches_of_a_program_are_those_of_its_values(single, tmp_path, mode):
    out = tmp_path / "dump"
    recorded(out, mode, "--values", "sketches", ranks=1 if mode == "single" else 2)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "assay_command",
            "diff",
            out,
            single,
            "--accept-sketches",
            "--json",
            tmp_path / "report",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    findings = json.loads((tmp_path / "report").read_text())["findings"]
    by_sketch = [f["rule"] for f in findings if "sketch" in f]
    assert len(by_sketch) >= 200
    if mode == "single":
        assert set(by_sketch) == {"every bit equal, by fingerprints of 64 bits"}


# A recorder that is there before the program has pipelines: it does not import them, which takes seconds.
PIPELINES_LATER = """
import sys, assay.torch, torch
recorder = assay.torch.record(torch.nn.Linear(3, 2), out=sys.argv[1])
assert "torch.distributed.pipelining" not in sys.modules
from torch.distributed.pipelining import PipelineStage
names = ("_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference")
wrapped = lambda: [hasattr(getattr(PipelineStage, n), "__wrapped__") for n in names if hasattr(PipelineStage, n)]
assert any(wrapped()) and all(wrapped()), wrapped()
recorder.close()
assert not any(wrapped()), wrapped()
"""


def test_pipelines_are_patched_once_the_program_has_them(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PIPELINES_LATER, str(tmp_path / "dump")], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
