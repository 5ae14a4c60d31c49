#!/usr/bin/env python3
"""The expected losses and gradients of tests/align/replay_test.cpp: one micro-batch of every tiny preset, and of a model with
what these do not have, by PyTorch's
autograd in float64, from formulas and not from assay's code.

    python3 tests/data/replay/make.py

Of each gradient two sums are kept: of its elements, and of its elements times numbers that are drawn as the weights are.
"""
import json
import math
import tomllib
from pathlib import Path

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
SEQUENCES, LENGTH = 2, 12
HERE = Path(__file__).parent
MODELS = HERE.parents[2] / "tools" / "align" / "models"


def drawn(name, count):
    """Uniform in [-1, 1): splitmix64 (Vigna) from the FNV-1a hash of the name."""
    state = 0xcbf29ce484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1


def initial(name, shape):
    """A parameter before the first step."""
    x = drawn(name, math.prod(shape))
    if "norm" in name:
        x = 1 + 0.1 * x
    elif name.endswith("bias"):
        x = 0.05 * x
    elif not name.startswith("model.embed_tokens"):
        x = x * math.sqrt(3 / shape[-1])
    return torch.from_numpy(x.reshape(shape))


def drawn_for(what, number, count):
    return drawn(what if number == 0 else f"{what} of micro-batch {number}", count)


def stream_of(vocabulary, number=0):
    """[sequences, length + 1]: tokens, and the last target. Token l of sequence s is drawn at l SEQUENCES + s."""
    tokens = np.abs(drawn_for("tokens", number, SEQUENCES * (LENGTH + 1))) * vocabulary
    return torch.from_numpy((tokens.astype(np.int64) % vocabulary).reshape(LENGTH + 1, SEQUENCES).T.copy())


def prompts(part, number):
    """Of each sequence how many tokens at its beginning have no target."""
    return torch.from_numpy((np.abs(drawn_for("prompts", number, SEQUENCES)) * part * (LENGTH + 1)).astype(np.int64))


