"""A callback records a Trainer of transformers as assay record records its program."""

import os
import subprocess
import sys
from pathlib import Path

import assay
import pytest
from recording import run

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed: its Trainer is not recorded")
pytest.importorskip("accelerate", reason="accelerate is not installed: the Trainer of transformers needs it")

PROGRAM = Path(__file__).with_name("recorded_trainer.py")


def launch(ranks, mode, *out):
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    return [sys.executable, *torchrun, str(PROGRAM), mode, *map(str, out)]


def trained(ranks, mode, out):
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch(ranks, mode, out), capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("mode", "ranks"), [("plain", 1), ("compile", 1), ("plain", 2), ("fsdp", 2)])
def test_a_callback_records_what_the_command_records(tmp_path, mode, ranks):
    trained(ranks, mode, tmp_path / "inside")
    done = run(tmp_path / "outside", launch(ranks, mode))
    assert done.returncode == 0, done.stderr
    inside, outside = assay.inspect(tmp_path / "inside"), assay.inspect(tmp_path / "outside")
    assert inside.world_size == outside.world_size == ranks
    assert [t.name for t in inside] == [t.name for t in outside]
    assert {(t.step, t.micro_batch) for t in inside if t.slot == "loss"} == {
        (step, m) for step in (0, 1) for m in range(2 * ranks)
    }
    assert any(t.slot == "state" for t in inside)
    for a, b in zip(inside, outside, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.read().tobytes() == b.read().tobytes(), a.name


def test_a_training_that_raises_ends_its_recording(tmp_path):
    done = trained(1, "raise", tmp_path / "dump")
    assert "caught: out of luck" in done.stdout
    dump = assay.inspect(tmp_path / "dump")
    assert len(dump) > 100 and any("did not finish" in text for text in dump.left_out)


def test_nothing_is_patched_and_transformers_not_imported_before_it_is_used():
    program = (
        "import sys, assay.torch, torch\n"
        "assert 'transformers' not in sys.modules\n"
        "call = torch.nn.Module.__call__\n"
        "assert assay.torch.trainer_callback().on_train_begin(None, None, None) is None\n"  # no folder
        "assert torch.nn.Module.__call__ is call\n"
        "try: assay.torch.trainer_callback(out='dump', steps='x')\n"
        "except ValueError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout == "refused\n", done.stderr
