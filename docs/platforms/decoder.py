"""A small decoder in PyTorch, trained on random text and recorded for assay; jax_decoder.py is the same in JAX.

    python3 decoder.py --dump eager [--attention sdpa] [--dtype bfloat16] [--checkpoint start.safetensors]
"""
import argparse

import assay.torch
import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HIDDEN, HEADS, FFN, VOCABULARY, LAYERS, TOKENS = 64, 4, 96, 128, 2, 24
STEPS, MICRO_BATCHES, SEQUENCES, EPS, LR, DECAY = 2, 2, 2, 1e-5, 1e-3, 0.1


class Attention(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, q, k, v):  # [sequences, heads, tokens, channels]
        if self.how == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).masked_fill(future, float("-inf"))
        return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


class SwiGLU(nn.Module):
    def forward(self, gate, up):
        return F.silu(gate) * up


class CrossEntropy(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits.float(), target)


class Layer(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.norm, self.mlp_norm = nn.RMSNorm(HIDDEN, eps=EPS), nn.RMSNorm(HIDDEN, eps=EPS)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.attention, self.swiglu = Attention(how), SwiGLU()
        self.gate, self.up = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        h = self.norm(x)
        heads = [linear(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for linear in (self.q, self.k, self.v)]
        x = x + self.o(self.attention(*heads).transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        return x + self.down(self.swiglu(self.gate(h), self.up(h)))


class Decoder(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(TOKENS, HIDDEN)
        self.layers = nn.ModuleList(Layer(how) for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN, eps=EPS), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.loss = CrossEntropy()

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions(torch.arange(TOKENS))
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def train(args):
    random = numpy.random.default_rng(0)  # torch's random numbers depend on the vector unit
    model = Decoder(args.attention)
    with torch.no_grad():
        for weight in model.parameters():
            drawn = torch.from_numpy(random.standard_normal(weight.shape))
            weight.copy_(1 + 0.1 * drawn if weight.dim() == 1 else drawn * HIDDEN**-0.5)
    model.to(getattr(torch, args.dtype))
    text = torch.from_numpy(random.integers(VOCABULARY, size=(STEPS, MICRO_BATCHES, SEQUENCES, TOKENS + 1)))
    if args.checkpoint:
        save_file({name: w.detach() for name, w in model.named_parameters()} | {"text": text}, args.checkpoint)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    recorder = assay.torch.record(model, out=args.dump)
    for step in range(STEPS):
        for micro_batch in range(MICRO_BATCHES):
            sample = text[step, micro_batch]
            loss = model(sample[:, :-1], sample[:, 1:])
            (loss / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
    recorder.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--dump", required=True)
    options.add_argument("--attention", default="eager", choices=["eager", "sdpa"])
    options.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    options.add_argument("--checkpoint", help="gets the weights and the text, for another platform")
    train(options.parse_args())
