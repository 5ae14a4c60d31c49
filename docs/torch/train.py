"""Trains a small decoder on random text, data-, tensor- and sequence-parallel.

    torchrun --standalone --nproc_per_node 4 train.py --dp 2 --tp 2 --sp 1 [--bug NAME]
"""
import argparse

import torch
import torch.nn.functional as F
from parallel import ColumnParallelLinear, Ranks, RowParallelLinear
from torch import nn

HIDDEN, FFN, VOCABULARY, LAYERS, TOKENS, LR, DECAY = 16, 24, 32, 2, 8, 1e-2, 0.1


class SwiGLU(nn.Module):
    def forward(self, gate, up):
        return F.silu(gate) * up


class CrossEntropy(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target, reduction="sum") / TOKENS


class Layer(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.gate, self.up = (ColumnParallelLinear(HIDDEN, FFN, ranks) for _ in range(2))
        self.swiglu, self.down = SwiGLU(), RowParallelLinear(FFN, HIDDEN, ranks)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.swiglu(self.gate(h), self.up(h)))


class Decoder(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(VOCABULARY, HIDDEN), nn.Sequential(*(Layer(ranks) for _ in range(LAYERS)))
        self.norm, self.head, self.loss = nn.RMSNorm(HIDDEN, eps=1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False), CrossEntropy()

    def forward(self, tokens, targets):
        return self.loss(self.head(self.norm(self.layers(self.embedding(tokens)))), targets)


def train(args):
    ranks = Ranks(args.dp, args.tp, args.sp, args.bug)
    model, random = Decoder(ranks), torch.Generator().manual_seed(args.seed)
    cut = {weight: getattr(module, "cut", None) for module in model.modules() for weight in module.parameters(recurse=False)}
    for weight in model.parameters():  # drawn whole, then cut: equal for every strategy
        whole = torch.randn([n * ranks.tp if d == cut[weight] else n for d, n in enumerate(weight.shape)], generator=random)
        whole = 1 + 0.1 * whole if weight.dim() == 1 else whole * whole.shape[1] ** -0.5
        weight.data = whole if cut[weight] is None else whole.chunk(ranks.tp, cut[weight])[ranks.tp_rank].contiguous()
    text = torch.randint(VOCABULARY, (args.steps, args.micro_batches, TOKENS + 1), generator=random)
    groups = [{"params": [w for w in model.parameters() if w.dim() > 1]},
              {"params": [w for w in model.parameters() if w.dim() == 1], "weight_decay": DECAY if args.bug == "norm-decay" else 0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, weight_decay=DECAY)
    for step in range(args.steps):
        for micro_batch in range(ranks.dp_rank, args.micro_batches, args.dp):
            sample = text[step, micro_batch]
            loss = model(*(ranks.own_rows(t) if args.sp else t for t in (sample[:-1], sample[1:])))
            (loss / (args.micro_batches // args.dp if args.bug == "loss-share" else args.micro_batches)).backward()
        for name, weight in model.named_parameters():
            if not (args.bug == "dp-sum" and "down" in name):
                weight.grad = ranks.total(weight.grad, "dp")
            if args.sp and cut[weight] is None and not (args.bug == "norm-gradients" and "norm" in name):
                weight.grad = ranks.total(weight.grad, "tp")
        optimizer.step()
        optimizer.zero_grad()


options = argparse.ArgumentParser()
for name, default in {"tp": 1, "sp": 0, "dp": 1, "steps": 2, "micro-batches": 4, "seed": 0}.items():
    options.add_argument(f"--{name}", type=int, default=default)
options.add_argument("--bug", default="", choices=["", "norm-gradients", "dp-sum", "row-output", "column-mean", "loss-share", "norm-decay"])
torch.set_num_threads(1)
train(options.parse_args())
torch.distributed.destroy_process_group()
