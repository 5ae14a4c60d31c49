"""The gated delta rule as chunked kernels have it, in float32, against its golden recurrence."""

import assay
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from against_torch import judged, randn  # noqa: E402

HEADS, WIDTH, CHUNK = 2, 16, 32


def chunked(q, k, v, decay, beta):
    """arXiv:2412.06464 sec. 3.3: a triangular system for what a chunk writes, then products of matrices."""
    q, k, v, decay, beta = (t.movedim(2, 1) for t in (q, k, v, decay, beta))  # [B, H, T, ..]
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], WIDTH, dtype=k.dtype), []
    for at in range(0, k.shape[2], CHUNK):
        q_c, k_c, v_c, d, b = (t[:, :, at : at + CHUNK] for t in (q, k, v, decay.cumsum(2), beta))
        d = d - (decay.cumsum(2)[:, :, at - 1 : at] if at else 0)
        between = (d[..., :, None] - d[..., None, :]).tril().exp().tril()
        met = (k_c @ k_c.mT * between * b[..., None]).tril(-1) + torch.eye(k_c.shape[2], dtype=k.dtype)
        surprise = b[..., None] * (v_c - d.exp()[..., None] * (k_c @ state))
        written = torch.linalg.solve_triangular(met, surprise, upper=False)
        outs.append(WIDTH**-0.5 * (d.exp()[..., None] * (q_c @ state) + (q_c @ k_c.mT * between) @ written))
        kept = (d[..., -1:] - d).exp()[..., None]
        state = d[..., -1:, None].exp() * state + (kept * k_c).mT @ written
    return torch.cat(outs, 2).movedim(1, 2)


def call(tokens, decay, alike, seed):
    normed = torch.nn.functional.normalize
    keys = normed(alike * randn(1, 1, HEADS, WIDTH, seed=seed + 9) + randn(1, tokens, HEADS, WIDTH, seed=seed), dim=-1)
    return {
        "q": normed(randn(1, tokens, HEADS, WIDTH, seed=seed + 1), dim=-1),
        "k": keys,
        "v": randn(1, tokens, HEADS, WIDTH, seed=seed + 2),
        "decay": -decay * randn(1, tokens, HEADS, seed=seed + 3).sigmoid(),
        "beta": randn(1, tokens, HEADS, seed=seed + 4).sigmoid(),
    }


@pytest.mark.parametrize("alike", [0, 3])
@pytest.mark.parametrize("decay", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("tokens", [32, 160])
def test_chunked_kernels_are_within_the_bound_and_a_small_fault_is_not(tokens, decay, alike):
    given = {name: t.requires_grad_() for name, t in call(tokens, decay, alike, seed=20).items()}
    upstream = randn(1, tokens, HEADS, WIDTH, seed=30)

    def outputs(function):
        out = function(**given)
        grads = torch.autograd.grad(out, list(given.values()), upstream)
        return {"out": out.detach()} | {f"grad_{name}": g for name, g in zip(given, grads, strict=True)}

    inputs = {name: t.detach() for name, t in given.items()} | {"grad_out": upstream}
    verdict = assay.judge("linear_attention", inputs, outputs(chunked))
    assert verdict, verdict.report()

    def off_by_a_hundredth(q, k, v, decay, beta):
        return chunked(q, k, v, decay, beta * 1.01)

    for name, value in outputs(off_by_a_hundredth).items():
        assert not assay.judge("linear_attention", inputs, {name: value}, causes=False), name


@pytest.mark.parametrize("gates", ["apart", "of one projection"])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("of_qkv", [True, False])
def test_gated_delta_net(of_qkv, copies, gates):
    sequences, tokens, heads, width, of_values = 2, 9, 4, 6, WIDTH
    keys = heads // copies
    fn = torch.nn.functional

    def unit(x):
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)

    def net(q, k, v, a, A_log, dt_bias, b=None):
        if b is None:  # modeling_qwen3_next.py
            b, a = (t.flatten(2) for t in a.view(sequences, tokens, keys, 2 * copies).chunk(2, -1))
        q, k = (t.reshape(sequences, tokens, keys, width).repeat_interleave(copies, 2) for t in (q, k))
        decay = -A_log.exp() * fn.softplus(a + dt_bias)
        out = chunked(unit(q), unit(k), v.reshape(sequences, tokens, heads, of_values), decay, b.sigmoid())
        return out.reshape(-1, of_values) * (WIDTH / width) ** 0.5  # of chunked(), which has keys of another width

    def behind_a_convolution(qkv, **rest):
        x = fn.silu(qkv[..., :tokens]).mT
        return net(*x.split([keys * width, keys * width, heads * of_values], -1), **rest)

    inputs = {"a": randn(sequences, tokens, heads * (1 if gates == "apart" else 2), seed=1)}
    if gates == "apart":
        inputs["b"] = randn(sequences, tokens, heads, seed=2)
    inputs |= {"A_log": randn(heads, seed=3), "dt_bias": randn(heads, seed=4)}
    channels = {"q": keys * width, "k": keys * width, "v": heads * of_values}
    attributes = {"num_k_heads": keys}
    if of_qkv:
        inputs["qkv"] = randn(sequences, sum(channels.values()), tokens + 3, seed=5)
        attributes["head_v_dim"] = of_values
        assert judged("qkv_gated_delta_net", behind_a_convolution, inputs, attributes, result="out")
    else:
        inputs |= {name: randn(sequences, tokens, n, seed=6 + i) for i, (name, n) in enumerate(channels.items())}
        assert judged("gated_delta_net", net, inputs, attributes, result="out")


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolutions_of_tokens_by_channels(activation):
    """flash-linear-attention's ShortConvolution: x [B, T, C], and what nn.Conv1d has for weights."""
    channels, width = 5, 4

    def convolved(x, weight):
        fn = torch.nn.functional
        y = fn.conv1d(x.mT, weight, padding=width - 1, groups=channels)[..., : x.shape[1]]
        return (fn.silu(y) if activation == "silu" else y).mT

    inputs = {"x": randn(2, 7, channels), "weight": randn(channels, 1, width, seed=1)}
    attributes = {"activation": activation, "channels_last": True}
    assert judged("causal_conv1d", convolved, inputs, attributes)


