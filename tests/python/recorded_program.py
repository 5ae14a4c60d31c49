"""A small decoder that knows nothing of assay, under the strategies of PyTorch; test_record.py records it.

Two steps of four micro-batches in all. MODE: single, ddp, fsdp, hsdp, tp, tp_ddp, pipeline, checkpoint, reentrant,
compile.
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS, MICRO_BATCHES, TOKENS, WORDS, WIDTH = 2, 4, 8, 24, 16


class Block(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.norm, self.up, self.act, self.down = (
            nn.RMSNorm(WIDTH, eps=1e-5),
            nn.Linear(WIDTH, 32),
            nn.SiLU(),
            nn.Linear(32, WIDTH),
        )

    def body(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))

    def forward(self, x):
        if self.checkpointing is None:
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=self.checkpointing == "reentrant")


class Decoder(nn.Module):
    def __init__(self, checkpointing=None):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block(checkpointing) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.head is None else self.head(x)


def loss_of(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def main(mode, rate):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if ranks > 1:
        dist.init_process_group("gloo")
    model = Decoder(mode if mode in ("checkpoint", "reentrant") else None)
    text = torch.randint(WORDS, (STEPS, MICRO_BATCHES, 2, TOKENS + 1))
    net = model
    copies = {"ddp": ranks, "fsdp": ranks, "hsdp": ranks, "tp_ddp": 2}.get(mode, 1)  # with data of their own
    if mode == "ddp":
        net = nn.parallel.DistributedDataParallel(model)
    elif mode in ("fsdp", "hsdp"):
        from torch.distributed.fsdp import fully_shard

        if mode == "fsdp":
            mesh = dist.init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
        else:
            mesh = dist.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif mode in ("tp", "tp_ddp"):
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = dist.init_device_mesh("cpu", (copies, ranks // copies), mesh_dim_names=("dp", "tp"))
        plan = {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }
        for i in range(2):
            plan |= {f"layers.{i}.up": ColwiseParallel(), f"layers.{i}.down": RowwiseParallel()}
        parallelize_module(model, mesh["tp"], plan)
        if copies > 1:
            from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

            _pre_dp_module_transform(model)
            net = nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    elif mode == "compile":
        net = torch.compile(model, backend="eager")
    elif mode == "pipeline":
        model.layers = nn.ModuleDict({str(rank): model.layers[rank]})  # under its name in the whole model
        model.forward = lambda x: stage_of(model, x)
        if rank == 0:
            model.head = None
        else:
            model.embedding = None
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, foreach=False)
    own = range(rank * copies // ranks, MICRO_BATCHES, copies)
    if mode == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        schedule = Schedule1F1B(PipelineStage(model, rank, ranks, torch.device("cpu")), MICRO_BATCHES, loss_fn=loss_of)
    for step in range(STEPS):
        if mode == "pipeline":
            tokens = text[step].flatten(0, 1)
            if rank == 0:
                schedule.step(tokens[:, :-1])
            else:
                schedule.step(target=tokens[:, 1:])
        for micro_batch in own if mode != "pipeline" else ():
            tokens = text[step, micro_batch]
            with (
                net.no_sync()
                if net is not model and mode != "compile" and micro_batch != own[-1]
                else contextlib.nullcontext()
            ):
                (loss_of(net(tokens[:, :-1]), tokens[:, 1:]) / len(own)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if ranks > 1:
        dist.destroy_process_group()
        # gloo's threads drop what the last collective held, Python objects too, a little after its result: where the
        # interpreter ends before that, torch 2.13 aborts.
        time.sleep(0.2)


def stage_of(model, x):
    x = x if model.embedding is None else model.embedding(x)
    for layer in model.layers.values():
        x = layer(x)
    return x if model.head is None else model.head(x)


main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1e-2)
