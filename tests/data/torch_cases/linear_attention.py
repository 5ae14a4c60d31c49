"""Cases of linear_attention: the recurrence in matrix form, S_t = A_t S_(t-1) + k_t w_t^T with
A_t = (I - beta_t k_t k_t^T) diag(exp(decay_t)) and w_t = beta_t v_t, with PyTorch's autograd."""
import torch

from case import values, write_case


def recur(q, k, v, past, decay, beta, scale):
    """q [T, D], k [T, D], v [T, V] of one head, decay [T, D] or None, beta [T] or None."""
    S, out = past, []
    eye = torch.eye(q.shape[-1], dtype=torch.float64)
    for t in range(len(q)):
        A = eye if beta is None else eye - beta[t] * torch.outer(k[t], k[t])
        if decay is not None:
            A = A @ torch.diag(torch.exp(decay[t]))
        S = A @ S + torch.outer(k[t], v[t] if beta is None else beta[t] * v[t])
        out.append(scale * (S.T @ q[t]))
    return torch.stack(out), S


def case(name, B, T, heads, D, V, rule=None, decay=None, beta=0, past=False, scale=None, packed=False, last=False,
         counts=None, seed=0):
    """heads: of q, k and v. decay: "head" or "channel". beta: how many heads it has."""
    H, K, G = heads
    make = lambda n, *shape, low=-1, high=1: values(*shape, low=low, high=high, seed=seed * 16 + n).requires_grad_()
    inputs = {"q": make(0, B, T, H, D), "k": make(1, B, T, K, D), "v": make(2, B, T, G, V)}
    if past:
        inputs["past_state"] = make(3, B, G, D, V)
    if decay:
        inputs["decay"] = make(4, B, T, G, *((D,) if decay == "channel" else ()), low=-2, high=0)
    if beta:
        inputs["beta"] = make(5, B, T, beta, low=0, high=1)
    O = max(H, G)
    outs, states = [], []
    for b in range(B):
        for o in range(O):
            g = o * G // O
            gate = None
            if decay:
                gate = inputs["decay"][b, :, g]
                gate = gate if decay == "channel" else gate[:, None].expand(T, D)
            out, S = recur(inputs["q"][b, :, o * H // O], inputs["k"][b, :, g * K // G], inputs["v"][b, :, g],
                           inputs["past_state"][b, g] if past else torch.zeros(D, V, dtype=torch.float64), gate,
                           inputs["beta"][b, :, g if beta > 1 else 0] if beta else None, scale or D ** -0.5)
            outs.append(out)
            if o * G % O == 0:
                states.append(S)
    out = torch.stack(outs).reshape(B, O, T, V).transpose(1, 2)
    state = torch.stack(states).reshape(B, G, D, V)
    g_out, g_state = make(6, B, T, O, V), make(7, B, G, D, V)
    ((out * g_out).sum() + ((state * g_state).sum() if last else 0)).backward()
    attributes = {}
    if rule:
        attributes["update_rule"] = rule
    if scale:
        attributes["scale"] = scale
    if packed:
        attributes |= {"q_num_heads": H, "kv_num_heads": G}
    flat = lambda n, x: x.flatten(2) if packed and n in ("q", "k", "v", "decay", "out") else x
    written = [(n, flat(n, x), "input") for n, x in inputs.items()] + [("grad_out", flat("out", g_out), "grad_output")]
    if last:
        written.append(("grad_present_state", g_state, "grad_output"))
    outputs = [("out", flat("out", out), "output"), ("present_state", state, "output")]
    outputs += [("grad_" + n, flat(n, x.grad), "grad_input") for n, x in inputs.items()]
    write_case("linear_attention", name, attributes, written, outputs, counts)


case("linear", 2, 4, (2, 2, 2), 3, 2, "linear", last=True, seed=1, counts={"out": 3 + 4, "present_state": 4})
case("gated_head_mqa", 1, 4, (3, 1, 1), 3, 2, "gated", decay="head", past=True, last=True, seed=2)
case("gated_channel_packed", 2, 3, (4, 2, 2), 3, 2, "gated", decay="channel", packed=True, past=True, seed=3)
case("gated_head_packed", 1, 3, (2, 2, 2), 3, 2, decay="head", packed=True, seed=4)
case("delta_more_values", 1, 4, (1, 1, 2), 3, 2, "delta", beta=2, scale=0.5, last=True, seed=5)
case("delta_one_beta", 1, 3, (2, 2, 2), 2, 3, beta=1, past=True, seed=6)
case("gated_delta", 2, 4, (2, 2, 4), 3, 2, "gated_delta", decay="head", beta=4, past=True, last=True, seed=7)
case("gated_delta_channel", 1, 3, (2, 1, 2), 3, 2, decay="channel", beta=2, past=True, last=True, seed=8)
