#!/usr/bin/env python3
"""The expected losses and gradients of tests/align/mixed_precision_test.cpp: one micro-batch of a single layer of experts in
bfloat16 and float16, by PyTorch's autograd with the casts of TeleChat3's recipe.

    python3 tests/data/replay/make_mixed.py

A tensor is rounded where it is stored and computed in float32; gradients of parameters stay float32. The gradients of a tensor
with several uses are added in their dtype, that of the last use first. Matmuls add in float32, in an order of PyTorch's.
Of each gradient the sums of make.py are kept. And of a linear with float8_e4m3fn operands: PyTorch's codes, and products in
float64 of what they stand for.
"""
import json
import math
import tomllib
from itertools import product

import torch
from torch.nn.functional import one_hot, silu

from make import HERE, LENGTH, MODELS, SEQUENCES, Step, drawn, initial, sums

torch.set_default_dtype(torch.float32)


class Rounded(torch.autograd.Function):
    """A parameter in the format of matmuls, its gradient in float32."""

    @staticmethod
    def forward(_, weight, dtype):
        return weight.to(dtype).float()

    @staticmethod
    def backward(_, grad):
        return grad, None


class Fork(torch.autograd.Function):
    @staticmethod
    def forward(_, x, uses):
        return tuple(x.clone() for _ in range(uses))

    @staticmethod
    def backward(_, *grads):
        total = grads[-1]
        for grad in reversed(grads[:-1]):
            total = total + grad
        return total, None


class MixedStep(Step):
    def __init__(self, model, dtype):
        super().__init__(model)
        self.dtype = dtype

    def parameter(self, name, *shape):
        if name not in self.parameters:
            self.parameters[name] = initial(name, shape).float().requires_grad_()
        return self.parameters[name]

    def weight(self, name, *shape):
        return Rounded.apply(self.parameter(name, *shape), self.dtype)

    def linear(self, module, x, out):
        if module.endswith(".gate"):
            return x.float() @ self.parameter(module + ".weight", out, x.shape[-1]).T
        return (x.float() @ self.weight(module + ".weight", out, x.shape[-1]).T).to(self.dtype)

    def norm(self, module, x, eps=0):
        return super().norm(module, x.float(), eps).to(self.dtype)

    def rotate(self, x):
        return super().rotate(x.float()).to(self.dtype)

    def attend(self, q, k, v):
        return super().attend(q.float(), k.float(), v.float()).to(self.dtype)

    def gated(self, gate, up):
        return (silu(gate.float()) * up.float()).to(self.dtype)

    def mixture(self, module, x):
        moe, experts, hidden = self.moe, self.moe["experts"], x.shape[-1]
        for_router, for_experts, for_gate, for_up = Fork.apply(x, 4)
        logits = self.linear(module + ".gate", for_router, experts)
        weights, index, scores = self.route(module, logits)
        self.balance(module, scores, index)
        w = {n: self.weight(f"{module}.experts.*.{n}_proj.weight", experts, *shape)
             for n, shape in (("gate", (moe["ffn"], hidden)), ("up", (moe["ffn"], hidden)), ("down", (hidden, moe["ffn"])))}
        rows = for_experts[..., None, :].expand(-1, -1, experts, -1)
        gate, up = (torch.einsum("sleh,efh->slef", rows.float(), w[n]).to(self.dtype) for n in ("gate", "up"))
        down = torch.einsum("slef,ehf->sleh", self.gated(gate, up).float(), w["down"]).to(self.dtype)
        dense = torch.zeros(SEQUENCES, LENGTH, experts).scatter(-1, index, weights)
        routed = torch.einsum("sle,sleh->slh", dense, down.float()).to(self.dtype)
        shared, size = module + ".shared_experts", moe["shared_experts"] * moe["ffn"]
        activation = self.gated(self.linear(shared + ".gate_proj", for_gate, size),
                                self.linear(shared + ".up_proj", for_up, size))
        return routed + self.linear(shared + ".down_proj", activation, hidden)

    def head(self, x, targets):
        logits = self.linear("lm_head", x, self.m["vocabulary"])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def fp8(x, rows, columns):
    """Codes with a scale for each box, and what they stand for in float64."""
    scale = torch.empty(-(-x.shape[0] // rows), -(-x.shape[1] // columns))
    for i, j in product(*map(range, scale.shape)):
        scale[i, j] = x[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns].abs().max() / 448
    spread = scale.repeat_interleave(rows, 0)[:x.shape[0]].repeat_interleave(columns, 1)[:, :x.shape[1]]
    code = (x / spread).to(torch.float8_e4m3fn)
    return {"code": code.view(torch.uint8).numpy().tobytes().hex(), "scale": scale.flatten().tolist()}, code.double() * spread.double()


def fp8_linear():
    """Of tensors that are drawn: x [150, 200] and w [140, 200] by their names, gradients a hundred thousandth of what is drawn."""
    def of(name, scale, *shape):
        return torch.from_numpy(drawn(name, math.prod(shape)).reshape(shape) * scale).float()

    x, w, grad_y = of("x", 4, 150, 200), of("w", 1, 140, 200), of("grad_y", 1e-5, 150, 140)
    codes = {"activations": fp8(x[:3], 1, 128)[0], "weights": fp8(w[:, :2], 128, 128)[0], "gradients": fp8(grad_y[:3], 1, 128)[0]}
    kept = fp8(x, 1, 128)[1].float()
    products = {"y": (fp8(x, 1, 128)[1], fp8(w, 128, 128)[1].T),
                "grad_x": (fp8(grad_y, 1, 128)[1], fp8(w, 128, 128)[1]),
                "grad_w": (fp8(grad_y.T, 1, 128)[1], fp8(kept.T, 1, 128)[1].T)}
    return {"codes": codes, "products": {n: sums(n, a @ b) + [float((a.abs() @ b.abs()).sum())] for n, (a, b) in products.items()}}


def main():
    model = tomllib.loads((MODELS / "telechat3-105b-tiny.toml").read_text())
    model.update(layers=1, dense_layers=0)
    model["losses"]["mtp_depth"] = 0
    expected = {"fp8": fp8_linear()}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        step = MixedStep(model, dtype)
        total = step.run().item()
        expected[name] = {"total": total, "gradients": {n: sums("gradient of " + n, p.grad.double()) for n, p in
                                                        step.parameters.items() if p.grad is not None}}
    (HERE / "expected_mixed.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
