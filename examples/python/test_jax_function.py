"""A JAX function and its gradients."""

import pytest
from assay.testing import assert_matches_golden

jax = pytest.importorskip("jax", reason="jax is not installed")


def swiglu(gate, up):
    return jax.nn.silu(gate) * up


def test_swiglu():
    gate, up, g = jax.random.normal(jax.random.key(0), (3, 64, 128))
    y, pull_back = jax.vjp(jax.jit(swiglu), gate, up)
    grad_gate, grad_up = pull_back(g)
    made = {"y": y, "grad_gate": grad_gate, "grad_up": grad_up}
    assert_matches_golden("swiglu", {"gate": gate, "up": up, "grad_y": g}, made)
