"""Operators that OpInfo has no entry for, against what torch makes of their definition in float64, with gradients."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from against_torch import judged, randn, tables, turned  # noqa: E402


@pytest.mark.parametrize("layout", ["heads_first", "heads_last", "same"])
@pytest.mark.parametrize("rotary", [4, 8])
def test_apply_rotary(rotary, layout):
    width, tokens = 8, 7
    cos, sin = tables(tokens, rotary)

    def apply(x, cos, sin):
        y = turned(x.view(2, tokens, -1, width).transpose(1, 2), cos, sin)
        if layout == "heads_first":
            return y
        return y.transpose(1, 2) if layout == "heads_last" else y.transpose(1, 2).flatten(2)

    inputs = {"x": randn(2, tokens, 24), "cos": cos, "sin": sin}
    assert judged("apply_rotary", apply, inputs, {"head_dim": width, "layout": layout})


def test_addmm():
    inputs = {"x": randn(3, 5, 7), "w": randn(7, 4, seed=1), "b": randn(4, seed=2)}
    assert judged("addmm", lambda x, w, b: torch.addmm(b, x.view(-1, 7), w).view(3, 5, 4), inputs)


@pytest.mark.parametrize("first", [False, True])
def test_mul_half(first):
    inputs = {"a": randn(3, 5), "x": randn(3, 10, seed=1)}
    assert judged("mul_half", lambda a, x: a * x.chunk(2, -1)[0 if first else 1], inputs, {"first": first})


@pytest.mark.parametrize("bias", [False, True])
def test_channel_affine(bias):
    inputs = {"x": randn(2, 3, 5), "weight": randn(5, seed=1)} | ({"bias": randn(5, seed=2)} if bias else {})
    assert judged("channel_affine", lambda x, weight, bias=0: x * weight + bias, inputs)


@pytest.mark.parametrize("bias", [False, True])
def test_extended_linear(bias):
    inputs = {"x": randn(2, 3, 7), "w": randn(9, 4, seed=1), "v": randn(3, 9, seed=2)}
    inputs |= {"b": randn(9, seed=3)} if bias else {}
    assert judged("extended_linear", lambda x, w, v, b=0: x @ torch.cat([w.t(), v]) + b, inputs)


def test_relu_squared():
    assert judged("relu_squared", lambda x: torch.relu(x) ** 2, {"x": randn(5, 7)})


def test_embedding_with_an_offset():
    opt = pytest.importorskip("transformers.models.opt.modeling_opt", reason="transformers is not installed")

    def embedding(weight, index):
        module = opt.OPTLearnedPositionalEmbedding(4, 4)
        return torch.func.functional_call(module, {"weight": weight}, (torch.ones(2, 3), 0, index))

    inputs = {"weight": randn(6, 4), "index": torch.tensor([[0, 3, 2], [3, 3, 1]])}
    assert judged("embedding", embedding, inputs, {"offset": 2}, indices=("index",))


def test_scaled_embedding():
    def embedding(weight, index):
        return torch.nn.functional.embedding(index, weight, padding_idx=2) * 8.0

    inputs = {"weight": randn(6, 4), "index": torch.tensor([[0, 5, 2], [5, 5, 1]])}
    assert judged("scaled_embedding", embedding, inputs, {"scale": 8.0, "padding_idx": 2}, indices=("index",))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("gate_first", [False, True])
def test_gated_rms_norm(gate_first, groups):
    silu = torch.nn.functional.silu

    def normed(x):
        return torch.nn.functional.rms_norm(x.unflatten(-1, (groups, -1)), (8 // groups,), eps=1e-6).flatten(-2)

    def norm(x, gate, weight):
        if gate_first:  # MambaRMSNormGated, Zamba2RMSNormGated
            return normed(x * silu(gate)) * weight
        return normed(x) * weight * silu(gate)

    inputs = {"x": randn(5, 3, 8), "gate": randn(5, 3, 8, seed=1), "weight": randn(8, seed=2)}
    assert judged("gated_rms_norm", norm, inputs, {"gate_first": gate_first, "groups": groups})


@pytest.mark.parametrize("activation", ["relu_squared", "relu", "gelu"])
def test_experts_without_a_gate(activation):
    tokens, channels, experts, inner = 7, 6, 4, 5
    fn = torch.nn.functional
    made = {"relu_squared": lambda x: fn.relu(x).square(), "relu": fn.relu, "gelu": fn.gelu}[activation]

    def moe(x, index, weights, gate_up, down):  # modeling_nemotron_h.py
        out = torch.zeros_like(x)
        for e in range(experts):
            token, place = torch.where(index == e)
            of_expert = made(x[token] @ gate_up[e].mT) @ down[e].mT
            out = out.index_add(0, token, of_expert * weights[token, place, None])
        return out

    inputs = {
        "x": randn(tokens, channels),
        "index": torch.stack(
            [torch.randperm(experts, generator=torch.Generator().manual_seed(t))[:2] for t in range(tokens)]
        ),
        "weights": randn(tokens, 2, seed=1).sigmoid(),
        "gate_up": randn(experts, inner, channels, seed=2),
        "down": randn(experts, channels, inner, seed=3),
    }
    attributes = {"activation": activation, "gated": False}
    assert judged("moe_experts", moe, inputs, attributes, indices=("index",))
