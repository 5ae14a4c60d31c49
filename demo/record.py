#!/usr/bin/env python3
"""Records one training step of a tiny mixture-of-experts decoder as assay-dumps, three times over.

  reference   one process, float32
  clean       two processes (tensor + sequence + expert parallel), bfloat16: other hardware's arithmetic, and right
  faulty      the same, but the norm weights' gradients are not summed over the two processes

It is also an example of how to record your own run: Recorder is all that assay needs.
Usage: python3 record.py [OUT_DIR]        needs torch, numpy and safetensors
"""
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file

T, H, HEADS, FFN, EXPERTS, TOPK, VOCAB = 8, 12, 2, 12, 4, 2, 20  # tokens, hidden size, ...
EXPERT_FFN, DENSE_LAYERS, LAYERS = 6, 1, 2
LR, CLIP, SEED = 0.01, 1.0, 7


class Recorder:
    """One rank's assay-dump: an index of JSON lines over one safetensors file."""

    def __init__(self, folder, rank, world):
        self.folder, self.rank, self.world = folder, rank, world
        self.tensors, self.lines = {}, []
        os.makedirs(folder, exist_ok=True)
        if rank == 0:
            if os.path.exists(f"{folder}/manifest.json"):  # of a run before this one
                os.remove(f"{folder}/manifest.json")
            manifest = {"format": "assay-dump", "version": 1, "world_size": world,
                        "mesh": {"dims": ["tp"], "shape": [world]},
                        "producer": {"framework": "torch", "version": torch.__version__, "script": "demo/record.py"}}
            with open(f"{folder}/manifest.json.unfinished", "w") as f:
                json.dump(manifest, f, indent=1)

    def add(self, phase, module, slot, arg, tensor, layout, op=None, micro_batch=0):
        """layout: the dimension that is sharded over tp, "sum" for one addend per rank, None for equal copies."""
        tensor = tensor.detach().contiguous().clone()
        whole = list(tensor.shape)
        if isinstance(layout, int):
            whole[layout] *= self.world
        placement = "Replicate()" if layout is None else "Partial(sum)" if layout == "sum" else f"Shard(dim={layout})"
        name = f"t{len(self.lines)}"
        line = {"seq": len(self.lines), "step": 0, "micro_batch": micro_batch, "phase": phase, "module": module}
        line |= {"op": op} if op else {}
        line |= {"slot": slot, "arg": arg, "call": 0, "dtype": str(tensor.dtype).removeprefix("torch."),
                 "shape": list(tensor.shape), "global_shape": whole, "placements": [placement],
                 "mesh_coordinate": [self.rank], "data": {"file": f"rank{self.rank:05}.safetensors", "name": name}}
        self.tensors[name] = tensor
        self.lines.append(json.dumps(line, separators=(",", ":")))

    def inputs(self, module, op, layout, **tensors):
        for arg, tensor in tensors.items():
            self.add("forward", module, "input", arg, tensor, layout, op)

    def outputs(self, module, op, layout, **tensors):
        """Records the tensors now, and their gradients when backward gets there."""
        for arg, tensor in tensors.items():
            self.add("forward", module, "output", arg, tensor, layout, op)
            if tensor.requires_grad:
                tensor.register_hook(lambda g, a=arg: self.add("backward", module, "grad_output", a, g, layout, op))

    def save(self):
        stem = f"{self.folder}/rank{self.rank:05}"
        save_file(self.tensors, stem + ".safetensors")
        with open(stem + ".jsonl.part", "w") as f:
            f.write("\n".join(self.lines) + "\n")
        os.replace(stem + ".jsonl.part", stem + ".jsonl")
        # A dump without manifest.json is unfinished: it gets it when every rank has saved.
        if self.world > 1:
            dist.barrier()
        if self.rank == 0:
            os.replace(f"{self.folder}/manifest.json.unfinished", f"{self.folder}/manifest.json")


class Gather(torch.autograd.Function):
    """Rows of all ranks; backward sums the ranks' gradients and keeps the own rows."""

    @staticmethod
    def forward(ctx, x, rank, world):
        ctx.place = rank, world
        rows = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(rows, x.contiguous())
        return torch.cat(rows)

    @staticmethod
    def backward(ctx, g):
        rank, world = ctx.place
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(world)[rank], None, None


class ReduceScatter(torch.autograd.Function):
    """Sums the ranks' addends and keeps the own rows; backward gathers."""

    @staticmethod
    def forward(ctx, x, rank, world):
        ctx.place = rank, world
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(world)[rank].clone()

    @staticmethod
    def backward(ctx, g):
        return Gather.forward(ctx, g, *ctx.place), None, None


