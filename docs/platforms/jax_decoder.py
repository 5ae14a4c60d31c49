"""decoder.py in JAX, from the weights and the text that it left: an example of training moved to another platform.

    XLA_FLAGS=--xla_allow_excess_precision=false python3 jax_decoder.py --checkpoint start.safetensors --dump jax [--eps 1e-6]
"""
import argparse

import jax
import jax.numpy as jnp
import optax
from jax_record import Recorder
from safetensors.flax import load_file

HEADS, LAYERS, STEPS, MICRO_BATCHES, LR, DECAY = 4, 2, 2, 2, 1e-3, 0.1


def embed(weight, input):
    return weight[input]


def linear(weight, input):
    return input @ weight.T


def rms_norm(weight, input, eps):
    x = input.astype(jnp.float32)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight.astype(jnp.float32)).astype(input.dtype)


def attention(q, k, v):  # [sequences, heads, tokens, channels]
    heads_last = [x.swapaxes(1, 2) for x in (q, k, v)]
    return jax.nn.dot_product_attention(*heads_last, is_causal=True).swapaxes(1, 2)


def swiglu(gate, up):
    return jax.nn.silu(gate) * up


def cross_entropy(logits, target):
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), target).mean()


def loss_of(weights, tape, tokens, targets, eps):
    def call(module, op, function, **inputs):
        weight = weights.get(f"{module}.weight")
        return tape(module, op, function, {} if weight is None else {"weight": weight}, **inputs)

    def norm(module, x):
        return call(module, "RMSNorm", lambda weight, input: rms_norm(weight, input, eps), input=x)

    def heads(x):
        return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)

    x = call("embedding", "Embedding", embed, input=tokens) + call("positions", "Embedding", embed, input=jnp.arange(tokens.shape[1]))
    for n in range(LAYERS):
        at = f"layers.{n}"
        h = norm(f"{at}.norm", x)
        q, k, v = (heads(call(f"{at}.{name}", "Linear", linear, input=h)) for name in "qkv")
        y = call(f"{at}.attention", "Attention", attention, q=q, k=k, v=v)
        x = x + call(f"{at}.o", "Linear", linear, input=y.swapaxes(1, 2).reshape(x.shape))
        h = norm(f"{at}.mlp_norm", x)
        gate, up = (call(f"{at}.{name}", "Linear", linear, input=h) for name in ("gate", "up"))
        x = x + call(f"{at}.down", "Linear", linear, input=call(f"{at}.swiglu", "SwiGLU", swiglu, gate=gate, up=up))
    logits = call("head", "Linear", linear, input=norm("norm", x))
    return call("loss", "CrossEntropy", cross_entropy, logits=logits.reshape(-1, logits.shape[-1]), target=targets.reshape(-1))


def train(args):
    weights = load_file(args.checkpoint)
    text = weights.pop("text")
    optimizer = optax.adamw(LR, weight_decay=DECAY)
    state = optimizer.init(weights)
    recorder = Recorder(args.dump, {"lr": LR, "weight_decay": DECAY})
    for step in range(STEPS):
        recorder.begin(step, weights)
        total = None
        for micro_batch in range(MICRO_BATCHES):
            sample = text[step, micro_batch]
            _, gradient = recorder.run(loss_of, weights, micro_batch, sample[:, :-1], sample[:, 1:], args.eps, scale=1 / MICRO_BATCHES)
            total = gradient if total is None else jax.tree.map(jnp.add, total, gradient)
        updates, state = optimizer.update(total, state, weights)
        weights = optax.apply_updates(weights, updates)
        recorder.end(total, weights, {"exp_avg": state[0].mu, "exp_avg_sq": state[0].nu})
    recorder.save()


options = argparse.ArgumentParser()
options.add_argument("--checkpoint", required=True)
options.add_argument("--dump", required=True)
options.add_argument("--eps", type=float, default=1e-5)
train(options.parse_args())
