"""Convolutions, norms of channels, activations, adaptive pooling and losses of pairs."""

from __future__ import annotations

from typing import Any

import torch

from .call import Call, Convert, NotACall, entries, given, of

Tensor = torch.Tensor


def numbers(value: Any) -> Any:
    return [value] if isinstance(value, int) else value if isinstance(value, str) else list(value)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Call:
    settings = {"stride": numbers(stride), "padding": numbers(padding), "dilation": numbers(dilation)}
    return Call("conv", given(x=x, weight=weight, bias=bias), settings | {"groups": groups})


def transposed_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Call:
    settings = {
        "stride": numbers(stride),
        "padding": numbers(padding),
        "output_padding": numbers(output_padding),
        "dilation": numbers(dilation),
        "groups": groups,
    }
    return Call("conv_transpose", given(x=x, weight=weight, bias=bias), settings)


def adaptive(op: str, rank: int) -> Convert:
    def convert(x: Tensor, output_size: Any, return_indices: bool = False) -> Call:
        sizes = [output_size] * rank if isinstance(output_size, int) else list(output_size)
        sizes = [x.shape[d - rank] if size is None else size for d, size in enumerate(sizes)]
        if op == "adaptive_avg_pool":
            return Call(op, {"x": x}, {"output_size": sizes})
        settings = {"output_size": sizes, "return_indices": return_indices}
        return Call(op, {"x": x}, settings, ("y", "index") if return_indices else ("y",))

    return convert


for rank in (1, 2, 3):
    entries[f"nn.functional.conv{rank}d"] = convolution
    entries[f"nn.functional.conv_transpose{rank}d"] = transposed_convolution
    entries[f"nn.functional.adaptive_avg_pool{rank}d"] = adaptive("adaptive_avg_pool", rank)
    entries[f"nn.functional.adaptive_max_pool{rank}d"] = adaptive("adaptive_max_pool", rank)


@of("nn.functional.batch_norm")
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Call:
    if x.ndim < 2:
        raise NotACall("no batch")
    # torch moves them in place
    running = {n: t.clone() for n, t in given(running_mean=running_mean, running_var=running_var).items()}
    settings = {"training": training, "momentum": momentum, "eps": eps}
    return Call("batch_norm", given(x=x, **running, weight=weight, bias=bias), settings)


@of("nn.functional.instance_norm")
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Call:
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    return Call("instance_norm", given(x=x, weight=weight, bias=bias), {"eps": eps})


def activation(op: str, **defaults: Any) -> Convert:
    """Its settings come by position, in the order of the defaults, or by name."""

    def convert(x: Tensor, *positions: Any, inplace: bool = False, **settings: Any) -> Call:
        settings |= dict(zip(defaults, positions, strict=False))
        if not settings.keys() <= defaults.keys():
            raise NotACall(f"settings of another operator: {settings}")
        return Call(op, {"x": x}, defaults | settings)

    return convert


for op in "logsigmoid mish hardswish".split():
    entries[f"nn.functional.{op}"] = activation(op)
entries |= {
    "nn.functional.leaky_relu": activation("leaky_relu", negative_slope=0.01),
}


@of("nn.functional.softsign")
def softsign(x: Tensor) -> Call:
    if x.isinf().any():
        raise NotACall("infinities, whose gradient is NaN by torch's rule of quotients")
    return Call("softsign", {"x": x})


def without_gradient_at_nan(x: Tensor) -> Tensor:
    """torch's gradient of these is a number at NaN, hardtanh's another one where its vector unit is not used."""
    return x.detach() if x.isnan().any() else x


@of("nn.functional.hardtanh")
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Call:
    return Call("hardtanh", {"x": without_gradient_at_nan(x)}, {"min_val": min_val, "max_val": max_val})


@of("nn.functional.relu6")
def relu6(x: Tensor) -> Call:
    return hardtanh(x, 0.0, 6.0)


@of("nn.functional.elu")
def elu(x: Tensor, alpha: float = 1.0) -> Call:
    return Call("elu", {"x": without_gradient_at_nan(x)}, {"alpha": alpha})


@of("nn.functional.selu")
def selu(x: Tensor) -> Call:
    return Call("selu", {"x": without_gradient_at_nan(x)})


@of("nn.functional.celu")
def celu(x: Tensor, alpha: float = 1.0) -> Call:
    # Its gradient has alpha in float32, whatever the dtype (torch 2.13, aten/src/ATen/native/cpu/Elu.h).
    exact = torch.tensor(alpha, dtype=torch.float32).item() == alpha
    return Call("celu", {"x": without_gradient_at_nan(x) if exact else x.detach()}, {"alpha": alpha})


@of("nn.functional.hardsigmoid")
def hardsigmoid(x: Tensor) -> Call:
    # Its gradient has 1 / 6 in float32, whatever the dtype (torch 2.13, aten/src/ATen/native/cpu/Activation.cpp).
    return Call("hardsigmoid", {"x": x.detach()})


def loss_of_pairs(op: str) -> Convert:
    def convert(input: Tensor, target: Tensor, **settings: Any) -> Call:
        if settings.keys() & {"weight", "pos_weight"}:
            raise NotACall("weights")
        if input.shape != target.shape:
            raise NotACall("shapes that broadcast")
        return Call(op, {"input": input, "target": target}, settings, ("loss",))

    return convert


for op in "mse_loss l1_loss smooth_l1_loss huber_loss kl_div".split():
    entries[f"nn.functional.{op}"] = loss_of_pairs(op)
for op in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
    entries[f"nn.functional.{op}"] = loss_of_pairs(op)


def similar_or_not(target: Tensor) -> Tensor:
    """A target of -1 and 1 as integers."""
    if not torch.equal(target.abs(), torch.ones_like(target)):
        raise NotACall("targets that are neither 1 nor -1")
    return target.detach().long()


@of("nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(input: Tensor, target: Tensor, **settings: Any) -> Call:
    if input.shape != target.shape:
        raise NotACall("shapes that broadcast")
    return Call("hinge_embedding_loss", {"input": input, "target": similar_or_not(target)}, settings, ("loss",))


@of("nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, **settings: Any) -> Call:
    inputs = {"input1": input1, "input2": input2, "target": similar_or_not(target)}
    return Call("cosine_embedding_loss", inputs, settings, ("loss",))


@of("nn.functional.margin_ranking_loss")
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, **settings: Any) -> Call:
    if not input1.shape == input2.shape == target.shape:
        raise NotACall("shapes that broadcast")
    return Call("margin_ranking_loss", {"input1": input1, "input2": input2, "target": target}, settings, ("loss",))


@of("nn.functional.triplet_margin_loss")
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, **settings: Any) -> Call:
    inputs = {"anchor": anchor, "positive": positive, "negative": negative}
    return Call("triplet_margin_loss", inputs, settings, ("loss",))


@of("nn.functional.cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Call:
    if x1.shape != x2.shape:
        raise NotACall("shapes that broadcast")
    return Call("cosine_similarity", {"x1": x1, "x2": x2}, {"dim": dim, "eps": eps})
