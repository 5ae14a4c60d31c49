"""Cases of the router, its losses and the moving of tokens: plain loops and formulas, PyTorch's autograd."""
import math

import numpy as np
import torch

from case import values, write_case

INF = float("inf")


def ranked(scores):
    """Positions by falling score, ties lower first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def router(name, logits, top_k, score="softmax", pre_softmax=True, normalize=True, scaling=1.0, groups=None,
           group_top=None, bias=None, selection_bias=None, seed=0, counts=None, chosen=None):
    z = logits.clone().requires_grad_()
    s = torch.sigmoid(z) if score == "sigmoid" else torch.softmax(z, -1) if pre_softmax else z
    index, gaps = [], []
    for row in s.detach() + (bias if bias is not None and selection_bias is not False else 0.0):
        row = row.tolist()
        if groups:
            size = len(row) // groups[0]
            best = [sum(sorted(row[g * size:(g + 1) * size])[::-1][:group_top or top_k // groups[1]]) for g in range(groups[0])]
            kept = ranked(best)[:groups[1]]
            row = [v if e // size in kept else -INF for e, v in enumerate(row)]
        index.append(chosen[len(index)] if chosen else ranked(row)[:top_k])
        others = [v for e, v in enumerate(row) if e not in index[-1]]
        gaps.append(min(row[e] for e in index[-1]) - max(others, default=-INF))
    index = torch.tensor(index)
    w = s.gather(-1, index)
    if score == "softmax" and not pre_softmax:
        w = torch.softmax(w, -1)
    elif normalize:
        w = w / w.sum(-1, keepdim=True)
    w = w * scaling
    g = values(*w.shape, seed=seed + 50)
    (w * g).sum().backward()
    attributes = {"top_k": top_k, "score": score, "normalize": normalize, "scaling": scaling}
    optional = {"groups": groups, "group_top": group_top, "selection_bias": selection_bias}
    attributes |= {k: v for k, v in optional.items() if v is not None}
    if not pre_softmax:
        attributes["pre_softmax"] = False
    inputs = [("logits", logits, "input")] + ([("expert_bias", bias, "param")] if bias is not None else [])
    inputs += [("chosen", torch.tensor(chosen), "index")] if chosen else []
    write_case("router_topk", name, attributes, inputs + [("grad_weights", g, "grad_output")],
               [("weights", w, "output"), ("index", index, "index"), ("selection_gap", torch.tensor(gaps, dtype=torch.float64), "output"),
                ("grad_logits", z.grad, "grad_input")], counts)


z = values(5, 8, low=-4, high=4, seed=1)
small_bias = values(8, low=-0.5, high=0.5, seed=2)
router("softmax_renormalised", z, 3, counts={"weights": 8, "grad_logits": 8})
router("softmax_not_normalised", z, 3, normalize=False, scaling=2.0)
router("softmax_after_the_choice", z, 3, pre_softmax=False, scaling=0.5, counts={"weights": 3})
router("softmax_of_all", z, 8)
router("sigmoid_one", z, 1, "sigmoid", normalize=False, bias=small_bias)
router("sigmoid_bias_off", z, 2, "sigmoid", bias=small_bias, selection_bias=False)
# Biased scores below 0: a mask of 0 instead of -inf would choose experts of dropped groups.
router("groups_with_negative_scores", z, 4, "sigmoid", groups=[4, 2], bias=small_bias - 2, selection_bias=True, scaling=2.5)
router("groups_top_1", z, 4, "sigmoid", groups=[2, 1], group_top=1)
router("groups_of_softmax", z, 3, groups=[4, 3], group_top=2, bias=small_bias)
tied = torch.zeros(2, 6, dtype=torch.float64)
tied[1, 3:] = 1
router("ties", tied, 2, "sigmoid", groups=[3, 2])
elsewhere = [[0, 1, 2], [7, 0, 3], [5, 2, 6], [1, 4, 7], [3, 6, 5]]
router("given_choice_of_softmax", z, 3, chosen=elsewhere, scaling=1.5)
router("given_choice_not_normalised", z, 3, normalize=False, chosen=elsewhere)
router("given_choice_softmax_after", z, 3, pre_softmax=False, chosen=elsewhere)
router("given_choice_of_sigmoid", z, 3, "sigmoid", bias=small_bias, chosen=elsewhere, scaling=2.5)


def bias_update(name, bias, tokens, rate, center):
    step = torch.sign(tokens.mean() - tokens)
    write_case("expert_bias_update", name, {"rate": rate, "center": center},
               [("expert_bias", bias, "param"), ("tokens_per_expert", tokens, "input")],
               [("updated_bias", bias + rate * (step - step.mean() if center else step), "output")])


bias_update("megatron", values(6, seed=3), torch.tensor([4.0, 4, 0, 5, 9, 2], dtype=torch.float64), 1e-3, False)
bias_update("centered", values(5, seed=4), torch.tensor([7.0, 1, 2, 0, 0], dtype=torch.float64), 0.25, True)


def capacity_drop(name, N, E, top_k, factor, policy, pad, seed):
    g = np.random.default_rng(seed)
    routed = torch.zeros(N, E, dtype=torch.bool)
    for n in range(N):
        routed[n, torch.from_numpy(g.choice(E, top_k, replace=False, p=[0.5] + [0.5 / (E - 1)] * (E - 1)))] = True
    p = (values(N, E, low=0.05, high=1, seed=seed) * routed).requires_grad_()
    C = min(math.ceil(N * top_k / E * factor), N)
    kept = torch.zeros(N, E, dtype=torch.int64)
    for e in range(E):
        key = (lambda n: (-p[n, e].item(), n)) if policy == "probs" else (lambda n: (not routed[n, e], n))
        for n in sorted(range(N), key=key)[:C]:
            kept[n, e] = int(pad or routed[n, e])
    out = p * kept
    grad = values(N, E, seed=seed + 1)
    (out * grad * routed).sum().backward()
    write_case("moe_capacity_drop", name, {"top_k": top_k, "capacity_factor": factor, "drop_policy": policy, "pad_to_capacity": pad},
               [("probs", p, "input"), ("routing_map", routed, "index"), ("grad_kept_probs", grad, "grad_output")],
               [("kept_probs", out, "output"), ("kept_map", kept, "index"), ("capacity", torch.tensor(C), "index"),
                ("grad_probs", p.grad, "grad_input")])


capacity_drop("by_probs", 7, 4, 2, 1.0, "probs", False, 11)
capacity_drop("by_position", 7, 4, 2, 0.75, "position", False, 12)
capacity_drop("padded", 7, 4, 2, 1.25, "probs", True, 13)
capacity_drop("padded_by_position", 6, 3, 1, 1.0, "position", True, 14)
capacity_drop("all_fit", 5, 2, 2, 3.0, "probs", True, 15)


def permute(name, tokens, C, index, E, rows=None, seed=0):
    index = torch.tensor(index)
    K = index.shape[-1]
    flat = index.flatten().tolist()
    places = [i for i in sorted(range(len(flat)), key=lambda i: flat[i]) if flat[i] >= 0]
    P = rows if rows is not None else len(flat)
    places = (places + [-1] * P)[:P]
    x = values(*tokens, C, seed=seed).requires_grad_()
    y = torch.stack([x.reshape(-1, C)[i // K] if i >= 0 else torch.zeros(C, dtype=torch.float64) for i in places])
    g = values(P, C, seed=seed + 1)
    (y * g).sum().backward()
    per_expert = [sum(1 for i in places if i >= 0 and flat[i] == e) for e in range(E)]
    write_case("moe_permute", name, {"num_experts": E} | ({"num_out_tokens": rows} if rows is not None else {}),
               [("x", x, "input"), ("index", index, "index"), ("grad_permuted", g, "grad_output")],
               [("permuted", y, "output"), ("sorted_index", torch.tensor(places), "index"),
                ("tokens_per_expert", torch.tensor(per_expert), "index"), ("grad_x", x.grad, "grad_input")], {"grad_x": K})
    return places


dropped = [[2, -1], [0, 2], [-1, -1], [2, 0], [0, 1]]
places = permute("dropped", (5,), 3, dropped, 3, seed=21)
permute("dropped_rows_cut", (5,), 3, dropped, 4, rows=7, seed=22)
permute("too_few_rows", (5,), 3, dropped, 3, rows=4, seed=23)
permute("sequence_and_batch", (2, 3), 2, [[[1, 0, 3], [3, 1, 2], [0, 1, 2]], [[2, 3, 0], [0, 2, 1], [1, 0, 3]]], 4, seed=24)


def combined(rows, places, probs, N, K):
    """y of [N, C]: every row times its probability, added to its token."""
    y = [torch.zeros(rows.shape[1], dtype=torch.float64) for _ in range(N)]
    for r, place in enumerate(places):
        if place >= 0:
            y[place // K] = y[place // K] + rows[r] * (probs.flatten()[place] if probs is not None else 1)
    return torch.stack(y)


def unpermute(name, places, N, K, C, with_probs, attributes, seed):
    rows = values(len(places), C, seed=seed).requires_grad_()
    probs = values(N, K, low=0, high=1, seed=seed + 1).requires_grad_() if with_probs else None
    y = combined(rows, places, probs, N, K)
    g = values(N, C, seed=seed + 2)
    (y * g).sum().backward()
    optional = ([("probs", probs, "input")], [("grad_probs", probs.grad, "grad_input")]) if with_probs else ([], [])
    write_case("moe_unpermute", name, attributes,
               [("expert_out", rows, "input"), ("sorted_index", torch.tensor(places), "index"), *optional[0], ("grad_y", g, "grad_output")],
               [("y", y, "output"), ("grad_expert_out", rows.grad, "grad_input"), *optional[1]], {"y": K})


unpermute("dropped", places, 5, 2, 3, True, {}, 31)
unpermute("dropped_without_probs", places[:7], 5, 2, 3, False, {"top_k": 2, "num_tokens": 5}, 32)
unpermute("without_probs", [5, 0, 3, 1, 4, 2], 2, 3, 2, False, {"top_k": 3}, 33)


def plan(name, index, E, C, order, placement=None, seed=0):
    index = torch.tensor(index)
    R, N, K = index.shape
    home = placement or [e // (E // R) for e in range(E)]
    places, flat, send = [], index.flatten().tolist(), [[0] * R for _ in range(R)]
    for rank in range(R):  # destination
        experts = [e for e in range(E) if home[e] == rank]
        by_source = [[(e, [i for i in range(s * N * K, (s + 1) * N * K) if flat[i] == e]) for e in experts] for s in range(R)]
        for s in range(R):
            send[s][rank] = sum(len(rows) for _, rows in by_source[s])
        if order == "rank":
            places += [i for source in by_source for _, rows in source for i in rows]
        else:
            places += [i for n in range(len(experts)) for source in by_source for i in source[n][1]]
    places += [-1] * (R * N * K - len(places))
    x = values(R, N, C, seed=seed).requires_grad_()
    received = torch.stack([x.reshape(-1, C)[i // K] if i >= 0 else torch.zeros(C, dtype=torch.float64) for i in places])
    g = values(*received.shape, seed=seed + 1)
    (received * g).sum().backward()
    attributes = {"num_experts": E, "order": order}
    place = [("placement", torch.tensor(placement), "index")] if placement else []
    counts = torch.tensor(send)
    write_case("moe_dispatch", name, attributes,
               [("x", x, "input"), ("index", index, "index"), *place, ("grad_received", g, "grad_output")],
               [("received", received, "output"), ("source", torch.tensor(places), "index"), ("send_counts", counts, "index"),
                ("receive_counts", counts.T, "index"), ("tokens_per_expert", torch.tensor([flat.count(e) for e in range(E)]), "index"),
                ("grad_x", x.grad, "grad_input")], {"grad_x": K})
    rows = values(len(places), C, seed=seed + 2).requires_grad_()
    probs = values(R, N, K, low=0, high=1, seed=seed + 3).requires_grad_()
    y = combined(rows, places, probs, R * N, K).reshape(R, N, C)
    g = values(R, N, C, seed=seed + 4)
    (y * g).sum().backward()
    write_case("moe_combine", name, attributes,
               [("expert_out", rows, "input"), ("index", index, "index"), *place, ("probs", probs, "input"), ("grad_y", g, "grad_output")],
               [("y", y, "output"), ("send_counts", counts.T, "index"), ("receive_counts", counts, "index"),
                ("grad_expert_out", rows.grad, "grad_input"), ("grad_probs", probs.grad, "grad_input")],
               {"y": K, "grad_probs": C})


choices = [[[3, 0], [1, 3], [2, -1]], [[0, 2], [3, 1], [0, 3]]]
plan("by_expert", choices, 4, 2, "expert", seed=41)
plan("by_rank", choices, 4, 2, "rank", seed=42)
plan("placed", choices, 5, 2, "expert", [1, 0, 1, 1, 0], seed=43)
plan("placed_by_rank", choices, 5, 2, "rank", [1, 0, 1, 1, 0], seed=44)


def aux_loss(name, shape, E, K, kind="micro_batch", score="softmax", coefficient=1.0, R=1, group=None, index=None,
             upstream=None, counts=None, seed=0):
    z = values(*shape, E, low=-3, high=3, seed=seed).requires_grad_()
    s = torch.softmax(z, -1) if score == "softmax" else torch.sigmoid(z)
    s = s / s.sum(-1, keepdim=True)
    chosen = torch.topk(z.detach(), K).indices if index is None else torch.tensor(index)
    n = torch.nn.functional.one_hot(chosen, E).sum(-2).to(torch.float64)
    if kind == "sequence":
        n, P, tokens, losses = n.sum(0), s.sum(0), shape[0], math.prod(shape[1:])
    else:
        n, P, tokens, losses = n.reshape(-1, E).sum(0), s.reshape(-1, E).sum(0), math.prod(shape), 1
    used = n if group is None else group
    total = tokens * tokens * (R * R if kind == "micro_batch" else R)
    loss = coefficient * E * (used * P).sum() / (K * total * losses)
    g = torch.tensor(1.0 if upstream is None else upstream, dtype=torch.float64)
    (loss * g).backward()
    attributes = {"top_k": K, "kind": kind, "score": score, "coefficient": coefficient, "group_size": R}
    optional = [("index", chosen, "index")] if index is not None else []
    optional += [("group_tokens_per_expert", group, "input")] if group is not None else []
    optional += [("grad_y", g, "grad_output")] if upstream is not None else []
    write_case("moe_aux_loss", name, attributes, [("logits", z, "input"), *optional],
               [("loss", loss, "output"), ("tokens_per_expert", n, "output"), ("grad_logits", z.grad, "grad_input")], counts)


group = torch.tensor([9.0, 4, 0, 11], dtype=torch.float64)
aux_loss("sequences", (6, 3), 4, 2, "sequence", coefficient=0.001, upstream=1.5, counts={"loss": 72, "grad_logits": 4}, seed=51)
aux_loss("sequences_sigmoid", (5, 2), 4, 1, "sequence", "sigmoid", seed=52)
aux_loss("sigmoid", (2, 4), 4, 2, score="sigmoid", upstream=-0.5, seed=53)
aux_loss("ep_group", (4,), 4, 2, "ep_group", R=3, group=group, seed=54)
aux_loss("dp_group_sigmoid", (4,), 4, 2, "dp_group", "sigmoid", R=3, group=group, seed=55)
aux_loss("micro_batch_over_tp_cp", (4,), 4, 2, R=3, group=group, coefficient=0.01, seed=56)
aux_loss("dispatched_index", (3,), 4, 2, index=[[0, 1], [1, 3], [1, 0]], seed=57)

for name, shape, coefficient, upstream in (("coefficient", (2, 3), 1e-3, -2.0), ("one_expert", (4,), 1.0, None)):
    z = values(*shape, 1 if name == "one_expert" else 5, low=-3, high=3, seed=61).requires_grad_()
    loss = coefficient * (torch.logsumexp(z, -1) ** 2).mean()
    (loss * (upstream or 1.0)).backward()
    g = [("grad_y", torch.tensor(upstream, dtype=torch.float64), "grad_output")] if upstream else []
    write_case("moe_z_loss", name, {"coefficient": coefficient}, [("logits", z, "input"), *g],
               [("loss", loss, "output"), ("grad_logits", z.grad, "grad_input")])


# Hugging Face's own code (transformers 5.14.1), in float64.
from transformers import GptOssConfig, Llama4TextConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.llama4.modeling_llama4 import Llama4TextExperts
from transformers.models.phimoe.modeling_phimoe import sparsemixer


def mixed(name, logits, jitter, drawn, seed=0):
    """A draw gives a third of some weights only: whole ones are the shares of the softmax that the gradient goes through."""
    z = logits.clone().requires_grad_()
    torch.manual_seed(seed)
    w, index = sparsemixer(z, jitter, drawn)
    g = values(*w.shape, seed=60)
    (w * g).sum().backward()
    whole, gaps = [], []
    for row, chosen in zip(logits.tolist(), index.tolist(), strict=True):
        left, shares, room = dict(enumerate(row)), [], []
        for c in chosen:
            best = max(left.values())
            behind = {e: (best - v) / max(abs(v), best) for e, v in left.items()}
            kept = {e: math.exp(v - best) for e, v in left.items() if behind[e] <= 2 * jitter}
            shares.append(kept[c] / sum(kept.values()))
            room.append(2 * jitter - behind[c])
            del left[c]
        whole.append(shares)
        gaps.append(min(room) if drawn else min(row[c] for c in chosen) - max(left.values()))
    whole = torch.tensor(whole, dtype=torch.float64)
    assert torch.allclose(w.detach(), whole) or (drawn and torch.all((w / whole - 1).abs() * (w / whole - 0.3333).abs() < 1e-6))
    attributes = {"top_k": 2, "score": "sparsemixer", "jitter": jitter, "drawn": drawn}
    write_case("router_topk", name, attributes,
               [("logits", logits, "input")] + ([("chosen", index, "index")] if drawn else []) + [("grad_weights", g, "grad_output")],
               [("weights", whole, "output"), ("index", index, "index"), ("selection_gap", torch.tensor(gaps, dtype=torch.float64), "output"),
                ("grad_logits", z.grad, "grad_input")], {"weights": 8})


near, z = values(9, 8, low=0.5, high=1, seed=71), values(5, 8, low=-4, high=4, seed=1)
mixed("sparsemixer", near, 0.125, False)
mixed("sparsemixer_of_any_sign", z, 0.4, False)
mixed("sparsemixer_drawn", near, 0.125, True, seed=4)


def dense(name, logits, top_k):
    """Llama4Router's scores, which it makes in float32."""
    z = logits.clone().requires_grad_()
    best, index = torch.topk(z, top_k, dim=1)
    w = torch.sigmoid(torch.full_like(z, -INF).scatter(1, index, best))
    g = values(*w.shape, seed=61)
    (w * g).sum().backward()
    s = torch.sigmoid(logits).sort(-1, descending=True).values
    write_case("router_topk", name, {"top_k": top_k, "score": "sigmoid", "normalize": False, "dense": True},
               [("logits", logits, "input"), ("grad_weights", g, "grad_output")],
               [("weights", w, "output"), ("index", index, "index"), ("selection_gap", s[:, top_k - 1] - s[:, top_k], "output"),
                ("grad_logits", z.grad, "grad_input")])


