"""The steps of KernelBench's problems in PyTorch, each as calls of golden operators: the words of kernelbench.txt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from calls import Call, entries, leaves

Tensor = torch.Tensor


@dataclass
class Problem:
    level: int
    name: str
    shape: tuple[int, ...]
    steps: list[tuple[str, str]]
    """A word and what stands in its parentheses; none where there is no golden."""
    why_none: str = ""


def problems() -> Iterator[Problem]:
    for line in (Path(__file__).parent / "kernelbench.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        level, name, shape, rest = line.split(maxsplit=3)
        if shape == "-":
            yield Problem(int(level), name, (), [], rest)
        else:
            steps = re.findall(r"(\w+)(?:\(([^)]*)\))?", rest)
            yield Problem(int(level), name, tuple(map(int, shape.split("x"))), steps)


@dataclass
class Run:
    """What a problem's steps called, with torch's results."""

    calls: list[tuple[Call, list[Tensor]]] = field(default_factory=list)

    def take(self, call: Call, results: Any) -> Tensor:
        self.calls.append((call, list(leaves(results))))
        return self.calls[-1][1][0]

    def do(self, entry: str, f: Callable[..., Any], *args: Any, **settings: Any) -> Tensor:
        args = tuple(own(a) for a in args)
        return self.take(entries[entry](*args, **settings), f(*args, **settings))


def own(x: Any) -> Any:
    """The same numbers: no gradient goes from step to step."""
    if isinstance(x, tuple) and all(isinstance(t, Tensor) for t in x):
        return tuple(own(t) for t in x)
    return x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x


def param(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).div(4).requires_grad_()


Word = Callable[[Run, Tensor, str], Tensor]
words: dict[str, Word] = {}


def word(f: Word) -> Word:
    words[f.__name__] = f
    return f


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x"))


# One call of what PyTorch names likewise.


def plain(entry: str, f: Callable[..., Any], *more: Any, **settings: Any) -> Word:
    return lambda run, x, _: run.do(entry, f, x, *more, **settings)


words |= (
    {n: plain(n, getattr(torch, n)) for n in "sigmoid tanh log".split()}
    | {
        n: plain(f"nn.functional.{n}", getattr(F, n))
        for n in "relu gelu selu hardswish softplus softsign elu hardtanh mish".split()
    }
    | {
        # torch's own gradient of it has 1 / 6 in float32.
        "hardsigmoid": lambda run, x, _: run.take(Call("hardsigmoid", {"x": x}), F.relu6(x + 3) / 6),
        "swish": plain("nn.functional.silu", F.silu),
        "gelu_tanh": plain("nn.functional.gelu", F.gelu, approximate="tanh"),
        "leaky_relu": plain("nn.functional.leaky_relu", F.leaky_relu, 0.2),
        "log_softmax": plain("log_softmax", torch.log_softmax, 1),
        "clamp": plain("clamp", torch.clamp, -0.5, 0.5),
        "relu_clamp": plain("clamp", torch.clamp, 0),
        "cumsum": plain("cumsum", torch.cumsum, 1),
        "cumprod": plain("cumprod", torch.cumprod, 1),
        "argmax": lambda run, x, dim: run.do("argmax", torch.argmax, x, int(dim)),
        "argmin": lambda run, x, dim: run.do("argmin", torch.argmin, x, int(dim)),
        "transpose": plain("transpose", torch.transpose, 0, 1),
        "channels_last": plain("permute", torch.permute, (0, 2, 3, 1)),
        "channels_first": plain("permute", torch.permute, (0, 3, 1, 2)),
        "adaptive_avg_pool": lambda run, x, _: run.do(
            f"nn.functional.adaptive_avg_pool{x.ndim - 2}d", getattr(F, f"adaptive_avg_pool{x.ndim - 2}d"), x, 1
        ),
    }
)


# Two numbers or tensors, element by element.


def binary(entry: str, f: Callable[..., Any], other: Callable[[Tensor], Any]) -> Word:
    return lambda run, x, _: run.do(entry, f, x, other(x))


def channels(x: Tensor) -> Tensor:
    return param(x.shape[1], *[1] * (x.ndim - 2))


def number(value: float) -> Callable[[Tensor], Tensor]:
    return lambda _: torch.tensor(value, dtype=torch.float64)


def alike(x: Tensor) -> Tensor:
    return param(*x.shape)


words |= {
    name: binary(entry, f, other)
    for name, entry, f, other in (
        ("mul", "mul", torch.mul, number(3.14)),
        ("scale", "mul", torch.mul, number(1.7)),
        ("scale_channels", "mul", torch.mul, channels),
        ("scale_features", "mul", torch.mul, channels),
        ("mul_other", "mul", torch.mul, alike),
        ("bias", "add", torch.add, channels),
        ("add_features", "add", torch.add, channels),
        ("bias_of_one", "add", torch.add, lambda _: param(1)),
        ("add_scalar", "add", torch.add, number(0.5)),
        ("add_other", "add", torch.add, alike),
        ("add_itself", "add", torch.add, lambda x: x.detach().clone().requires_grad_()),
        ("subtract", "sub", torch.sub, number(0.2)),
        ("subtract_bias", "sub", torch.sub, channels),
        ("subtract_features", "sub", torch.sub, channels),
        ("divide", "true_divide", torch.true_divide, number(2.0)),
        ("minimum", "minimum", torch.minimum, number(0.3)),
        ("times_labels", "mul", torch.mul, lambda x: torch.sign(alike(x).detach())),
        ("masked", "mul", torch.mul, lambda x: (alike(x).detach() > 0).double()),
    )
}


@word
def one_minus(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("rsub", torch.rsub, x, 1.0)


@word
def swish_by_sigmoid(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("mul", torch.mul, x, run.do("sigmoid", torch.sigmoid, x))


@word
def times_mish(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("mul", torch.mul, x, run.do("nn.functional.mish", F.mish, x))


@word
def times_hardswish(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("mul", torch.mul, x, run.do("nn.functional.hardswish", F.hardswish, x))


@word
def mish_by_softplus(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("mul", torch.mul, run.do("tanh", torch.tanh, run.do("nn.functional.softplus", F.softplus, x)), x)


def sixth(run: Run, x: Tensor) -> Tensor:
    return run.do("true_divide", torch.true_divide, x, torch.tensor(6.0, dtype=torch.float64))


def plus_three(run: Run, x: Tensor) -> Tensor:
    return run.do("add", torch.add, x, torch.tensor(3.0, dtype=torch.float64))


@word
def hardswish_by_clamp(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("mul", torch.mul, x, run.do("clamp", torch.clamp, sixth(run, plus_three(run, x)), 0, 1))


@word
def hardswish_by_sigmoid(run: Run, x: Tensor, _: str) -> Tensor:
    return sixth(run, run.do("mul", torch.mul, x, run.do("sigmoid", torch.sigmoid, plus_three(run, x))))


# Products and convolutions.


@word
def matmul(run: Run, x: Tensor, shape: str) -> Tensor:
    return run.do("matmul", torch.matmul, x, param(*shape_of(shape)))


@word
def matmul_transposed(run: Run, x: Tensor, shape: str) -> Tensor:
    b = param(*shape_of(shape))
    return run.take(Call("matmul", {"a": x, "b": b}, {"transpose_b": True}), x @ b.T)


@word
def einsum4d(run: Run, x: Tensor, shape: str) -> Tensor:
    equation = "bijl,lk->bijk"
    b = param(*shape_of(shape))
    return run.take(entries["einsum"]((x, b), equation), torch.einsum(equation, x, b))


@word
def diagonal_matmul(run: Run, x: Tensor, shape: str) -> Tensor:
    b = param(*shape_of(shape))
    return run.take(entries["einsum"]((x, b), "i,ij->ij"), torch.diag(x) @ b)


@word
def symmetric(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("add", torch.add, x, run.do("transpose", torch.transpose, x, 0, 1))


@word
def triu(run: Run, x: Tensor, _: str) -> Tensor:
    mask = torch.ones_like(x, dtype=torch.bool).triu()
    call = Call("where", {"condition": mask, "a": x, "b": torch.zeros((), dtype=torch.float64)})
    return run.take(call, torch.triu(x))


@word
def tril(run: Run, x: Tensor, _: str) -> Tensor:
    mask = torch.ones_like(x, dtype=torch.bool).tril()
    call = Call("where", {"condition": mask, "a": x, "b": torch.zeros((), dtype=torch.float64)})
    return run.take(call, torch.tril(x))


@word
def linear(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.linear", F.linear, x, param(6, x.shape[-1]), param(6))


@word
def linear_without_bias(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.linear", F.linear, x, param(6, x.shape[-1]))


OUT_CHANNELS = 4


def window(text: str) -> dict[str, tuple[int, ...]]:
    return {key: shape_of(value) for key, value in (part.split("=") for part in text.split(","))}


def settings_of(of: dict[str, tuple[int, ...]], rank: int, **names: str) -> dict[str, Any]:
    return {name: of[k] * (rank if len(of[k]) == 1 else 1) for name, k in names.items() if k in of}


@word
def conv(run: Run, x: Tensor, text: str) -> Tensor:
    of, rank = window(text), x.ndim - 2
    (groups,) = of.get("g", (1,))
    settings = settings_of(of, rank, stride="s", padding="p", dilation="d")
    weight = param(OUT_CHANNELS, x.shape[1] // groups, *of["k"])
    f = getattr(F, f"conv{rank}d")
    return run.do(f"nn.functional.conv{rank}d", f, x, weight, param(OUT_CHANNELS), groups=groups, **settings)


@word
def conv_transpose(run: Run, x: Tensor, text: str) -> Tensor:
    of, rank = window(text), x.ndim - 2
    (groups,) = of.get("g", (1,))
    settings = settings_of(of, rank, stride="s", padding="p", dilation="d", output_padding="o")
    weight = param(x.shape[1], OUT_CHANNELS // groups, *of["k"])
    f = getattr(F, f"conv_transpose{rank}d")
    return run.do(f"nn.functional.conv_transpose{rank}d", f, x, weight, param(OUT_CHANNELS), groups=groups, **settings)


def pooled(kind: str) -> Word:
    def pool(run: Run, x: Tensor, text: str) -> Tensor:
        of, rank = window(text), x.ndim - 2
        settings = settings_of(of, rank, kernel_size="k", stride="s", padding="p", dilation="d")
        return run.do(f"nn.functional.{kind}{rank}d", getattr(F, f"{kind}{rank}d"), x, **settings)

    return pool


words |= {"max_pool": pooled("max_pool"), "avg_pool": pooled("avg_pool")}


# Norms and reductions.


@word
def batch_norm(run: Run, x: Tensor, _: str) -> Tensor:
    running = torch.zeros(x.shape[1], dtype=torch.float64), torch.ones(x.shape[1], dtype=torch.float64)
    more = (param(x.shape[1]), param(x.shape[1]), True)
    return run.do("nn.functional.batch_norm", F.batch_norm, x, *running, *more)


@word
def instance_norm(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.instance_norm", F.instance_norm, x)


@word
def group_norm(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.group_norm", F.group_norm, x, 2, param(x.shape[1]), param(x.shape[1]))


@word
def layer_norm(run: Run, x: Tensor, shape: str) -> Tensor:
    over = shape_of(shape) if shape else x.shape[-1:]
    return run.do("nn.functional.layer_norm", F.layer_norm, x, over, param(*over), param(*over))


@word
def rms_norm(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.rms_norm", F.rms_norm, x, x.shape[-1:], None, 1e-5)


@word
def divided_by_norm(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("true_divide", torch.true_divide, x, run.do("linalg.vector_norm", torch.linalg.vector_norm, x))


@word
def divided_by_row_norm(run: Run, x: Tensor, _: str) -> Tensor:
    norm = run.do("linalg.vector_norm", torch.linalg.vector_norm, x, dim=1, keepdim=True)
    return run.do("true_divide", torch.true_divide, x, norm)


@word
def divided_by_mean_abs(run: Run, x: Tensor, _: str) -> Tensor:
    mean = run.do("mean", torch.mean, run.do("abs", torch.abs, x), 1, keepdim=True)
    return run.do("true_divide", torch.true_divide, x, mean)


def dims_of(text: str) -> tuple[list[int], bool]:
    return [int(d) for d in text.split(",") if d not in ("keep", "")], text.endswith("keep")


def reduced(entry: str, f: Callable[..., Any]) -> Word:
    def reduce(run: Run, x: Tensor, text: str) -> Tensor:
        dims, keepdim = dims_of(text)
        return run.do(entry, f, x, dims or list(range(x.ndim)), keepdim=keepdim)

    return reduce


def extreme(f: Callable[..., Any]) -> Word:
    def choose(run: Run, x: Tensor, text: str) -> Tensor:
        (dim,), keepdim = dims_of(text)
        return run.do(f"{f.__name__}.reduction_with_dim", f, x, dim, keepdim=keepdim)

    return choose


words |= {
    "sum": reduced("sum", torch.sum),
    "mean": reduced("mean", torch.mean),
    "logsumexp": reduced("logsumexp", torch.logsumexp),
    "max": extreme(torch.max),
    "min": extreme(torch.min),
}


@word
def minus_mean(run: Run, x: Tensor, text: str) -> Tensor:
    return run.do("sub", torch.sub, x, run.do("mean", torch.mean, x, dims_of(text)[0], keepdim=True))


@word
def softmax(run: Run, x: Tensor, dim: str) -> Tensor:
    return run.do("softmax", torch.softmax, x, int(dim or 1))


@word
def cumsum_reverse(run: Run, x: Tensor, _: str) -> Tensor:
    return run.take(Call("cumsum", {"x": x}, {"dim": 1, "reverse": True}), x.flip(1).cumsum(1).flip(1))


@word
def zero_before(run: Run, x: Tensor, _: str) -> Tensor:
    padded = run.do("cat", torch.cat, (torch.zeros_like(x[:, :1]), x), 1)
    return run.do("narrow", torch.narrow, padded, 0, 0, x.shape[0] - 1)


# Shapes.


def reshaped(to: Callable[[Tensor], list[int]]) -> Word:
    return lambda run, x, _: run.do("reshape", torch.reshape, x, to(x))


words |= {
    "unsqueeze": reshaped(lambda x: [x.shape[0], 1, 1, x.shape[1]]),
    "squeeze": reshaped(lambda x: [x.shape[0], x.shape[3]]),
    "unsqueeze_line": reshaped(lambda x: [x.shape[0], 1, x.shape[1]]),
    "squeeze_line": reshaped(lambda x: [x.shape[0], x.shape[2]]),
    "flatten": reshaped(lambda x: [*x.shape[:2], -1]),
    "unflatten": reshaped(lambda x: [*x.shape[:2], *[round(x.shape[2] ** (1 / 3))] * 3]),
}


# Losses and attention.


@word
def mse_loss(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.mse_loss", F.mse_loss, x, alike(x))


@word
def smooth_l1_loss(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.smooth_l1_loss", F.smooth_l1_loss, x, alike(x))


@word
def cross_entropy(run: Run, x: Tensor, _: str) -> Tensor:
    target = torch.arange(x.shape[0]) * 5 % x.shape[1]
    return run.do("nn.functional.cross_entropy", F.cross_entropy, x, target)


@word
def kl_div(run: Run, x: Tensor, _: str) -> Tensor:
    target = alike(x).detach().softmax(-1).requires_grad_()
    return run.do("nn.functional.kl_div", F.kl_div, x, target, reduction="batchmean")


@word
def triplet_margin_loss(run: Run, x: Tensor, _: str) -> Tensor:
    return run.do("nn.functional.triplet_margin_loss", F.triplet_margin_loss, x, alike(x), alike(x), margin=1.0)


@word
def attention(run: Run, x: Tensor, _: str) -> Tensor:
    f = F.scaled_dot_product_attention
    return run.do("nn.functional.scaled_dot_product_attention", f, x, alike(x), alike(x))


def run_of(problem: Problem) -> Run:
    """Its steps on random numbers, each from the result of the one before."""
    torch.manual_seed(7)
    run, x = Run(), param(*problem.shape)
    for name, text in problem.steps:
        x = words[name](run, x.detach().requires_grad_(x.is_floating_point()), text)
    return run
