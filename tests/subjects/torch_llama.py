"""A decoder under the parallelism that torch brings along, trained for some steps. It knows nothing of assay.

Layouts are those of torch's tutorials: parallelize_module with sequence parallelism, fully_shard or
DistributedDataParallel, torch.distributed.pipelining, and a sequence that is cut over ranks which gather keys and
values (torch's own ring attention has no kernel for CPUs).
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

LAYERS, WIDTH, HEADS, GROUPS, WORDS, BATCH, TOKENS = 2, 32, 4, 2, 64, 2, 16
SIZE = WIDTH // HEADS


def angles(tokens: int) -> torch.Tensor:
    frequencies = 10000.0 ** -(torch.arange(0, SIZE, 2).float() / SIZE)
    turns = torch.outer(torch.arange(tokens).float(), frequencies)
    return torch.polar(torch.ones_like(turns), turns)


def rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.sequence = None  # a mesh over which it is cut

    def forward(self, x, turns):
        q, k, v = (y.unflatten(-1, (-1, SIZE)) for y in (self.wq(x), self.wk(x), self.wv(x)))
        q, k = rotate(q, turns), rotate(k, turns)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        mask = None
        if self.sequence is not None:
            k, v = (self.whole(y) for y in (k, v))
            start = self.sequence.get_local_rank() * q.shape[2]
            mask = torch.arange(k.shape[2]) <= start + torch.arange(q.shape[2])[:, None]
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))

    def whole(self, x):
        x = DTensor.from_local(x, self.sequence, [Shard(2)]).redistribute(placements=[Replicate()])
        return x.to_local(grad_placements=[Partial()])


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.w2 = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(WIDTH, eps=1e-5) for _ in range(2))
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x, turns):
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.turns = angles(TOKENS)

    def forward(self, x):
        x = x if self.tok_embeddings is None else self.tok_embeddings(x)
        for layer in self.layers.values():
            x = layer(x, self.turns)
        return x if self.output is None else self.output(self.norm(x))


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def cut_tensors(model: Decoder, mesh: dist.DeviceMesh, is_sequence_cut: bool) -> None:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    between = Shard(1) if is_sequence_cut else Replicate()
    plan = {}
    if model.tok_embeddings is not None:
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if model.output is not None:
        plan["output"] = ColwiseParallel(input_layouts=between, output_layouts=Replicate())
    if is_sequence_cut and model.norm is not None:
        plan["norm"] = SequenceParallel()
    for name in model.layers:
        here = f"layers.{name}."
        for linear in ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3"):
            plan[here + linear] = ColwiseParallel()
        for linear in ("attention.wo", "feed_forward.w2"):
            plan[here + linear] = RowwiseParallel(output_layouts=between)
        if is_sequence_cut:
            plan[here + "attention_norm"] = plan[here + "ffn_norm"] = SequenceParallel()
            plan[here + "attention"] = PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            )
            plan[here + "feed_forward"] = PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
    parallelize_module(model, mesh, plan)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    for name in ("dp", "cp", "tp", "pp"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--sp", type=int, default=0)
    parser.add_argument("--data", choices=("fsdp", "ddp"), default="fsdp")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(options.seed)
    model = Decoder()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.15)
    model.to(getattr(torch, options.dtype))
    net, mesh = model, None
    if ranks > 1:
        dist.init_process_group("gloo")
        sizes = {name: getattr(options, name) for name in ("pp", "dp", "cp", "tp")}
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    stage = mesh["pp"].get_local_rank() if options.pp > 1 else 0
    if options.pp > 1:
        own = range(stage * LAYERS // options.pp, (stage + 1) * LAYERS // options.pp)
        model.layers = nn.ModuleDict({str(i): model.layers[str(i)] for i in own})
        if stage > 0:
            model.tok_embeddings = None
        if stage < options.pp - 1:
            model.norm = model.output = None
    share = slice(None)
    if options.cp > 1:
        at = mesh["cp"].get_local_rank()
        share = slice(at * TOKENS // options.cp, (at + 1) * TOKENS // options.cp)
        model.turns = model.turns[share]
        for layer in model.layers.values():
            layer.attention.sequence = mesh["cp"]
    if options.tp > 1:
        cut_tensors(model, mesh["tp"], bool(options.sp))
    if options.dp * options.cp > 1:
        data = mesh["dp", "cp"]._flatten("dp_cp") if options.cp > 1 else mesh["dp"]
        if options.data == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for layer in model.layers.values():
                fully_shard(layer, mesh=data)
            fully_shard(model, mesh=data)
        else:
            net = nn.parallel.DistributedDataParallel(model, process_group=data.get_group())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    if options.pp > 1:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        place = PipelineStage(net, stage, options.pp, torch.device("cpu"), group=mesh["pp"].get_group())
        schedule = Schedule1F1B(place, options.micro_batches // options.dp, loss_fn=loss_of)
    text = torch.Generator().manual_seed(options.seed)
    first = mesh["dp"].get_local_rank() if options.dp > 1 else 0
    for _ in range(options.steps):
        optimizer.zero_grad()
        batch = torch.randint(WORDS, (options.micro_batches, BATCH, TOKENS + 1), generator=text)
        own = batch[first :: options.dp]
        tokens, targets = own[..., :-1][..., share], own[..., 1:][..., share]
        if options.pp > 1:
            schedule.step(*(() if stage > 0 else (tokens.flatten(0, 1),)), target=targets.flatten(0, 1))
        else:
            for x, target in zip(tokens, targets, strict=True):
                (loss_of(net(x), target) / len(own)).backward()
        optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
