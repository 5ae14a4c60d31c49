"""A decoder with a mixture of experts in plain JAX and optax, over devices of one process. Of assay it knows one call.

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python3 jax_moe.py --dp 4 --ep 2 --dump dump

All of it is written for the whole batch (a global view), and jit cuts it as the arrays lie. Experts have a place for
each token, empty if it did not choose them: capacity without a limit. With --exchange they are in shard_map, and
all_to_all takes the places to them. BUG plants one of: normalisation, places, router.
"""

import argparse
import os

import assay.jax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HEADS, WORDS, SAMPLES, TOKENS, EXPERTS, CHOSEN, HIDDEN = 2, 32, 4, 64, 8, 16, 4, 2, 48
BUG = os.environ.get("BUG", "")


def start(seed, dtype):
    """Drawn with numpy, whatever the devices are."""
    draw = np.random.default_rng(seed)

    def matrix(*shape):
        return (draw.standard_normal(shape) * shape[-2] ** -0.5).astype(np.float32).astype(dtype)

    layers = {}
    for i in range(LAYERS):
        layers[f"layers_{i}"] = {
            "attention_norm": {"scale": np.ones(WIDTH, dtype)},
            "attention": {name: {"kernel": matrix(WIDTH, WIDTH)} for name in "qkvo"},
            "moe_norm": {"scale": np.ones(WIDTH, dtype)},
            "moe": {
                "router": {"kernel": matrix(WIDTH, EXPERTS)},
                "experts": {name: matrix(EXPERTS, WIDTH, HIDDEN) for name in ("gate", "up")}
                | {"down": matrix(EXPERTS, HIDDEN, WIDTH)},
            },
        }
    ends = {"embedding": {"table": matrix(WORDS, WIDTH)}, "norm": {"scale": np.ones(WIDTH, dtype)}}
    return ends | layers | {"head": {"kernel": matrix(WIDTH, WORDS)}}


def norm(name, weights, x):
    with jax.named_scope(name):
        wide = x.astype(jnp.float32)
        y = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
        return (y * weights["scale"].astype(jnp.float32)).astype(x.dtype)


def linear(name, weights, x):
    with jax.named_scope(name):
        return x @ weights["kernel"]


def attention(weights, x):
    with jax.named_scope("attention"):
        q, k, v = (linear(name, weights[name], x).reshape(*x.shape[:2], HEADS, -1) for name in "qkv")
        scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) * (WIDTH // HEADS) ** -0.5
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        p = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1).astype(x.dtype)
        y = jnp.einsum("bhts,bshd->bthd", p, v).reshape(x.shape)
        return linear("o", weights["o"], y)


def route(weights, x):
    """The experts of each token and their weights."""
    with jax.named_scope("router"):
        logits = x.astype(jnp.float32) @ weights["kernel"].astype(jnp.float32)
        chosen, index = jax.lax.top_k(jax.nn.softmax(logits, axis=-1), CHOSEN)
        if BUG == "normalisation":
            return chosen, index
        return chosen / chosen.sum(-1, keepdims=True), index


def experts(weights, x, swap):
    """swap: takes places to the devices of their experts, and back."""
    with jax.named_scope("experts"):
        x = swap(x, to_experts=True)
        h = jax.nn.silu(jnp.einsum("ecm,emf->ecf", x, weights["gate"])) * jnp.einsum("ecm,emf->ecf", x, weights["up"])
        return swap(jnp.einsum("ecf,efm->ecm", h, weights["down"]), to_experts=False)


def moe(weights, x, swap=lambda x, to_experts: x):
    """Of the tokens of one device, or of all of them."""
    tokens = x.reshape(-1, WIDTH)
    probabilities, index = route(weights["router"], tokens)
    picks = jax.nn.one_hot(index, EXPERTS, dtype=x.dtype)  # [N, K, E]
    rows = jnp.einsum("nke,nm->enm", picks, tokens)
    made = experts(weights["experts"], rows, swap)
    if BUG == "places":
        made = jnp.roll(made, 1, axis=1)
    return jnp.einsum("nke,nk,enm->nm", picks, probabilities.astype(x.dtype), made).reshape(x.shape)


def exchanging(mesh):
    """The same on each device with its own tokens and its own experts."""

    def swap(x, to_experts):
        split, joined = (0, 1) if to_experts else (1, 0)
        return jax.lax.all_to_all(x, "ep", split, joined, tiled=True)

    @jax.custom_vjp
    def unsummed(x):  # BUG=router: as if each device had its own
        return jax.lax.pcast(x, ("dp", "ep"), to="varying")

    unsummed.defvjp(lambda x: (unsummed(x), None), lambda _, g: (jax.lax.pmean(g, ("dp", "ep")),))

    def body(weights, x):
        if BUG == "router":
            weights = weights | {"router": jax.tree.map(unsummed, weights["router"])}
        return moe(weights, x, swap)

    cut = {"router": {"kernel": P()}, "experts": P("ep")}
    rows = P(("dp", "ep"))
    return jax.shard_map(body, mesh=mesh, in_specs=(cut, rows), out_specs=rows)


def loss_of(weights, tokens, targets, mix):
    with jax.named_scope("embedding"):
        x = weights["embedding"]["table"][tokens]
    for i in range(LAYERS):
        with jax.named_scope(f"layers_{i}"):
            layer = weights[f"layers_{i}"]
            x = x + attention(layer["attention"], norm("attention_norm", layer["attention_norm"], x))
            h = norm("moe_norm", layer["moe_norm"], x)
            with jax.named_scope("moe"):
                x = x + mix(layer["moe"], h)
    logits = linear("head", weights["head"], norm("norm", weights["norm"], x)).astype(jnp.float32)
    with jax.named_scope("loss"):
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--dp", type=int, default=1, help="devices")
    parser.add_argument("--ep", type=int, default=1, help="of these, that have different experts")
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--exchange", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    devices = np.array(jax.devices()[: options.dp])
    mesh = Mesh(devices.reshape(options.dp // options.ep, options.ep), ("dp", "ep"))
    weights = start(options.seed, jnp.dtype(options.dtype))

    def lies(path, x):
        is_expert = any(getattr(k, "key", "") == "experts" for k in path)
        return jax.device_put(x, NamedSharding(mesh, P("ep") if is_expert else P()))

    weights = jax.tree_util.tree_map_with_path(lies, weights)
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = optimizer.init(weights)
    mix = exchanging(mesh) if options.exchange else moe

    def step(weights, state, tokens, targets):
        loss, grads = jax.value_and_grad(loss_of)(weights, tokens, targets, mix)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state, loss, grads

    settings = {"lr": 0.1, "momentum": 0.9}
    step = assay.jax.record(
        jax.jit(step),
        out=options.dump,
        results=("params", "states", "loss", "grads"),
        steps="0-",
        functions=options.functions,
        settings=settings,
    )
    text = np.random.default_rng(options.seed).integers(WORDS, size=(options.steps, SAMPLES, TOKENS + 1))
    batch = NamedSharding(mesh, P(("dp", "ep")))
    for sample in text.astype(np.int32):
        tokens, targets = (jax.device_put(x, batch) for x in (sample[:, :-1], sample[:, 1:]))
        weights, state, loss, _ = step(weights, state, tokens, targets)
        print(f"loss {loss:.6f}")


if __name__ == "__main__":
    main()
