"""Ranks, and linear layers that are cut over the tensor-parallel ones, as Megatron-LM has them."""
import torch
import torch.distributed as dist
from torch import nn


class Ranks:
    """A mesh of data- and tensor-parallel processes; with sp what is not cut over tp is cut by tokens."""

    def __init__(self, dp, tp, sp, bug):
        dist.init_process_group("gloo")
        self.mesh = dist.init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
        self.dp, self.tp, self.sp, self.bug = dp, tp, sp, bug
        self.dp_rank, self.tp_rank = self.mesh.get_coordinate()

    def total(self, x, axis):
        x = x.clone()
        dist.all_reduce(x, group=self.mesh.get_group(axis))
        return x

    def all_rows(self, x):
        rows = [torch.empty_like(x) for _ in range(self.tp)]
        dist.all_gather(rows, x.contiguous(), group=self.mesh.get_group("tp"))
        return torch.cat(rows)

    def own_rows(self, x):
        return x.chunk(self.tp)[self.tp_rank].contiguous()


class Enter(torch.autograd.Function):  # the region where each rank has columns of its own
    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return ranks.all_rows(x) if ranks.sp else x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ranks = ctx.ranks
        grad = ranks.total(grad, "tp") / (ranks.tp if ranks.bug == "column-mean" else 1)
        return ranks.own_rows(grad) if ranks.sp else grad, None


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        x = x.clone() if ranks.bug == "row-output" else ranks.total(x, "tp")
        return ranks.own_rows(x) if ranks.sp else x

    @staticmethod
    def backward(ctx, grad):
        return ctx.ranks.all_rows(grad) if ctx.ranks.sp else grad, None


class ColumnParallelLinear(nn.Linear):
    cut = 0

    def __init__(self, inputs, outputs, ranks):
        super().__init__(inputs, outputs // ranks.tp, bias=False)
        self.ranks = ranks

    def forward(self, x):
        return super().forward(Enter.apply(x, self.ranks))


class RowParallelLinear(nn.Linear):
    cut = 1

    def __init__(self, inputs, outputs, ranks):
        super().__init__(inputs // ranks.tp, outputs, bias=False)
        self.ranks = ranks

    def forward(self, x):
        return Leave.apply(super().forward(x), self.ranks)
