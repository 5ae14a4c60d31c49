"""Attention in the forms of programs, against what torch makes of their definition in float64, with gradients."""

import math

import assay
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from against_torch import judged, randn, tables, turned  # noqa: E402


@pytest.mark.parametrize("rotary", [0, 4])
@pytest.mark.parametrize(
    ("heads", "groups", "layout"), [(4, 4, "parts"), (4, 2, "parts"), (4, 4, "groups"), (6, 2, "groups")]
)
def test_qkv_attention(heads, groups, layout, rotary):
    width, tokens = 8, 7

    def attention(qkv, cos=None, sin=None):
        if layout == "parts":  # modeling_phi3.py
            q, k, v = qkv.split([heads * width, groups * width, groups * width], -1)
            q, k, v = (t.view(2, tokens, -1, width) for t in (q, k, v))
        else:  # modeling_falcon.py
            by_group = qkv.view(2, tokens, groups, heads // groups + 2, width)
            q, k, v = by_group[..., :-2, :].flatten(2, 3), by_group[..., -2, :], by_group[..., -1, :]
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if cos is not None:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"qkv": randn(2, tokens, (heads + 2 * groups) * width)}
    if rotary:
        inputs["cos"], inputs["sin"] = tables(tokens, rotary)
    attributes = {"heads": heads, "groups": groups, "layout": layout}
    assert judged("qkv_attention", attention, inputs, attributes, result="out")


@pytest.mark.parametrize("scale", [None, 0.5])
def test_cross_attention(scale):
    width, queries, keys = 8, 5, 7

    def attention(q, k, v):
        q, k, v = (t.view(2, t.shape[1], -1, width).transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, queries, 32), "k": randn(2, keys, 16, seed=1), "v": randn(2, keys, 16, seed=2)}
    attributes = {"head_dim": width} | ({} if scale is None else {"scale": scale})
    assert judged("cross_attention", attention, inputs, attributes, result="out")


def masks(queries, keys, causal):
    """Of two sequences, the second with padding: of its tokens, and for scores, as flags and as a bias."""
    there = torch.ones(2, keys, dtype=torch.int64)
    there[1, -2:] = 0
    seen = there.bool()[:, None, None].expand(2, 1, queries, keys)
    seen = seen & torch.ones(queries, keys, dtype=torch.bool).tril() if causal else seen
    lowest = torch.finfo(torch.float32).min
    return {"tokens": there, "flags": seen, "bias": torch.zeros(seen.shape).masked_fill(~seen, lowest)}


@pytest.mark.parametrize("kind", ["tokens", "flags", "bias"])
@pytest.mark.parametrize("op", ["encoder", "decoder", "cross_attention", "qkv_attention"])
def test_attention_with_padding(op, kind):
    width, keys = 8, 7
    causal, queries = op == "decoder", 5 if op == "cross_attention" else keys
    all_masks = masks(queries, keys, causal)

    def attention(q, k, v, mask):
        q, k, v = (t.view(2, t.shape[1], -1, width).transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, all_masks["flags"], enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, queries, 32), "k": randn(2, keys, 16, seed=1), "v": randn(2, keys, 16, seed=2)}
    attributes, name = {"head_dim": width}, op
    if op in ("encoder", "decoder"):
        attributes["is_causal"], name = causal, "rotary_attention"
    if op == "qkv_attention":
        attributes, inputs = {"heads": 4, "groups": 2, "is_causal": False}, {"qkv": randn(2, keys, 64)}

    def of_inputs(mask, **given):
        qkv = given["qkv"].split([32, 16, 16], -1) if "qkv" in given else given.values()
        return attention(*qkv, mask)

    inputs["mask"] = all_masks[kind]
    assert judged(name, of_inputs, inputs, attributes, indices=("mask",), result="out")


