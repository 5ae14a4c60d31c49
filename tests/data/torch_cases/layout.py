"""Cases of the operators that move elements: transpose, reshape, concat, split, slice, pad, tile, expand, gather,
scatter_add, index_select."""
import torch
import torch.nn.functional as F

from case import values, write_case


def one_to_one(op, case, attributes, shape, f, copies=None):
    """y = f(x) with its gradient; copies: the most that one element of x has in y, where that is a sum."""
    x = values(*shape, seed=1).requires_grad_()
    y = f(x)
    g = values(*y.shape, seed=2)
    y.backward(g)
    write_case(op, case, attributes, [("x", x, "input"), ("grad_y", g, "grad_output")],
               [("y", y, "output"), ("grad_x", x.grad, "grad_input")],
               {"y": 0, "grad_x": copies or 0})


one_to_one("transpose", "dim0_dim1", {"dim0": -1, "dim1": 0}, (2, 3, 4), lambda x: x.transpose(-1, 0))
one_to_one("transpose", "reversed", {}, (2, 3, 4), lambda x: x.permute(2, 1, 0))
one_to_one("transpose", "scalar", {"perm": []}, (), lambda x: x.permute(()))
one_to_one("reshape", "inferred", {"shape": [2, -1, 3]}, (4, 6), lambda x: x.reshape(2, -1, 3))
one_to_one("reshape", "to_scalar", {"shape": []}, (1, 1), lambda x: x.reshape(()))
one_to_one("reshape", "empty", {"shape": [3, -1]}, (0, 3), lambda x: x.reshape(3, -1))
one_to_one("slice", "steps", {"starts": [1, -3], "ends": [100, -1], "dims": [0, 2], "steps": [2, 1]}, (6, 2, 5),
           lambda x: x[1:100:2, :, -3:-1])
one_to_one("slice", "downwards", {"starts": [-1], "dims": [1], "steps": [-2]}, (2, 5),
           lambda x: x.flip(1)[:, ::2])
one_to_one("slice", "nothing", {"starts": [3], "ends": [2]}, (5, 2), lambda x: x[3:2])
one_to_one("pad", "constant", {"pad": [1, 2, 0, 3], "value": -1.5}, (2, 3, 4), lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5), 1)
one_to_one("pad", "cropped", {"pad": [-1, 2, 1, -2]}, (4, 3), lambda x: F.pad(x, (-1, 2, 1, -2)), 1)
one_to_one("pad", "reflect", {"pad": [3, 2, 1, 1], "mode": "reflect"}, (1, 3, 4), lambda x: F.pad(x, (3, 2, 1, 1), "reflect"), 9)
one_to_one("pad", "reflect_one_side", {"pad": [2, 0], "mode": "reflect"}, (2, 4), lambda x: F.pad(x, (2, 0), "reflect"), 2)
one_to_one("pad", "replicate", {"pad": [3, 2, 0, 1], "mode": "replicate"}, (2, 3, 4), lambda x: F.pad(x, (3, 2, 0, 1), "replicate"), 8)
one_to_one("pad", "replicate_one", {"pad": [3, 2], "mode": "replicate"}, (2, 1), lambda x: F.pad(x, (3, 2), "replicate"), 6)
one_to_one("pad", "circular", {"pad": [4, 1], "mode": "circular"}, (2, 4), lambda x: F.pad(x, (4, 1), "circular"), 3)
one_to_one("tile", "leading", {"repeats": [2, 3, 1]}, (2, 4), lambda x: x.tile(2, 3, 1), 6)
one_to_one("tile", "trailing", {"repeats": [3]}, (2, 2, 3), lambda x: x.tile(3), 3)
one_to_one("expand", "rank", {"shape": [3, -1, 4]}, (2, 1), lambda x: x.expand(3, -1, 4), 12)
one_to_one("expand", "to_nothing", {"shape": [0, 3]}, (1, 3), lambda x: x.expand(0, 3), 0)


def concat(case, dim, *shapes):
    x = [values(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    y = torch.cat(x, dim)
    g = values(*y.shape, seed=9)
    y.backward(g)
    write_case("concat", case, {"dim": dim}, [(f"x_{i}", t, "input") for i, t in enumerate(x)] + [("grad_y", g, "grad_output")],
               [("y", y, "output")] + [(f"grad_x_{i}", t.grad, "grad_input") for i, t in enumerate(x)])


concat("rows", 0, (2, 3), (1, 3), (0, 3), (4, 3))
concat("columns", -1, (2, 1, 3), (2, 1, 2))


def split(case, attributes, shape, sizes):
    x = values(*shape, seed=1).requires_grad_()
    y = torch.split(x, sizes, attributes.get("dim", 0))
    g = [values(*t.shape, seed=i + 2) for i, t in enumerate(y)]
    torch.autograd.backward(y, g)
    write_case("split", case, attributes, [("x", x, "input")] + [(f"grad_y_{i}", t, "grad_output") for i, t in enumerate(g)],
               [(f"y_{i}", t, "output") for i, t in enumerate(y)] + [("grad_x", x.grad, "grad_input")])


split("size", {"split_size": 3, "dim": 1}, (2, 7), 3)
split("sections", {"sections": [1, 0, 4]}, (5, 2), [1, 0, 4])
split("empty", {"split_size": 2}, (0, 2), 2)


def indexed(op, case, dim, shape, index, f, hits):
    index = torch.tensor(index)
    x = values(*shape, seed=1).requires_grad_()
    y = f(x, dim, index)
    g = values(*y.shape, seed=2)
    y.backward(g)
    write_case(op, case, {"dim": dim}, [("x", x, "input"), ("index", index, "index"), ("grad_y", g, "grad_output")],
               [("y", y, "output"), ("grad_x", x.grad, "grad_input")], {"grad_x": hits})


indexed("gather", "rows", 0, (4, 3), [[0, 3], [0, 1], [0, 3], [2, 3]], torch.gather, 3)
indexed("gather", "last", -1, (2, 3), [[2, 2, 2, 0, 2]], torch.gather, 4)
indexed("gather", "scalar", 0, (), 0, torch.gather, 1)
indexed("index_select", "middle", 1, (2, 4, 3), [3, 0, 3, 3, 1], torch.index_select, 3)
indexed("index_select", "none", 0, (3, 2), torch.empty(0, dtype=torch.int64).numpy(), torch.index_select, 0)


def scatter_add(case, dim, shape, index, src_shape, hits):
    index = torch.tensor(index)
    x, src = values(*shape, seed=1).requires_grad_(), values(*src_shape, seed=3).requires_grad_()
    y = x.scatter_add(dim, index, src)
    g = values(*y.shape, seed=2)
    write_case("scatter_add", case, {"dim": dim},
               [("x", x, "input"), ("index", index, "index"), ("src", src, "input"), ("grad_y", g, "grad_output")],
               [("y", y, "output"), ("grad_x", g, "grad_input"),
                ("grad_src", torch.autograd.grad(y, src, g)[0], "grad_input")], {"y": 1 + hits})


scatter_add("rows", 0, (4, 3), [[0, 3], [0, 1], [0, 3], [2, 3]], (4, 2), 3)
