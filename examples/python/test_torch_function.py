"""A torch operator with a backward of its own, in bfloat16."""

import pytest
from assay.testing import assert_matches_golden

torch = pytest.importorskip("torch", reason="torch is not installed")


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, rstd := torch.rsqrt((x.float() ** 2).mean(-1, keepdim=True) + 1e-5))
        return (x.float() * rstd * weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        x, weight, rstd = (t.float() for t in ctx.saved_tensors)
        h, v = x * rstd, g.float() * weight
        return (rstd * (v - h * (v * h).mean(-1, keepdim=True))).to(g.dtype), (g.float() * h).sum(0).to(g.dtype)


def test_rms_norm():
    x, w, g = (torch.randn(s, dtype=torch.bfloat16, requires_grad=True) for s in ((32, 512), (512,), (32, 512)))
    y = RmsNorm.apply(x, w)
    y.backward(g.detach())
    made = {"y": y, "grad_x": x.grad, "grad_weight": w.grad}
    assert_matches_golden("rms_norm", {"x": x, "weight": w, "grad_y": g}, made, eps=1e-5)