def state_space_dual(x, dt, A, B, C, chunk):
    """arXiv:2405.21060 listing 1: products of matrices within a chunk, a recurrence between chunks."""
    copies = x.shape[2] // B.shape[2]
    B, C = (t.repeat_interleave(copies, 2) for t in (B, C))
    state, outs = torch.zeros(x.shape[0], x.shape[2], B.shape[3], x.shape[3], dtype=x.dtype), []
    for at in range(0, x.shape[1], chunk):
        x_c, dt_c, B_c, C_c = (t[:, at : at + chunk].transpose(1, 2) for t in (x, dt, B, C))
        sums = (A[:, None] * dt_c).cumsum(-1)
        between = (sums[..., :, None] - sums[..., None, :]).tril().exp().tril()
        written = x_c * dt_c[..., None]
        outs.append((C_c @ B_c.mT * between) @ written + sums.exp()[..., None] * (C_c @ state))
        kept = (sums[..., -1:] - sums).exp()[..., None]
        state = sums[..., -1:, None].exp() * state + (kept * B_c).mT @ written
    return torch.cat(outs, 2).transpose(1, 2)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("layout", ["of a convolution", "tokens by channels"])
def test_mamba2(layout, groups, gated):
    sequences, tokens, heads, width, states = 2, 21, 4, 5, 3
    fn = torch.nn.functional
    inner, of_groups, limits = heads * width, groups * states, (0.5, 1.5)
    is_last = layout == "tokens by channels"

    def mixer(xBC, zxbcdt, A_log, D, dt_bias):  # modeling_falcon_h1.py
        x = xBC if is_last else fn.silu(xBC[..., :tokens]).mT
        x, B, C = x.split([inner, of_groups, of_groups], -1)
        x, B, C = x.unflatten(-1, (heads, width)), B.unflatten(-1, (groups, states)), C.unflatten(-1, (groups, states))
        dt = fn.softplus(zxbcdt[..., -heads:] + dt_bias).clamp(*limits)
        y = (state_space_dual(x, dt, -A_log.exp(), B, C, chunk=8) + D[:, None] * x).flatten(2)
        return y * fn.silu(zxbcdt[..., :inner]) if gated else y

    channels = inner + 2 * of_groups
    inputs = {
        "xBC": randn(sequences, tokens, channels, seed=1)
        if is_last
        else randn(sequences, channels, tokens + 3, seed=1),
        "zxbcdt": randn(sequences, tokens, inner + channels + heads, seed=2),
        "A_log": randn(heads, seed=3),
        "D": randn(heads, seed=4),
        "dt_bias": randn(heads, seed=5),
    }
    attributes = {
        "n_groups": groups,
        "gated": gated,
        "channels_last": is_last,
        "dt_min": limits[0],
        "dt_max": limits[1],
    }
    attributes["activation"] = "none" if is_last else "silu"
    assert judged("mamba2_scan", mixer, inputs, attributes, result="out")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("form", ["apart", "of one projection", "with a bias of dt"])
