"""Collectives over a stacked input [ranks, ..]: cases from plain tensor operations in float64, one rank after the
other. Run in this folder."""
import torch
from case import values, write_case

FOLD = {"sum": torch.add, "avg": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}


def fold(parts, kind, order):
    parts = list(parts)
    ranks = len(parts)
    if order == "tree":
        while len(parts) > 1:
            pairs = [FOLD[kind](a, b) for a, b in zip(parts[::2], parts[1::2])]
            parts = pairs + parts[2 * len(pairs) :]
    total = parts[0]
    for part in parts[1:]:
        total = FOLD[kind](total, part)
    return total / ranks if kind == "avg" else total


def from_next_rank(x, chunk):
    return x.roll(-(chunk + 1), 0)


def all_reduce(x, reduce, order=None):
    if order != "ring":
        return fold(x, reduce, order)
    flat = x.flatten(1)
    chunks = flat.split(-(-flat.shape[1] // len(x)), 1)
    return torch.cat([fold(from_next_rank(c, r), reduce, order) for r, c in enumerate(chunks)]).reshape(x.shape[1:])


def reduce_scatter(x, reduce="sum", order=None, dim=0):
    chunks = x.chunk(len(x), dim + 1 if dim >= 0 else dim)
    return torch.stack([fold(from_next_rank(c, r) if order == "ring" else c, reduce, order) for r, c in enumerate(chunks)])


x = values(5, 3, 7, seed=1) / 3  # sums are rounded
for kind, order, count in (("sum", None, 5), ("avg", "ring", 5), ("sum", "tree", 3), ("prod", "rank", 5), ("max", None, 1), ("min", "tree", 1)):
    attributes = {"reduce": kind} | ({"order": order} if order else {})
    case_name = f"{kind}_{order or 'any_order'}"
    write_case("all_reduce", case_name, attributes, [("x", x, "input")], [("y", all_reduce(x, kind, order), "output")], {"y": count})
one = values(1, 3, seed=2)
write_case("all_reduce", "one_rank", {"order": "ring"}, [("x", one, "input")], [("y", one[0], "output")], {"y": 1})

x = values(3, 6, 2, 9, seed=3) / 3
for name, attributes in {"first": {}, "last_ring": {"dim": -1, "order": "ring"}, "avg_tree": {"dim": 2, "order": "tree", "reduce": "avg"}}.items():
    write_case("reduce_scatter", name, attributes, [("x", x, "input")], [("y", reduce_scatter(x, **{"reduce": "sum", **attributes}), "output")])

for name, attributes, y in (("first", {}, torch.cat(list(x))), ("last", {"dim": -1}, torch.cat(list(x), -1))):
    write_case("all_gather", name, attributes, [("x", x, "input")], [("y", y, "output")], {"y": 0})


def all_to_all(x, sizes, split, concat):
    sent = [rank.split(s, split) for rank, s in zip(x, sizes)]
    return [torch.cat([chunks[receiver] for chunks in sent], concat) for receiver in range(len(x))]


even = torch.stack(all_to_all(x, [[2] * 3] * 3, 0, 0))
write_case("all_to_all", "even", {}, [("x", x, "input")], [("y", even, "output")], {"y": 0})
ulysses = torch.stack(all_to_all(x, [[3] * 3] * 3, 2, 0))
write_case("all_to_all", "sequence_to_heads", {"split_dim": 2, "concat_dim": 0}, [("x", x, "input")], [("y", ulysses, "output")])
sizes = [[1, 5, 0], [0, 0, 6], [2, 2, 2]]
uneven = [(f"y_{s}", y, "output") for s, y in enumerate(all_to_all(x, sizes, 0, 0))]
write_case("all_to_all", "uneven_idle_pairs", {"split_sizes": sum(sizes, [])}, [("x", x, "input")], uneven)
sizes = [[0, 2, 0], [0, 1, 1], [0, 2, 0]]
starved = [(f"y_{s}", y, "output") for s, y in enumerate(all_to_all(x, sizes, 1, 1))]
write_case("all_to_all", "one_rank_gets_nothing", {"split_dim": 1, "concat_dim": -2, "split_sizes": sum(sizes, [])}, [("x", x, "input")], starved)
