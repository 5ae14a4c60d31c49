"""A small decoder in training, which msprobe records where it is told a folder, or assay from outside.

msprobe_decoder.py [OUT LEVEL]
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

STEPS, MICRO_BATCHES, TOKENS, WORDS, WIDTH, HEADS = 2, 2, 8, 24, 16, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        # A bias of keys has no gradient but rounding errors, of which AdamW makes steps.
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask=None):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) * (width // HEADS) ** -0.5 + mask).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width)), weights


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(WIDTH, 32), nn.SiLU(), nn.Linear(32, WIDTH)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH), Mlp()
        self.scale = shared

    def forward(self, x, mask=None):
        x = x + self.scale(self.attn(self.norm1(x), mask=mask)[0])
        return x + self.scale(self.mlp(self.norm2(x)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        scale = nn.Linear(WIDTH, WIDTH, bias=False)  # four calls in each micro-batch
        self.layers = nn.ModuleList(Block(scale) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x, mask=mask)
        return self.head(x)


def debugger_of(out, level):
    from msprobe.pytorch import PrecisionDebugger

    what = {"scope": [], "list": [], "data_mode": ["all"]}
    config = {"task": "tensor", "dump_path": out, "rank": [], "step": [], "level": level, "tensor": what}
    Path(out + ".json").write_text(json.dumps(config))
    return PrecisionDebugger(config_path=out + ".json")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    debugger = debugger_of(*sys.argv[1:3]) if len(sys.argv) > 1 else None
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for tokens in torch.randint(WORDS, (STEPS, MICRO_BATCHES, 2, TOKENS + 1)):
        if debugger is not None:
            debugger.start(model)
        for batch in tokens:
            logits = model(batch[:, :-1])
            (F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / MICRO_BATCHES).backward()
        if debugger is not None:
            debugger.stop()
            debugger.step()
        optimizer.step()
        optimizer.zero_grad()


main()