def test_mamba1(form, gated):
    sequences, tokens, channels, states = 2, 7, 5, 3
    fn = torch.nn.functional
    is_apart = form == "apart"

    def scan(x, dt, A_log, D, B=None, C=None, BC=None, gate=None, dt_bias=None):  # modeling_jamba.py, modeling_mamba.py
        x = fn.silu(x)[..., :tokens]
        B, C = (B, C) if is_apart else BC.split([BC.shape[-1] - 2 * states, states, states], -1)[1:]
        dt = fn.softplus(dt if dt_bias is None else dt + dt_bias).mT
        decay = torch.exp(-A_log.exp()[None, :, None] * dt[..., None])
        written = dt[..., None] * B[:, None] * x[..., None]
        state, outs = torch.zeros(sequences, channels, states, dtype=x.dtype), []
        for t in range(tokens):
            state = decay[:, :, t] * state + written[:, :, t]
            outs.append((state * C[:, t, None]).sum(-1))
        out = torch.stack(outs, -1) + x * D[:, None]
        return (out if gate is None else out * gate).mT

    inputs = {
        "x": randn(sequences, channels, tokens + 2, seed=1),
        "dt": randn(sequences, tokens, channels, seed=2),
        "A_log": randn(channels, states, seed=3),
        "D": randn(channels, seed=4),
    }
    if is_apart:
        inputs |= {"B": randn(sequences, tokens, states, seed=5), "C": randn(sequences, tokens, states, seed=6)}
    else:
        inputs["BC"] = randn(sequences, tokens, 2 * states + 2, seed=5)
    if gated:
        inputs["gate"] = randn(sequences, channels, tokens, seed=7)
    if form == "with a bias of dt":
        inputs["dt_bias"] = randn(channels, seed=8)
    assert judged("selective_scan", scan, inputs, {"activation": "silu"}, result="out")


@pytest.mark.parametrize("skip", [1.0, 0.1])
def test_mamba1_whose_steps_are_stored_in_bfloat16(skip):
    """modeling_jamba.py: states in float32, which are stored before they meet C."""
    sequences, tokens, channels, states = 1, 40, 16, 8
    fn = torch.nn.functional

    def scan(x, dt, B, C, A_log, D):
        dt = fn.softplus(dt).mT
        decay = torch.exp(-A_log.float().exp()[None, :, None] * dt[..., None])
        written = dt[..., None] * B[:, None].float() * x[..., None].float()
        state, outs = torch.zeros(sequences, channels, states), []
        for t in range(tokens):
            state = decay[:, :, t] * state + written[:, :, t]
            outs.append(torch.matmul(state.to(x.dtype), C[:, t, :, None])[:, :, 0])
        return (torch.stack(outs, -1) + x * D[None, :, None]).mT

    shapes = {"x": (sequences, channels, tokens), "dt": (sequences, tokens, channels)}
    shapes |= {
        "B": (sequences, tokens, states),
        "C": (sequences, tokens, states),
        "A_log": (channels, states),
        "D": (channels,),
    }
    given = {name: randn(*shape, seed=i).bfloat16() for i, (name, shape) in enumerate(shapes.items())}
    given["D"] = given["D"] * skip
    given = {name: t.requires_grad_() for name, t in given.items()}
    upstream = randn(sequences, tokens, channels, seed=9).bfloat16()
    out = scan(**given)
    grads = torch.autograd.grad(out, list(given.values()), upstream)
    outputs = {"out": out.detach()} | {f"grad_{name}": g for name, g in zip(given, grads, strict=True)}
    inputs = {name: t.detach() for name, t in given.items()} | {"grad_out": upstream}
    verdict = assay.judge("selective_scan", inputs, outputs, intermediate="bfloat16")
    assert verdict, verdict.report()
    for name, value in outputs.items():
        assert not assay.judge("selective_scan", inputs, {name: value * 1.1}, intermediate="bfloat16"), name
