"""Trains a small decoder on random text, data-, tensor- and sequence-parallel, and records it for assay.

    torchrun --standalone --nproc_per_node 4 train.py --dp 2 --tp 2 --sp 1 --dump dump [--bug NAME]
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from record import Recorder
from torch import nn

HIDDEN, FFN, VOCABULARY, LAYERS, TOKENS, LR, DECAY = 16, 24, 32, 2, 8, 1e-2, 0.1
BUGS = ["", "norm-gradients", "dp-sum", "row-output", "column-mean", "loss-share", "norm-decay"]

options = argparse.ArgumentParser()
for name, default in {"tp": 1, "sp": 0, "dp": 1, "steps": 2, "micro-batches": 4, "seed": 0}.items():
    options.add_argument(f"--{name}", type=int, default=default)
options.add_argument("--dump")
options.add_argument("--bug", choices=BUGS, default="")
args = options.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (args.dp, args.tp), mesh_dim_names=("dp", "tp"))
dp_rank, tp_rank = mesh.get_coordinate()


def total(x, axis):
    x = x.clone()
    dist.all_reduce(x, group=mesh.get_group(axis))
    return x


def all_rows(x):
    rows = [torch.empty_like(x) for _ in range(args.tp)]
    dist.all_gather(rows, x.contiguous(), group=mesh.get_group("tp"))
    return torch.cat(rows)


def own_rows(x):
    return x.chunk(args.tp)[tp_rank].contiguous()


class Enter(torch.autograd.Function):  # where each rank has columns of its own; Megatron's f
    @staticmethod
    def forward(ctx, x):
        return all_rows(x) if args.sp else x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = total(grad, "tp") / (args.tp if args.bug == "column-mean" else 1)
        return own_rows(grad) if args.sp else grad


class Leave(torch.autograd.Function):  # Megatron's g
    @staticmethod
    def forward(ctx, x):
        x = x.clone() if args.bug == "row-output" else total(x, "tp")
        return own_rows(x) if args.sp else x

    @staticmethod
    def backward(ctx, grad):
        return all_rows(grad) if args.sp else grad


class ColumnParallelLinear(nn.Linear):
    def forward(self, x):
        return super().forward(Enter.apply(x))


class RowParallelLinear(nn.Linear):
    def forward(self, x):
        return Leave.apply(super().forward(x))


class SwiGLU(nn.Module):
    def forward(self, gate, up):
        return F.silu(gate) * up


class CrossEntropy(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target, reduction="sum") / TOKENS


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.gate, self.up = (ColumnParallelLinear(HIDDEN, FFN // args.tp, bias=False) for _ in range(2))
        self.swiglu, self.down = SwiGLU(), RowParallelLinear(FFN // args.tp, HIDDEN, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.swiglu(self.gate(h), self.up(h)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(VOCABULARY, HIDDEN), nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm, self.head, self.loss = nn.RMSNorm(HIDDEN, eps=1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False), CrossEntropy()

    def forward(self, tokens):
        tokens, target = (own_rows(t) if args.sp else t for t in (tokens[:-1], tokens[1:]))
        return self.loss(self.head(self.norm(self.layers(self.embedding(tokens)))), target)


def cut_dimension(weight):  # over tp
    return {"gate": 0, "up": 0, "down": 1}.get(weight.split(".")[-2])


# How tensors lie on the ranks of tp: weights and columns of the MLP are cut; the rest is equal, or with sp cut by tokens.
ROWS, COLUMNS, ADDENDS = {"tp": "Shard(dim=0)"}, {"tp": "Shard(dim=1)"}, {"tp": "Partial(sum)"}
LAYOUT = {"*.gate weight": ROWS, "*.up weight": ROWS, "*.down weight": COLUMNS,
          "*.gate output": COLUMNS, "*.up output": COLUMNS, "*.swiglu *put": COLUMNS, "*.down input": COLUMNS}
if args.sp:
    LAYOUT |= {"loss output": ADDENDS, "loss loss": ADDENDS, "* input": ROWS, "* output": ROWS}

model = Decoder()
random = torch.Generator().manual_seed(args.seed)
for name, weight in model.named_parameters():  # drawn whole, then cut: equal for every strategy
    cut = cut_dimension(name)
    whole = [n * args.tp if d == cut else n for d, n in enumerate(weight.shape)]
    whole = torch.randn(whole, generator=random) * (0.1 if weight.dim() == 1 else whole[-1] ** -0.5) + (weight.dim() == 1)
    weight.data = whole if cut is None else whole.chunk(args.tp, cut)[tp_rank].contiguous()
text = torch.randint(VOCABULARY, (args.steps, args.micro_batches, TOKENS + 1), generator=random)

decay = {True: [], False: []}
for weight in model.parameters():
    decay[weight.dim() > 1 or args.bug == "norm-decay"].append(weight)
optimizer = torch.optim.AdamW([{"params": decay[True]}, {"params": decay[False], "weight_decay": 0}], lr=LR, weight_decay=DECAY)
recorder = Recorder(args.dump, mesh, model, LAYOUT, {"lr": LR, "weight_decay": DECAY, "seed": args.seed})

for step in range(args.steps):
    recorder.begin(step)
    for micro_batch in range(dp_rank, args.micro_batches, args.dp):
        recorder.micro_batch = micro_batch
        loss = model(text[step, micro_batch]) 
        recorder.loss(loss)
        (loss / (args.micro_batches // args.dp if args.bug == "loss-share" else args.micro_batches)).backward()
    recorder.gradients(addends=["dp", "tp"] if args.sp else ["dp"])
    for name, weight in model.named_parameters():
        if args.bug != "dp-sum" or "down" not in name:
            weight.grad = total(weight.grad, "dp")
        if args.sp and cut_dimension(name) is None and not (args.bug == "norm-gradients" and "norm" in name):
            weight.grad = total(weight.grad, "tp")
    recorder.gradients()
    optimizer.step()
    recorder.end(optimizer)
    optimizer.zero_grad()
recorder.save()
dist.destroy_process_group()
