"""torch's own transformer layers: what `assay record` writes of them, `assay diff` judges as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import assay
import pytest

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = Path(__file__).with_name("recorded_transformer.py")
CLEAN = ["float32 weights batch_first padding", "bfloat16 decoder causal padding"]
MORE_CLEAN = [
    "float32 batch_first gelu",
    "float32 causal",
    "float32 decoder causal padding",
    "bfloat16 batch_first gelu",
    "bfloat16 causal",
    "bfloat16 weights batch_first padding",
]
FIRST = "layers.layers.1.self_attn output 0 (step 0, micro-batch 0, forward)"
"""Where a fault of the second layer's attention shows first."""


def recorded(out, how, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "assay_command", "record", "-o", str(out), "--", sys.executable, PROGRAM, *how.split()],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("how", CLEAN + [pytest.param(how, marks=pytest.mark.slow) for how in MORE_CLEAN])
def test_another_vector_unit_is_no_difference(tmp_path, how):
    reference = recorded(tmp_path / "reference", how)
    actual = recorded(tmp_path / "actual", how, ATEN_CPU_CAPABILITY="default")
    verdict = assay.diff(actual, reference)
    assert verdict, verdict.report()
    undecided = [f.name for f in verdict.findings if f.verdict == "undecided"]
    assert not undecided, undecided


@pytest.mark.parametrize("how", ["float32 batch_first gelu", "bfloat16 causal"])
def test_heads_in_another_order_are_found_where_they_are_made(tmp_path, how):
    verdict = assay.diff(recorded(tmp_path / "actual", f"{how} heads"), recorded(tmp_path / "reference", how))
    assert not verdict
    assert verdict.failures[0].name == FIRST
    failed = [f.name for f in verdict.failures if f.verdict == "failed"]
    assert all(name.startswith("layers.layers.1.self_attn") for name in failed), failed


def test_a_scale_that_is_left_out_is_named(tmp_path):
    reference = recorded(tmp_path / "reference", "float32")
    verdict = assay.diff(recorded(tmp_path / "actual", "float32 scale"), reference)
    assert not verdict
    assert verdict.failures[0].name == FIRST
    assert "multihead_attention with scale = 1" in verdict.report()