class Step:
    def __init__(self, model, number=0, prompt=0.0, parameters=None):
        self.m, self.losses, self.loads = model, {}, {}
        self.parameters = {} if parameters is None else parameters
        self.number, self.prompts = number, prompts(prompt, number)
        self.a, self.rope = model["attention"], model.get("rope", {})
        self.moe, self.extra = model["moe"], model.get("losses", {})

    def parameter(self, name, *shape):
        if name not in self.parameters:
            self.parameters[name] = initial(name, shape).requires_grad_()
        return self.parameters[name]

    def linear(self, module, x, out):
        return x @ self.parameter(module + ".weight", out, x.shape[-1]).T

    def norm(self, module, x, eps=0):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + (eps or self.m["norm_eps"]))
        return x * scale * self.parameter(module + ".weight", x.shape[-1])

    def rotate(self, x):
        """x: [.., length, size]."""
        size, factor = x.shape[-1], self.rope.get("factor", 1)
        inverse = self.rope["theta"] ** (-torch.arange(0, size, 2) / size)
        scale = 1.0
        if factor > 1:
            original = self.rope["original_positions"]

            def turns(n):
                return size * math.log(original / (2 * math.pi * n)) / (2 * math.log(self.rope["theta"]))

            low = max(math.floor(turns(self.rope.get("beta_fast", 32))), 0)
            high = min(math.ceil(turns(self.rope.get("beta_slow", 1))), size - 1)
            high += 0.001 if low == high else 0
            ramp = ((torch.arange(size // 2) - low) / (high - low)).clamp(0, 1)
            inverse = inverse / factor * ramp + inverse * (1 - ramp)
            scale = self.mscale("mscale", 1) / self.mscale("mscale_all_dim", 0)
        angle = torch.arange(x.shape[-2])[:, None] * inverse
        cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
        if self.rope.get("interleaved", False):
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        a, b = x[..., :size // 2], x[..., size // 2:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def mscale(self, key, otherwise):
        factor = self.rope.get("factor", 1)
        return 1.0 if factor <= 1 else 0.1 * self.rope.get(key, otherwise) * math.log(factor) + 1

    def attend(self, q, k, v):
        """[sequences, heads, length, size], queries of a group of heads on one head of keys."""
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * self.mscale("mscale_all_dim", 0)**2 / math.sqrt(q.shape[-1])
        future = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        return torch.softmax(scores.masked_fill(future, -math.inf), -1) @ v

    def heads(self, x, count):
        return x.reshape(SEQUENCES, LENGTH, count, -1).transpose(1, 2)

    def attention(self, module, x):
        a, heads = self.a, self.a["heads"]
        if a["kind"] == "gqa":
            q, k, v = (self.heads(self.linear(f"{module}.{n}_proj", x, c * a["head_dim"]), c)
                       for n, c in (("q", heads), ("k", a["kv_heads"]), ("v", a["kv_heads"])))
            if a.get("qk_norm", False):
                q, k = self.norm(module + ".q_norm", q), self.norm(module + ".k_norm", k)
            out = self.attend(self.rotate(q), self.rotate(k), v)
        else:
            nope, rope, value, eps = a["nope_dim"], a["rope_dim"], a["value_dim"], a.get("latent_norm_eps", 0)
            if a.get("q_rank", 0) > 0:
                q = self.norm(module + ".q_a_layernorm", self.linear(module + ".q_a_proj", x, a["q_rank"]), eps)
                q = self.linear(module + ".q_b_proj", q, heads * (nope + rope))
            else:
                q = self.linear(module + ".q_proj", x, heads * (nope + rope))
            q = self.heads(q, heads)
            kv = self.linear(module + ".kv_a_proj_with_mqa", x, a["kv_rank"] + rope)
            latent, key = kv.split((a["kv_rank"], rope), -1)
            latent = self.norm(module + ".kv_a_layernorm", latent, eps)
            keys, values = self.heads(self.linear(module + ".kv_b_proj", latent, heads * (nope + value)),
                                      heads).split((nope, value), -1)
            key = self.rotate(self.heads(key, 1)).expand(-1, heads, -1, -1)
            q = torch.cat((q[..., :nope], self.rotate(q[..., nope:])), -1)
            out = self.attend(q, torch.cat((keys, key), -1), values)
        out = out.transpose(1, 2).reshape(SEQUENCES, LENGTH, -1)
        return self.linear(module + ".o_proj", out, x.shape[-1])

    def feed_forward(self, module, x, size):
        gate, up = (self.linear(f"{module}.{n}_proj", x, size) for n in ("gate", "up"))
        return self.linear(module + ".down_proj", torch.nn.functional.silu(gate) * up, x.shape[-1])

    def route(self, module, logits):
        moe, k = self.moe, self.moe["top_k"]
        scores = torch.sigmoid(logits) if moe["score"] == "sigmoid" else torch.softmax(logits, -1)
        choice = scores.detach()
        if moe.get("bias_rate", 0) > 0:
            choice = choice + self.parameter(module + ".gate.e_score_correction_bias", moe["experts"]).detach()
        if moe.get("groups", 0) > 0:
            grouped = choice.unflatten(-1, (moe["groups"], -1))
            best = grouped.topk(2, -1).values.sum(-1).topk(moe["top_groups"], -1).indices
            allowed = torch.zeros(grouped.shape[:-1], dtype=torch.bool).scatter(-1, best, True)
            choice = grouped.masked_fill(~allowed[..., None], -math.inf).flatten(-2)
        index = choice.topk(k, -1).indices
        weights = scores.gather(-1, index)
        if moe["score"] == "softmax_of_chosen":
            weights = torch.softmax(logits.gather(-1, index), -1)
        elif moe.get("normalize", True):
            weights = weights / weights.sum(-1, keepdim=True)
        return weights * moe.get("scale", 1.0), index, scores

    def balance(self, module, scores, index):
        """E / (K tokens^2) sum_e n_e P_e of each sequence, or of all tokens as one."""
        experts, k = self.moe["experts"], self.moe["top_k"]
        if self.moe["score"] == "sigmoid":
            scores = scores / scores.sum(-1, keepdim=True)
        if self.extra["balance"] != "sequence":
            scores, index = scores.reshape(1, -1, experts), index.reshape(1, -1, k)
        counts = torch.nn.functional.one_hot(index, experts).sum((1, 2))
        tokens = scores.shape[1]
        self.losses[module + ".balance"] = ((counts * scores.sum(1)).sum(-1) * experts / (k * tokens**2)).mean()

    def mixture(self, module, x):
        moe, experts = self.moe, self.moe["experts"]
        logits = self.linear(module + ".gate", x, experts)
        weights, index, scores = self.route(module, logits)
        self.loads[module] = torch.nn.functional.one_hot(index, experts).sum((0, 1, 2)).double()
        if self.extra.get("balance", "none") != "none":
            self.balance(module, scores, index)
        if self.extra.get("z_weight", 0) > 0:
            self.losses[module + ".z"] = torch.logsumexp(logits, -1).pow(2).mean()
        w = {n: self.parameter(f"{module}.experts.*.{n}_proj.weight", experts, *shape) for n, shape in
             (("gate", (moe["ffn"], x.shape[-1])), ("up", (moe["ffn"], x.shape[-1])), ("down", (x.shape[-1], moe["ffn"])))}
        # every expert on every token, and only the chosen ones weighed
        hidden = torch.nn.functional.silu(torch.einsum("slh,efh->slef", x, w["gate"]))
        hidden = hidden * torch.einsum("slh,efh->slef", x, w["up"])
        outputs = torch.einsum("slef,ehf->sleh", hidden, w["down"])
        dense = torch.zeros(*x.shape[:-1], experts).scatter(-1, index, weights)
        y = torch.einsum("sle,sleh->slh", dense, outputs)
        if moe.get("shared_experts", 0) > 0:
            shared = self.feed_forward(module + ".shared_experts", x, moe["shared_experts"] * moe["ffn"])
            if moe.get("shared_gate", False):
                shared = shared * torch.sigmoid(self.linear(module + ".shared_expert_gate", x, 1))
            y = y + shared
        return y

    def layer(self, k, with_experts, x):
        module, sandwich = f"model.layers.{k}", self.m.get("sandwich_norm", False)
        y = self.attention(module + ".self_attn", self.norm(module + ".input_layernorm", x))
        if sandwich:
            y = self.norm(module + ".post_attention_layernorm", y)
        x = x + y
        y = self.norm(module + (".pre_mlp_layernorm" if sandwich else ".post_attention_layernorm"), x)
        y = self.mixture(module + ".mlp", y) if with_experts else self.feed_forward(module + ".mlp", y, self.m["dense_ffn"])
        if sandwich:
            y = self.norm(module + ".post_mlp_layernorm", y)
        return x + y

    def head(self, x, targets):
        name = "model.embed_tokens" if self.m.get("tied_embeddings", False) else "lm_head"
        logits = x @ self.parameter(name + ".weight", self.m["vocabulary"], self.m["hidden"]).T
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def run(self):
        """The losses of targets, and those of routers."""
        vocabulary, layers = self.m["vocabulary"], self.m["layers"]
        # further ones are rolled: behind them tokens are 0, and targets count in no loss
        stream = stream_of(vocabulary, self.number)

        def rolled(stream, shift, behind):
            out = torch.full((SEQUENCES, LENGTH), behind)
            part = stream[:, shift:shift + LENGTH]
            out[:, :part.shape[1]] = part
            return out

        def tokens(shift):
            return rolled(stream[:, :LENGTH], shift, 0)

        def targets(shift):
            prompt = torch.arange(LENGTH) + shift < self.prompts[:, None]
            return rolled(stream, shift + 1, -100).masked_fill(prompt, -100)

        def embed(ids):
            return self.parameter("model.embed_tokens.weight", vocabulary, self.m["hidden"])[ids]

        x = embed(tokens(0))
        for k in range(layers):
            x = self.layer(k, k >= self.m.get("dense_layers", 0), x)
        x = self.norm("model.norm", x)
        self.valid_targets = (targets(0) != -100).sum().item()
        total = self.losses["cross_entropy"] = self.head(x, targets(0))
        depth = self.extra.get("mtp_depth", 0)
        for k in range(1, depth + 1):
            module = f"model.layers.{layers + k - 1}"
            both = torch.cat((self.norm(module + ".enorm", embed(tokens(k))), self.norm(module + ".hnorm", x)), -1)
            x = self.layer(layers + k - 1, True, self.linear(module + ".eh_proj", both, self.m["hidden"]))
            x = self.norm(module + ".shared_head.norm", x)
            self.losses[module + ".shared_head"] = self.head(x, targets(k))
            total = total + self.extra["mtp_weight"] / depth * self.losses[module + ".shared_head"]
        routers = sum(self.extra[kind + "_weight"] * loss for name, loss in self.losses.items()
                      for kind in ("balance", "z") if name.endswith("." + kind))
        return total, routers

    def update(self):
        """AdamW after clipping, vectors without decay; the routers' biases follow their experts' loads."""
        with torch.no_grad():
            for module, load in self.loads.items():
                bias = self.parameters.get(module + ".gate.e_score_correction_bias")
                if bias is not None:
                    bias += self.moe["bias_rate"] * torch.sign(load.mean() - load)
        learnt = [p for p in self.parameters.values() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        torch.optim.AdamW([{"params": [p for p in learnt if p.dim() > 1], "weight_decay": 0.1},
                           {"params": [p for p in learnt if p.dim() == 1], "weight_decay": 0.0}],
                          lr=1e-3, betas=(0.9, 0.95), eps=1e-8).step()
        return norm.item()


def sums(name, values):
    values = values.detach().numpy().ravel()
    return [float(values.sum()), float(values @ drawn(name, values.size)), float(np.abs(values).sum())]


def main():
    expected = {}
    for path in [*sorted(MODELS.glob("*-tiny.toml")), HERE.parent / "models" / "everything.toml"]:
        step = Step(tomllib.loads(path.read_text()))
        total = sum(step.run())
        total.backward()
        gradients = {name: sums("gradient of " + name, p.grad) for name, p in step.parameters.items()
                     if p.grad is not None}
        norm = step.update()
        updated = {name: sums("gradient of " + name, p) for name, p in step.parameters.items()}
        expected[path.stem] = {"total": total.item(), "losses": {k: v.item() for k, v in step.losses.items()},
                               "gradients": gradients, "norm": norm, "updated": updated}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
