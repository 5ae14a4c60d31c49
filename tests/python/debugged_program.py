"""A small decoder in training under PyTorch's DebugMode; test_debug_mode.py records it.

HOW: eager, plain (without DebugMode), compiled (aot_eager), checkpoint, ranks, logged (its text in OUT).
Any number behind OUT is added to a weight of the second layer.
"""

import contextlib
import os
import sys

import assay.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.utils._debug_mode import DebugMode
from torch.utils.checkpoint import checkpoint

HOW, OUT, FAULT = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
STEPS, MICRO_BATCHES, WORDS, WIDTH = 2, 2, 24, 16


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        y = F.silu(self.up(x))
        if HOW == "ranks":  # each has half of the sum
            rank = dist.get_rank()
            half = y[..., rank * 16 : rank * 16 + 16] @ self.down.weight[:, rank * 16 : rank * 16 + 16].T
            return collectives.all_reduce(half, "sum", dist.group.WORLD)
        return self.down(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def body(self, x):
        return x + self.mlp(self.norm(x))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if HOW == "checkpoint" else self.body(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@contextlib.contextmanager
def debugged():
    if HOW == "plain":
        yield
        return
    with (
        DebugMode(record_nn_module=True, run_compile_with_interpreter=HOW == "compiled") as mode,
        DebugMode.log_tensor_hashes() if HOW == "logged" else assay.torch.debug_mode(out=OUT),
    ):
        yield
    if HOW == "logged":
        with open(OUT, "w") as file:
            file.write(mode.debug_string())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if HOW == "ranks":
        dist.init_process_group("gloo")
    model = Decoder()
    for weight in model.parameters():  # of the same bits on every vector unit
        weight.data.copy_(torch.randint(-64, 65, weight.shape) / 64)
    model.layers[1].mlp.up.weight.data[3, 5] += FAULT
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    net = torch.compile(model, backend="aot_eager") if HOW == "compiled" else model
    text = torch.randint(WORDS, (STEPS, MICRO_BATCHES, 3, 9))
    with debugged():
        for step in range(STEPS):
            for tokens in text[step]:
                logits = net(tokens[:, :-1])
                (F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / MICRO_BATCHES).backward()
            optimizer.step()
            optimizer.zero_grad()
    if HOW == "ranks":
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