@pytest.mark.parametrize("eager", [False, True])
def test_attention_of_queries_that_see_nothing(eager):
    """Left padding: sdpa makes zeros, a softmax of equal scores the mean of all values."""
    width, tokens = 8, 7
    there = torch.ones(2, tokens, dtype=torch.int64)
    there[1, :3] = 0
    seen = there.bool()[:, None, None] & torch.ones(tokens, tokens, dtype=torch.bool).tril()

    def attention(q, k, v, mask):
        q, k, v = (t.view(2, tokens, -1, width).transpose(1, 2) for t in (q, k, v))
        if eager:
            scores = (q @ k.mT) / width**0.5
            out = scores.masked_fill(~seen, torch.finfo(torch.float32).min).softmax(-1) @ v
        else:
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen)
        return out.transpose(1, 2).flatten(2)

    inputs = {name: randn(2, tokens, 16, seed=seed) for seed, name in enumerate("qkv")} | {"mask": there}
    attributes = {"head_dim": width, "unseen": "either"}
    assert judged("rotary_attention", attention, inputs, attributes, indices=("mask",), result="out")
    wrong = attention(*(inputs[name] for name in "qkv"), None)
    wrong[1, 0] += 1 if eager else 100
    assert not assay.judge("rotary_attention", inputs, {"out": wrong}, attributes, causes=False)


@pytest.mark.parametrize("rotary", [0, 4])
def test_rotary_attention_turns_a_part_or_nothing(rotary):
    width, tokens = 8, 7

    def attention(q, k, v, cos=None, sin=None):
        q, k, v = (t.view(2, tokens, -1, width).transpose(1, 2) for t in (q, k, v))
        if cos is not None:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, tokens, 32), "k": randn(2, tokens, 16, seed=1), "v": randn(2, tokens, 16, seed=2)}
    if rotary:
        inputs["cos"], inputs["sin"] = tables(tokens, rotary)
    assert judged("rotary_attention", attention, inputs, {"head_dim": width}, result="out")