def shard_dim(name):
    """The dimension of a weight that tensor parallelism cuts, or None."""
    if "experts" in name:
        return None  # an expert lies on one rank
    module, arg = name.rsplit(".", 1)
    return 0 if module.endswith(("qkv", "fc1")) else 1 if module.endswith(("attn.o", "fc2")) else None


def is_whole(name):
    """Whether every rank has all of this weight."""
    return shard_dim(name) is None and "experts" not in name


def initial_weights():
    """Full float32 weights by name, equal in every run; their values are bfloat16's, so that no run has to round."""
    random = torch.Generator().manual_seed(SEED)
    shapes = {"embedding.weight": (VOCAB, H)}
    for i in range(LAYERS):
        layer = f"layers.{i}"
        shapes |= {f"{layer}.attn_norm.weight": (H,), f"{layer}.attn.qkv.q_weight": (H, H),
                   f"{layer}.attn.qkv.k_weight": (H, H), f"{layer}.attn.qkv.v_weight": (H, H),
                   f"{layer}.attn.o.weight": (H, H), f"{layer}.mlp_norm.weight": (H,)}
        moe = i >= DENSE_LAYERS
        if moe:
            shapes[f"{layer}.moe.router.weight"] = (EXPERTS, H)
        for mlp in [f"{layer}.moe.experts.{e}" for e in range(EXPERTS)] if moe else [f"{layer}.mlp"]:
            width = EXPERT_FFN if moe else FFN
            shapes |= {f"{mlp}.fc1.gate_weight": (width, H), f"{mlp}.fc1.up_weight": (width, H),
                       f"{mlp}.fc2.weight": (H, width)}
    shapes |= {"final_norm.weight": (H,), "head.weight": (VOCAB, H)}
    weights = {}
    for name, shape in shapes.items():
        w = torch.randn(shape, generator=random)
        w = 1 + 0.1 * w if "norm" in name else w if "embedding" in name else w * shape[-1] ** -0.5
        weights[name] = w.bfloat16().float()
    return weights


