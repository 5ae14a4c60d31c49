"""Cases of attention: the plain formula with PyTorch's autograd, visibility decided pair by pair."""
import torch

from case import values, write_case

INF = float("inf")


def visible(L, S, causal=False, window=(-1, -1), bottom_right=False, ids=None, mask=None, shape=()):
    """[.., L, S]: which key each query sees."""
    q_ids, k_ids = ids or ([0] * L, [0] * S)
    see = torch.zeros(L, S, dtype=torch.bool)
    for i in range(L):
        for j in range(S):
            own_q = [n for n in range(L) if q_ids[n] == q_ids[i]]
            own_k = [n for n in range(S) if k_ids[n] == q_ids[i]]
            if q_ids[i] < 0 or j not in own_k:
                continue
            diagonal = own_q.index(i) + (len(own_k) - len(own_q) if bottom_right else 0)
            ahead = own_k.index(j) - diagonal
            see[i, j] = not (causal and ahead > 0) and not (0 <= window[0] < -ahead) and not (0 <= window[1] < ahead)
    return see.expand(*shape, L, S) if mask is None else see & mask


def attend(q, k, v, see, scale, bias=None, sink=None, softcap=0.0):
    """out and lse; heads of k and v repeated for the heads of q."""
    if q.dim() > 2:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    scores = scale * q @ k.mT
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        see = see & (bias != -INF)
        scores = scores + torch.where(bias == -INF, 0.0, bias)
    see = see.broadcast_to(scores.shape)
    top = torch.where(see, scores, -INF).amax(-1, keepdim=True).detach()
    top = torch.where(top == -INF, 0.0, top)
    e = torch.where(see, torch.exp(scores - top), 0.0)
    total = e.sum(-1)
    if sink is not None:
        total = total + torch.exp(sink[:, None] - top[..., 0])
    any_key = total > 0
    safe = torch.where(any_key, total, 1.0)
    return (e @ v) / safe[..., None], torch.where(any_key, top[..., 0] + torch.log(safe), -INF)


def case(name, lead, heads, L, S, D, V, attributes=None, extra=(), counted=None, with_lse=False, bias=None, sink=False,
         see=None, seed=0):
    attributes = attributes or {}
    H, G = heads or ((), ())
    make = lambda n, *shape: values(*shape, seed=seed * 16 + n).requires_grad_()
    q, k, v = make(0, *lead, *H, L, D), make(1, *lead, *G, S, D), make(2, *lead, *G, S, V)
    s = make(3, *H) if sink else None
    b = bias.clone().requires_grad_() if bias is not None else None
    if see is None:
        see = visible(L, S, attributes.get("is_causal", False), attributes.get("window_size", (-1, -1)),
                      attributes.get("alignment") == "bottom_right")
    out, lse = attend(q, k, v, see, attributes.get("scale", D ** -0.5), b, s, attributes.get("softcap", 0.0))
    g, g_lse = make(4, *out.shape), make(5, *lse.shape)
    loss = (out * g).sum()
    if with_lse:
        loss = loss + (torch.where(lse == -INF, 0.0, lse) * g_lse).sum()
    loss.backward()
    inputs = [("q", q, "input"), ("k", k, "input"), ("v", v, "input"), *extra]
    outputs = [("out", out, "output"), ("lse", lse, "output"), ("grad_q", q.grad, "grad_input"),
               ("grad_k", k.grad, "grad_input"), ("grad_v", v.grad, "grad_input")]
    if b is not None:
        inputs.append(("bias", b, "input"))
        outputs.append(("grad_bias", torch.where(b == -INF, 0.0, b.grad), "grad_input"))
    if s is not None:
        inputs.append(("sink", s, "param"))
        outputs.append(("grad_sink", s.grad, "grad_input"))
    inputs.append(("grad_out", g, "grad_output"))
    if with_lse:
        inputs.append(("grad_lse", g_lse, "grad_output"))
    rows = L * (H[0] // G[0] if H else 1)
    counts = {"out": D + S, "lse": D + S, "grad_q": D + S + V, "grad_k": D + rows + V, "grad_v": D + rows}
    write_case("attention", name, attributes, inputs, outputs, counts)
    return q, k, v, out


q, k, v, out = case("gqa_causal_top_left", (2,), ((4,), (2,)), 3, 5, 4, 4, {"is_causal": True}, seed=1)
torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
case("mqa_past_keys", (1,), ((3,), (1,)), 2, 7, 4, 4, {"is_causal": True, "alignment": "bottom_right"}, seed=2)
case("causal_more_queries_than_keys", (1,), ((2,), (2,)), 5, 3, 4, 4, {"is_causal": True, "alignment": "bottom_right"},
     with_lse=True, seed=3)  # the first two queries see nothing
case("mla_wider_keys", (1,), ((2,), (2,)), 4, 4, 6, 3, {"is_causal": True, "scale": 0.25}, with_lse=True, seed=4)
case("window_2_0", (1,), ((2,), (1,)), 6, 6, 4, 4, {"window_size": [2, 0]}, seed=5)
case("window_bottom_right", (1,), ((1,), (1,)), 3, 6, 2, 2, {"window_size": [1, 1], "alignment": "bottom_right"}, seed=6)
case("softcap", (1,), ((2,), (1,)), 3, 5, 4, 4, {"softcap": 1.5, "scale": 1.0}, with_lse=True, seed=7)
case("sink", (2,), ((2,), (1,)), 3, 3, 4, 4, {"is_causal": True}, sink=True, with_lse=True, seed=8)
case("one_head_no_batch", (), None, 3, 4, 5, 2, seed=9)
case("three_leading_extents", (2, 1), ((2,), (2,)), 2, 3, 2, 3, seed=10)

ids_q, ids_k = [3, 3, 0, 0, 0, -1], [3, 0, 0, 0, 0, 3, 3, -1]
ids = [("document_q", torch.tensor(ids_q), "index"), ("document_k", torch.tensor(ids_k), "index")]
case("documents_interleaved_causal", (1,), ((2,), (1,)), 6, 8, 4, 4, {"is_causal": True, "alignment": "bottom_right"}, ids,
     see=visible(6, 8, True, bottom_right=True, ids=(ids_q, ids_k)), seed=11)
ends = [("cu_seqlens_q", torch.tensor([0, 2, 2, 5]), "index"), ("cu_seqlens_k", torch.tensor([0, 3, 4, 8]), "index")]
by_id = ([0, 0, 2, 2, 2, -1], [0, 0, 0, 1, 2, 2, 2, 2, -1])
for name, bottom_right in (("top_left", False), ("bottom_right", True)):
    attributes = {"is_causal": True, "window_size": [2, -1], "alignment": name}
    case("cumulative_lengths_" + name, (1,), ((1,), (1,)), 6, 9, 4, 4, attributes, ends,
         see=visible(6, 9, True, (2, -1), bottom_right, by_id), seed=12)

mask = torch.rand(2, 1, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.6
mask[0, 0, 1] = False
case("mask_with_an_empty_row", (2,), ((2,), (2,)), 3, 4, 4, 4, {}, [("mask", mask, "mask")], see=mask, with_lse=True, seed=13)
bias = values(2, 1, 4, low=-1, high=1, seed=99)
bias[0, 0, 2] = -INF
case("bias_of_heads", (2,), ((2,), (1,)), 3, 4, 4, 4, {"softcap": 3.0}, bias=bias, seed=14)