dense("llama4", z, 1)
dense("llama4_two", z, 2)


def experts(name, module, attributes, x, index=None, weights=None):
    """Of a module of transformers, with values for its parameters."""
    names = {"gate_up_proj": "gate_up", "down_proj": "down", "gate_up_proj_bias": "gate_up_bias", "down_proj_bias": "down_bias"}
    params = {k: values(*p.shape, seed=80 + i).requires_grad_() for i, (k, p) in enumerate(module.named_parameters())}
    leaves = [t.clone().requires_grad_() for t in (x, weights) if t is not None]
    given = leaves if index is None else [leaves[0], index, leaves[1]]
    y = torch.func.functional_call(module.double(), params, tuple(given))
    g = values(*y.shape, seed=79)
    y.backward(g)
    inputs = [(k, v, "input") for k, v in zip(("x", "weights"), leaves)] + [(names[k], p, "param") for k, p in params.items()]
    gradients = [(f"grad_{k}", v.grad, "grad_input") for k, v, _ in inputs]
    write_case("moe_experts", name, attributes,
               inputs + ([("index", index, "index")] if index is not None else []) + [("grad_y", g, "grad_output")],
               [("y", y, "output"), *gradients])


gpt_oss = GptOssExperts(GptOssConfig(hidden_size=4, intermediate_size=5, num_local_experts=3))
gpt_oss.limit = 3.0
experts("gpt_oss", gpt_oss, {"activation": "swigluoai", "limit": 3, "interleaved": True, "transposed": True},
        values(6, 4, seed=75), torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1]]), values(6, 2, low=0, high=1, seed=76))
experts("llama4", Llama4TextExperts(Llama4TextConfig(hidden_size=4, intermediate_size=3, num_local_experts=3)), {"transposed": True},
        values(6, 4, seed=77))
