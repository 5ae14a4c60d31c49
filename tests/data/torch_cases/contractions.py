"""Cases of einsum, grouped_matmul and grouped_matmul_reshape_cast."""
import ml_dtypes
import numpy as np
import torch

from case import values, write_case


def einsum(case, equation, *shapes, counts):
    x = [values(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    y = torch.einsum(equation, *x)
    g = values(*y.shape, seed=9)
    y.backward(g)
    write_case("einsum", case, {"equation": equation}, [(f"x_{i}", t, "input") for i, t in enumerate(x)] + [("grad_y", g, "grad_output")],
               [("y", y, "output")] + [(f"grad_x_{i}", t.grad, "grad_input") for i, t in enumerate(x)],
               dict(zip(["y"] + [f"grad_x_{i}" for i in range(len(x))], counts)))


einsum("matmul", "ik,kj->ij", (3, 5), (5, 4), counts=(5, 4, 3))
einsum("implicit_order", "bA,aB", (2, 3), (4, 5), counts=(1, 20, 6))
einsum("implicit_sum", "ba,ca", (2, 3), (4, 3), counts=(3, 4, 2))
einsum("attention", "bqhd, bkhd -> bhqk", (2, 3, 2, 4), (2, 5, 2, 4), counts=(4, 5, 3))
einsum("trace", "ii", (4, 4), counts=(4, 1))
einsum("diagonal", "...ii->i...", (2, 3, 3), counts=(1, 1))
einsum("diagonal_times", "iij,jk->ik", (3, 3, 2), (2, 4), counts=(2, 4, 3))
einsum("three", "i,ij,j->", (3,), (3, 4), (4,), counts=(12, 4, 1, 3))
einsum("outer", "i,j,k->kji", (2,), (3,), (4,), counts=(1, 12, 8, 6))
einsum("ellipsis_broadcast", "...ab,...bc->...ac", (2, 1, 2, 3), (5, 3, 4), counts=(3, 20, 4))
einsum("ellipsis_summed", "...a,a->a", (2, 3, 4), (4,), counts=(6, 1, 6))
einsum("ones_broadcast", "ij,ij->ij", (3, 1), (3, 4), counts=(1, 4, 1))
einsum("empty_sum", "ij,jk->ik", (2, 0), (0, 3), counts=(0, 3, 2))
einsum("one_operand", "abc->cb", (2, 3, 4), counts=(2, 1))


def grouped(x, w, sizes):
    starts = np.cumsum([0] + sizes)
    return torch.cat([x[a:b] @ w[i] for i, (a, b) in enumerate(zip(starts, starts[1:]))])


def grouped_matmul(case, sizes, k, n, transpose, shape=None, to=None):
    x, w = values(sum(sizes), k, seed=1).requires_grad_(), values(len(sizes), *((n, k) if transpose else (k, n)), seed=2).requires_grad_()
    y = grouped(x, w.transpose(1, 2) if transpose else w, sizes)
    attributes = {"transpose_weight": transpose}
    op = "grouped_matmul"
    if shape is not None:
        op += "_reshape_cast"
        attributes |= {"shape": shape, "to": to}
        y = y.reshape(shape)
    g = values(*y.shape, seed=3)
    y.backward(g)
    result = y.detach()
    if to is not None:
        result = result.to(getattr(torch, to))
        result = result.numpy() if to == "float16" else result.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    write_case(op, case, attributes,
               [("x", x, "input"), ("w", w, "param"), ("group_sizes", np.array(sizes, np.int64), "index"), ("grad_y", g, "grad_output")],
               [("y", result, "output"), ("grad_x", x.grad, "grad_input"), ("grad_w", w.grad, "grad_input")],
               {"y": k, "grad_x": n, "grad_w": max(sizes)})


grouped_matmul("empty_groups", [0, 3, 0, 4, 1, 0], 5, 3, False)
grouped_matmul("transposed", [2, 0, 5], 4, 3, True)
grouped_matmul("no_rows", [0, 0], 4, 3, False)
grouped_matmul("bfloat16", [3, 0, 5], 6, 4, False, [2, -1, 2], "bfloat16")
grouped_matmul("float16_transposed", [1, 3], 5, 6, True, [-1], "float16")
