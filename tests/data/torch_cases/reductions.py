"""Reductions, scans, choices and pooling: cases from PyTorch's float64 autograd. Run in this folder."""
import torch
import torch.nn.functional as F
from case import values, write_case

TIES = [[2.0, -1, 2, 0, 2], [-0.5, -0.5, -3, -0.5, -4], [1, 2, 3, 4, 4]]


def case(op, name, attributes, x, f, counts=None):
    """f(x) is y, or (y, index); index outputs and integer results carry no gradient."""
    x = x.clone().requires_grad_(x.is_floating_point())
    y, index = f(x) if isinstance(f(x), tuple) else (f(x), None)
    inputs, outputs = [("x", x, "input")], []
    if y is not None:
        g = values(*y.shape, seed=7)
        y.backward(g)
        inputs.append(("grad_y", g, "grad_output"))
        outputs.append(("y", y, "output"))
    if index is not None:
        outputs.append(("index", index, "index"))
    if y is not None:
        outputs.append(("grad_x", x.grad, "grad_input"))
    write_case(op, name, attributes, inputs, outputs, counts)


x = values(3, 4, 5, seed=1)
ties = torch.tensor(TIES, dtype=torch.float64)
zeros = values(3, 6, seed=2)
zeros[0, 2] = zeros[1, 1] = zeros[1, 4] = 0
zeros[2] = 0

case("reduce_mean", "middle", {"dims": [1]}, x, lambda x: x.mean(1), {"y": 4, "grad_x": 1})
case("reduce_mean", "outer_two_keep", {"dims": [-1, 0], "keepdim": True}, x, lambda x: x.mean((-1, 0), keepdim=True))
case("reduce_mean", "scalar", {}, values(seed=3), lambda x: x.mean(), {"y": 1})
for op, p in (("reduce_l1", 1), ("reduce_l2", 2)):
    norm = torch.linalg.vector_norm
    case(op, "all", {}, x, lambda x: norm(x, p), {"y": 60})
    case(op, "zeros_in_rows", {"dims": [1]}, zeros, lambda x: norm(x, p, 1), {"y": 6})
    case(op, "outer_two_keep", {"dims": [0, 2], "keepdim": True}, x, lambda x: norm(x, p, (0, 2), True), {"y": 15})

for op, by_dim, even, place in (("reduce_max", torch.max, torch.amax, "argmax"), ("reduce_min", torch.min, torch.amin, "argmin")):
    case(op, "first_of_ties", {"dim": 1, "ties": "index"}, ties, lambda x: tuple(by_dim(x, 1)))
    case(op, "middle_keep", {"dim": -2, "keepdim": True}, x, lambda x: tuple(by_dim(x, -2, keepdim=True)))
    case(op, "even_ties", {"dim": 1, "ties": "even"}, ties, lambda x: even(x, 1))
    case(op, "even_over_two", {"dim": [0, 2], "ties": "even", "keepdim": True}, x, lambda x: even(x, (0, 2), keepdim=True))
    case(op, "even_over_all", {"ties": "even"}, ties, by_dim)
    case(place, "first_of_ties", {"dim": 1}, ties, lambda x: (None, getattr(torch, place)(x, 1)))
    case(place, "all", {}, x, lambda x: (None, getattr(torch, place)(x)))
    last = lambda x: (None, 4 - getattr(torch, place)(x.flip(1), 1, keepdim=True))
    case(place, "last_of_ties", {"dim": 1, "keepdim": True, "select_last_index": True}, ties, last)

case("cumsum", "middle", {"dim": 1}, x, lambda x: x.cumsum(1), {"y": 4, "grad_x": 4})
case("cumsum", "exclusive", {"dim": -1, "exclusive": True}, x, lambda x: x.cumsum(-1) - x)
reverse = {"dim": 0, "exclusive": True, "reverse": True}
case("cumsum", "exclusive_from_the_end", reverse, x, lambda x: x.flip(0).cumsum(0).flip(0) - x)
case("cumprod", "zeros_in_rows", {"dim": 1}, zeros, lambda x: x.cumprod(1), {"y": 6, "grad_x": 6})
case("cumprod", "first", {"dim": 0}, x, lambda x: x.cumprod(0))
case("reduce_prod", "middle_keep", {"dim": 1, "keepdim": True}, x, lambda x: x.prod(1, keepdim=True), {"y": 4})

case("top_k", "smallest_middle", {"k": 2, "dim": 1, "largest": False}, x, lambda x: tuple(x.topk(2, 1, False)))
# torch.topk promises no order of ties: none here.
case("top_k", "all_of_them", {"k": 5}, values(3, 5, seed=8), lambda x: tuple(x.topk(5)))
case("top_k", "none", {"k": 0, "dim": 0}, x, lambda x: tuple(x.topk(0, 0)))
case("sort", "ascending_last", {}, x, lambda x: tuple(x.sort()))
case("sort", "descending_middle", {"dim": 1, "descending": True}, x, lambda x: tuple(x.sort(1, True)))
for descending in (False, True):
    stable = lambda x: tuple(torch.sort(x, stable=True, dim=1, descending=descending))
    case("sort", f"ties_{'descending' if descending else 'ascending'}", {"dim": 1, "descending": descending, "stable": True}, ties, stable)

line, plane, space = values(2, 11, seed=4), values(2, 3, 7, 8, seed=5), values(1, 2, 4, 5, 6, seed=6)


def pool(op, f, name, x, counts=None, **attributes):
    counts = counts and dict(zip(("y", "grad_x"), counts))
    case(op, name, attributes, x, lambda x: f(x, **attributes), counts)


pool("avg_pool", F.avg_pool1d, "1d_no_batch", line, (3, 2), kernel_size=[3], stride=2, padding=1)
pool("avg_pool", F.avg_pool1d, "1d_gaps", line[None], (2, 1), kernel_size=2, stride=4)
pool("avg_pool", F.avg_pool2d, "2d_ceil_pad", plane, (12, 4), kernel_size=[3, 4], stride=[2, 3], padding=[1, 2], ceil_mode=True)
pool("avg_pool", F.avg_pool2d, "2d_ceil_no_count", plane, (6, 2), kernel_size=[2, 3], stride=[3, 2], padding=1, ceil_mode=True, count_include_pad=False)
pool("avg_pool", F.avg_pool3d, "3d", space, (12, 2), kernel_size=[2, 2, 3], stride=[2, 2, 2])
pool("avg_pool", F.avg_pool3d, "3d_divisor_pad", space, (8, 8), kernel_size=2, stride=1, padding=1, divisor_override=-3)
pool("max_pool", F.max_pool1d, "1d", line, (0, 2), kernel_size=[3], stride=2, padding=1)
indices = dict(return_indices=True)
pool("max_pool", F.max_pool1d, "1d_ties", torch.tensor([[[1.0, 1, 0, 1, 1, 2, 2, -1, -1]]], dtype=torch.float64), kernel_size=3, stride=2, **indices)
pool("max_pool", F.max_pool2d, "2d_dilated", plane, (0, 9), kernel_size=3, stride=1, padding=1, dilation=[2, 1], **indices)
pool("max_pool", F.max_pool2d, "2d_ceil", plane, (0, 2), kernel_size=[3, 2], stride=2, padding=1, ceil_mode=True, dilation=[1, 3], **indices)
pool("max_pool", F.max_pool3d, "3d", space, kernel_size=[2, 2, 3], **indices)