class Run:
    def __init__(self, rank, world, dtype, reduce_norms, folder):
        self.rank, self.world, self.dtype, self.reduce_norms = rank, world, dtype, reduce_norms
        self.rec = Recorder(folder, rank, world)
        self.weights = {}  # float32 masters of what this rank holds
        for name, w in initial_weights().items():
            dim = shard_dim(name)
            if "experts" in name and int(name.split("experts.")[1][0]) * world // EXPERTS != rank:
                continue
            w = w if dim is None else w.chunk(world, dim)[rank]
            self.weights[name] = w.clone().requires_grad_()

    def weight(self, name):
        """A weight as the step uses it: norms and routers stay float32."""
        return self.weights[name] if "norm" in name or "router" in name else self.weights[name].to(self.dtype)

    def record_weights(self, phase, slot, value):
        for name in self.weights:
            module, arg = name.rsplit(".", 1)
            self.rec.add(phase, module, slot, arg, value(name), shard_dim(name), micro_batch=-1)

    def gather(self, x):
        return Gather.apply(x, self.rank, self.world) if self.world > 1 else x

    def scatter_sum(self, x):
        return ReduceScatter.apply(x, self.rank, self.world) if self.world > 1 else x

    # Layouts: outside of attention and MLP, rank r has its T / world rows of the sequence (layout 0);
    # inside them all rows, of its own heads or channels (layout 1) or experts.

    def norm(self, name, x):
        y = F.rms_norm(x.float(), (H,), self.weight(f"{name}.weight"), 1e-5).to(self.dtype)
        self.rec.inputs(name, "rms_norm", 0, x=x)
        self.rec.outputs(name, "rms_norm", 0, y=y)
        return y

    def attention(self, name, x):
        x = self.gather(x)
        q, k, v = (F.linear(x, self.weight(f"{name}.qkv.{p}_weight")) for p in "qkv")
        self.rec.inputs(f"{name}.qkv", "matmul", None, x=x)
        self.rec.outputs(f"{name}.qkv", "matmul", 1, q=q, k=k, v=v)
        heads = lambda t: t.view(T, HEADS // self.world, H // HEADS).transpose(0, 1).float()
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        y = y.transpose(0, 1).reshape(T, -1).to(self.dtype)
        self.rec.outputs(f"{name}.core", "attention", 1, y=y)
        return self.down(f"{name}.o", y)

    def mlp(self, name, x):
        return self.down(f"{name}.fc2", self.up(f"{name}.fc1", self.gather(x), 1))

    def up(self, name, x, layout):
        gate, up = (F.linear(x, self.weight(f"{name}.{p}_weight")) for p in ("gate", "up"))
        self.rec.inputs(name, "matmul", None, x=x)
        self.rec.outputs(name, "matmul", layout, gate=gate, up=up)
        return F.silu(gate) * up

    def down(self, name, x):
        y = self.scatter_sum(F.linear(x, self.weight(f"{name}.weight")))
        self.rec.inputs(name, "matmul", 1, x=x)
        self.rec.outputs(name, "matmul", 0, y=y)
        return y

    def moe(self, name, x):
        logits = F.linear(x.float(), self.weight(f"{name}.router.weight"))
        probs, indices = logits.softmax(-1).topk(TOPK)
        self.rec.inputs(f"{name}.router", "router_topk", 0, x=x)
        self.rec.outputs(f"{name}.router", "router_topk", 0, logits=logits, probs=probs, indices=indices)
        x, probs = self.gather(x), self.gather(probs)
        indices = self.gather(indices)
        total = torch.zeros(T, H)
        for e in range(EXPERTS):
            expert = f"{name}.experts.{e}"
            token, choice = (indices == e).nonzero(as_tuple=True)
            if f"{expert}.fc2.weight" not in self.weights or len(token) == 0:
                continue
            y = F.linear(self.up(f"{expert}.fc1", x[token], None), self.weight(f"{expert}.fc2.weight"))
            self.rec.outputs(f"{expert}.fc2", "matmul", None, y=y)
            total = total.index_add(0, token, y.float() * probs[token, choice, None])
        y = self.scatter_sum(total)
        self.rec.outputs(name, None, 0, y=y)
        return y

    def step(self):
        random = torch.Generator().manual_seed(SEED)
        text = torch.randint(VOCAB, (T + 1,), generator=random)
        own = slice(self.rank * T // self.world, (self.rank + 1) * T // self.world)
        ids, targets = text[:-1][own], text[1:][own]

        self.record_weights("forward", "param", self.weight)
        x = F.embedding(ids, self.weight("embedding.weight")).float()  # the residual stream is float32
        self.rec.outputs("embedding", "embedding", 0, y=x)
        for i in range(LAYERS):
            layer = f"layers.{i}"
            x = x + self.attention(f"{layer}.attn", self.norm(f"{layer}.attn_norm", x))
            h = self.norm(f"{layer}.mlp_norm", x)
            x = x + (self.moe(f"{layer}.moe", h) if i >= DENSE_LAYERS else self.mlp(f"{layer}.mlp", h))
            self.rec.outputs(layer, None, 0, y=x)
        x = self.norm("final_norm", x)
        logits = F.linear(x, self.weight("head.weight"))
        self.rec.inputs("head", "matmul", 0, x=x)
        self.rec.outputs("head", "matmul", 0, logits=logits)
        loss = F.cross_entropy(logits.float(), targets, reduction="sum") / T
        self.rec.add("forward", "loss", "loss", "lm", loss, "sum")
        loss.backward()

        # A weight that every rank has whole saw only this rank's rows: its gradient is one addend of the sum.
        for name, w in self.weights.items():
            if self.world > 1 and is_whole(name) and (self.reduce_norms or "norm" not in name):
                dist.all_reduce(w.grad)
        self.record_weights("backward", "grad", lambda name: self.weights[name].grad)

        squares = {name: w.grad.square().sum() for name, w in self.weights.items()}
        cut = sum(v for name, v in squares.items() if not is_whole(name))
        if self.world > 1:
            dist.all_reduce(cut)
        norm = (cut + sum(v for name, v in squares.items() if is_whole(name))).sqrt()
        self.rec.add("optimizer", "grad_norm", "state", "norm", norm, None, micro_batch=-1)
        for w in self.weights.values():
            w.grad *= min(1.0, CLIP / (norm.item() + 1e-6))
        torch.optim.AdamW(self.weights.values(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1).step()
        self.record_weights("optimizer", "param", self.weight)
        self.rec.save()


def parallel(rank, world, rendezvous, out):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.set_num_threads(1)
    Run(rank, world, torch.bfloat16, True, f"{out}/clean").step()
    Run(rank, world, torch.bfloat16, False, f"{out}/faulty").step()
    dist.destroy_process_group()


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    Run(0, 1, torch.float32, True, f"{out}/reference").step()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(parallel, args=(2, f"{folder}/rendezvous", out), nprocs=2)
