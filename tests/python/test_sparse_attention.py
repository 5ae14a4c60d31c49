"""DeepSeek's sparse attention against what torch makes of its definition in float64."""

import assay
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from against_torch import judged, randn, tables  # noqa: E402

SEQUENCES, TOKENS, TURNING, CHOSEN = 2, 11, 4, 3


def turned(x, cos, sin, style):
    """The first channels of [B, L, H, D] (modeling_deepseek_v32.py, modeling_glm_moe_dsa.py)."""
    first, rest = x[..., :TURNING], x[..., TURNING:]
    cos, sin = cos[:, :, None], sin[:, :, None]
    if style == "half":
        half = torch.cat([-first[..., TURNING // 2 :], first[..., : TURNING // 2]], -1)
        return torch.cat([first * cos + half * sin, rest], -1)
    cos, sin, even, odd = cos[..., : TURNING // 2], sin[..., : TURNING // 2], first[..., ::2], first[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin, rest], -1)


def indexer_call(heads=3, dim=6):
    cos, sin = (t.expand(SEQUENCES, -1, -1).double() for t in tables(TOKENS, TURNING))
    return {
        "q": randn(SEQUENCES, TOKENS, heads * dim, seed=1).double(),
        "k": randn(SEQUENCES, TOKENS, dim, seed=2).double(),
        "head_weights": randn(SEQUENCES, TOKENS, heads, seed=3).double(),
        "cos": cos,
        "sin": sin,
    }


def scores_of(call, style):
    heads, dim = call["head_weights"].shape[-1], call["k"].shape[-1]
    q = turned(call["q"].unflatten(-1, (heads, dim)), call["cos"], call["sin"], style)
    k = turned(call["k"][:, :, None], call["cos"], call["sin"], style)[:, :, 0]
    scores = torch.einsum("blh,blhs->bls", call["head_weights"], torch.einsum("blhd,bsd->blhs", q, k).relu())
    return scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_the_indexer_chooses_the_best_keys(style):
    call = indexer_call()
    scores = scores_of(call, style)
    best = scores.topk(CHOSEN + 1, -1)
    golden = assay.golden("lightning_indexer", call, {"top_k": CHOSEN, "style": style})
    index, gap = (torch.from_dlpack(golden[name]) for name in ("index", "selection_gap"))
    several = torch.arange(TOKENS) >= CHOSEN  # queries that see more keys than they choose
    expected = best.indices[..., :CHOSEN].sort().values
    assert torch.equal(index.sort().values[:, several], expected[:, several])
    torch.testing.assert_close(gap[:, several], (best.values[..., -2] - best.values[..., -1])[:, several])
    assert (gap[:, ~several] == 0).all()
    assert (torch.isin(index[:, 0], 0).sum(-1) == 1).all()  # the first sees itself

    def lead_of(choice):
        made = assay.golden("lightning_indexer", call | {"chosen": choice}, {"top_k": CHOSEN, "style": style})
        return torch.from_dlpack(made["selection_gap"])

    worse = expected.clone()
    worst = scores[:, -1].argsort()[:, 0]
    worse[:, -1, 0] = worst
    assert (lead_of(worse)[:, -1] < 0).all()
    hidden = expected.clone()
    hidden[:, 1] = torch.tensor([0, TOKENS - 1, TOKENS - 2])  # of the two keys that it sees one, and two others
    assert (lead_of(hidden)[:, 1] == -torch.inf).all()


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_latent_attention_by_selected_keys(style):
    heads, nope, values = 2, 3, 5
    selected = torch.rand(SEQUENCES, TOKENS, TOKENS, generator=torch.Generator().manual_seed(4)).argsort(-1)[
        ..., :CHOSEN
    ]
    selected[:, :, 0] = 0  # each sees a key
    cos, sin = (t.expand(SEQUENCES, -1, -1).contiguous() for t in tables(TOKENS, TURNING))

    def attention(q, kv, compressed, cos, sin, selected):
        k, v = kv.unflatten(-1, (heads, -1)).split([nope, values], -1)
        q, of_q = q.unflatten(-1, (heads, -1)).split([nope, TURNING], -1)
        q = torch.cat([q, turned(of_q, cos, sin, style)], -1)
        shared = turned(compressed[:, :, None, -TURNING:], cos, sin, style)
        k = torch.cat([k, shared.expand(-1, -1, heads, -1)], -1)
        seen = torch.zeros(SEQUENCES, TOKENS, TOKENS, dtype=torch.bool).scatter(-1, selected, True).tril()
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
        return out.transpose(1, 2).flatten(2)

    inputs = {
        "q": randn(SEQUENCES, TOKENS, heads * (nope + TURNING), seed=5),
        "kv": randn(SEQUENCES, TOKENS, heads * (nope + values), seed=6),
        "compressed": randn(SEQUENCES, TOKENS, 7 + TURNING, seed=7),
        "cos": cos,
        "sin": sin,
        "selected": selected,
    }
    attributes = {"heads": heads, "style": style}
    assert judged("latent_attention", attention, inputs, attributes, indices=("selected",), result="out")