@pytest.mark.parametrize("shape", [(7, 8), (1, 1, 7, 8), (2, 1, 7, 8), (1, 7, 1, 8), (7, 1, 8), (9, 8), (2, 9, 8)])
def test_rotary_attention_by_tables_of_any_shape(shape):
    width, tokens = 8, 7

    def attention(q, k, v, cos, sin):
        q, k, v = (t.view(2, tokens, -1, width).transpose(1, 2) for t in (q, k, v))
        of_each = [t.reshape(shape[0] if shape[0] == 2 else 1, -1, width)[:, :tokens] for t in (cos, sin)]
        q, k = turned(q, *of_each), turned(k, *of_each)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, tokens, 32), "k": randn(2, tokens, 16, seed=1), "v": randn(2, tokens, 16, seed=2)}
    angle = randn(*shape, seed=3)
    angle[..., width // 2 :] = angle[..., : width // 2]
    inputs["cos"], inputs["sin"] = angle.cos(), angle.sin()
    assert judged("rotary_attention", attention, inputs, {"head_dim": width}, result="out")


@pytest.mark.parametrize("style", ["half_of_pairs", "interleaved_of_pairs"])
@pytest.mark.parametrize("rotary", [4, 8])
def test_rotary_attention_by_a_column_for_each_pair(style, rotary):
    width, tokens = 8, 7

    def turn(x, cos, sin):  # github.com/Dao-AILab/flash-attention, apply_rotary_emb_torch
        x, rest = x[..., :rotary], x[..., rotary:]
        if style == "half_of_pairs":
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.cat((torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2), rest), -1)

    def attention(q, k, v, cos, sin):
        q, k, v = (t.view(2, tokens, -1, width).transpose(1, 2) for t in (q, k, v))
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, tokens, 32), "k": randn(2, tokens, 16, seed=1), "v": randn(2, tokens, 16, seed=2)}
    angle = randn(tokens, rotary // 2, seed=3)
    inputs["cos"], inputs["sin"] = angle.cos(), angle.sin()
    assert judged("rotary_attention", attention, inputs, {"head_dim": width, "style": style}, result="out")


def test_rotary_attention_by_complex_tables():
    width, tokens = 8, 7

    def attention(q, k, v, cis):  # modeling_llama4.py
        def turn(x):
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, width // 2, 2))) * numbers).flatten(3)

        numbers = torch.view_as_complex(cis)[:, :, None]
        q, k, v = (t.transpose(1, 2) for t in (turn(q), turn(k), v.view(2, tokens, 2, width)))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    inputs = {"q": randn(2, tokens, 32), "k": randn(2, tokens, 16, seed=1), "v": randn(2, tokens, 16, seed=2)}
    inputs["cis"] = torch.stack([t[..., : width // 2] for t in tables(tokens, width)], -1)
    assert judged("rotary_attention", attention, inputs, result="out")


@pytest.mark.parametrize("heads_first", [False, True])
def test_rotary_attention_with_sinks(heads_first):
    gpt_oss = pytest.importorskip(
        "transformers.models.gpt_oss.modeling_gpt_oss", reason="transformers is not installed"
    )
    width, tokens = 8, 7

    class Module:  # what eager_attention_forward asks of its module
        num_key_value_groups, training = 2, False

    def attention(q, k, v, sink, cos, sin):
        if not heads_first:
            q, k = (t.transpose(1, 2) for t in (q, k))
        module = Module()
        module.sinks = sink
        mask = torch.full((1, 1, tokens, tokens), -torch.inf, dtype=q.dtype).triu(1)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        v = v.view(2, tokens, 2, width).transpose(1, 2)
        return gpt_oss.eager_attention_forward(module, q, k, v, mask, width**-0.5)[0].flatten(2)

    of_q, of_k = (
        ((2, 4, tokens, width), (2, 2, tokens, width))
        if heads_first
        else ((2, tokens, 4, width), (2, tokens, 2, width))
    )
    inputs = {"q": randn(*of_q), "k": randn(*of_k, seed=1), "v": randn(2, tokens, 16, seed=2), "sink": randn(4, seed=3)}
    inputs["cos"], inputs["sin"] = tables(tokens, width)
    assert judged("rotary_attention", attention, inputs, {"heads_first": heads_first}, result="out")


def slopes_of(n):
    """github.com/ofirpress/attention_with_linear_biases, get_slopes."""
    if math.log2(n).is_integer():
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return slopes_of(closest) + slopes_of(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("heads", [4, 6])
@pytest.mark.parametrize("alibi", ["first_key", "last_key", "scaled"])
def test_qkv_attention_with_linear_biases(alibi, heads):
    models = pytest.importorskip("transformers.models", reason="transformers is not installed")
    width, tokens = 8, 7
    ones = torch.ones(1, tokens, dtype=torch.long)
    slopes, keys = torch.tensor(slopes_of(heads), dtype=torch.float64)[:, None, None], torch.arange(tokens)
    if alibi == "first_key":
        biases, theirs = slopes * keys, models.bloom.modeling_bloom.build_alibi_tensor(ones, heads, torch.float32)
    elif alibi == "last_key":
        biases, theirs = slopes * (keys - tokens + 1), models.mpt.modeling_mpt.build_mpt_alibi_tensor(heads, tokens)
    else:
        theirs = models.falcon.modeling_falcon.build_alibi_tensor(ones, heads, torch.float32)
        biases = theirs.double()
    assert torch.allclose(biases.float(), theirs)
    if alibi == "scaled":
        biases = biases * width**-0.5

    def attention(qkv):
        q, k, v = qkv.view(2, tokens, heads, 3, width).permute(3, 0, 2, 1, 4)
        mask = torch.full((tokens, tokens), -torch.inf, dtype=qkv.dtype).triu(1) + biases
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)

    attributes = {"heads": heads, "layout": "groups", "alibi": alibi}
    assert judged("qkv_attention", attention, {"qkv": randn(2, tokens, 3 * heads * width)}, attributes, result="out")


MASKS = ["none", "bool", "float", "by_head", "padding", "both"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("given", ["itself", "memory", "three", "three widths"])
def test_multihead_attention(given, weights, mask):
    """torch.nn.MultiheadAttention, over batch_first, sequences alone, averages and biases as the cases come."""
    case = MASKS.index(mask) + 2 * len(given)
    batch_first, batched, average, bias = case % 2 == 0, case % 3 > 0, case % 4 > 1, case % 5 > 0
    channels, heads, queries, sequences = 12, 3, 5, 2
    keys = queries if given == "itself" else 7
    widths = {"kdim": 10, "vdim": 8} if given == "three widths" else {}
    module = torch.nn.MultiheadAttention(channels, heads, bias=bias, batch_first=batch_first, **widths).double()
    weights_of = {n.replace("out_proj.", "out_proj_"): p for n, p in module.named_parameters()}

    def tokens(count, width, seed):
        shape = [count, width]
        return randn(*(shape[: 1 - batch_first] + [sequences] * batched + shape[1 - batch_first :]), seed=seed)

    inputs = {"query": tokens(queries, channels, 1)}
    if given != "itself":
        inputs["key"] = tokens(keys, widths.get("kdim", channels), 2)
    if given.startswith("three"):
        inputs["value"] = tokens(keys, widths.get("vdim", channels), 3)
    chance = torch.Generator().manual_seed(4)
    if mask in ("bool", "both"):
        inputs["attn_mask"] = torch.rand(queries, keys, generator=chance) < 0.3
        inputs["attn_mask"][:, 0] = False
    if mask == "float":
        inputs["attn_bias"] = randn(queries, keys, seed=5)
    if mask == "by_head":
        inputs["attn_bias"] = randn((sequences if batched else 1) * heads, queries, keys, seed=6)
    if mask in ("padding", "both"):
        inputs["key_padding_mask"] = torch.arange(keys).expand(*[sequences] * batched, keys) >= keys - 2
    for seed, (name, weight) in enumerate(weights_of.items()):
        inputs[name] = randn(*weight.shape, seed=10 + seed) / 3

    def attention(query, key=None, value=None, attn_mask=None, attn_bias=None, key_padding_mask=None, **parameters):
        key = query if key is None else key
        value = key if value is None else value
        made = torch.func.functional_call(
            module,
            {n.replace("out_proj_", "out_proj."): p for n, p in parameters.items()},
            (query, key, value, key_padding_mask, weights, attn_bias if attn_mask is None else attn_mask, average),
        )
        return made if weights else made[0]

    attributes = {"num_heads": heads, "batch_first": batch_first, "average_attn_weights": average}
    indices = ("attn_mask", "key_padding_mask")
    result = ("attn_output", "attn_output_weights") if weights else "attn_output"
    assert judged("multihead_attention", attention, inputs, attributes, indices, result)


@pytest.mark.parametrize("gating", ["sigmoid", "softplus"])
@pytest.mark.parametrize("kind", ["channels", "heads", "beside q"])
@pytest.mark.parametrize("rotary", [0, 4])
def test_gated_attention(rotary, kind, gating):
    width, tokens, heads = 8, 7, 4

    def attention(q, k, v, gate, cos=None, sin=None):
        q, k, v = (t.view(2, tokens, -1, width).transpose(1, 2) for t in (q, k, v))
        if cos is not None:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        by_head = gate.view(2, tokens, heads, -1)
        if kind == "beside q":  # modeling_qwen3_next.py
            by_head = by_head.chunk(2, -1)[1]
        gates = torch.sigmoid(by_head) if gating == "sigmoid" else torch.nn.functional.softplus(by_head)
        return (out.transpose(1, 2) * gates).flatten(2)

    channels = {"channels": heads * width, "heads": heads, "beside q": 2 * heads * width}[kind]
    inputs = {"q": randn(2, tokens, 32), "k": randn(2, tokens, 16, seed=1), "v": randn(2, tokens, 16, seed=2)}
    inputs["gate"] = randn(2, tokens, channels, seed=3)
    if rotary:
        inputs["cos"], inputs["sin"] = tables(tokens, rotary)
    attributes = {"head_dim": width, "gating": gating}
    assert judged("gated_attention", attention, inputs, attributes, result="out")
