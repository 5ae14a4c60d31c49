"""The permutation of tokens to experts, fused: counts, places and rows in one pass."""

import numpy as np
from assay.testing import assert_matches_golden


def permute(x, index, experts):
    counts = np.bincount(index.ravel(), minlength=experts)
    next_row = np.concatenate([[0], counts.cumsum()[:-1]])
    permuted, sorted_index = np.empty((index.size, x.shape[1]), x.dtype), np.empty(index.size, np.int64)
    for place, expert in enumerate(index.ravel()):
        permuted[next_row[expert]] = x[place // index.shape[1]]
        sorted_index[next_row[expert]] = place
        next_row[expert] += 1
    return {"permuted": permuted, "sorted_index": sorted_index, "tokens_per_expert": counts}


def test_permute():
    random = np.random.default_rng(0)
    x = random.normal(size=(100, 16)).astype(np.float16)
    index = np.array([random.permutation(8)[:2] for _ in x])
    assert_matches_golden("moe_permute", {"x": x, "index": index}, permute(x, index, 8), num_experts=8)
