"""Orders of additions that numpy, PyTorch and functions of our own have."""

import json
import subprocess
import sys

import assay
import numpy as np
import pytest


def lanes(x: np.ndarray, count: int, dtype: type = np.float32) -> np.floating:
    """Every count-th term in a lane, then the lanes from left to right."""
    sums = np.zeros(count, dtype)
    for i in range(0, len(x), count):
        sums[: len(x) - i] += x[i : i + count]
    total = sums[0]
    for s in sums[1:]:
        total = dtype(total + s)
    return total


def test_numpy_adds_in_eight_lanes_and_blocks_of_128():
    # numpy/_core/src/umath/loops_utils.h.src, pairwise_sum
    of_128 = assay.reveal_order(np.sum, 128)
    assert of_128.shape == ("8 lanes (term i in lane i mod 8), each one after the other, joined pairwise"), of_128
    assert of_128.bitwise and of_128.accumulator_bits == 24
    of_512 = assay.reveal_order(np.sum, 512)
    assert of_512.shape == f"blocks of 128, each ({of_128.shape}), joined pairwise"
    assert of_512.bitwise


def test_numpy_adds_rows_one_after_the_other():
    order = assay.reveal_order(lambda x: np.add.reduce(np.repeat(x[:, None], 4, 1), axis=0)[0], 64)
    assert order.accumulator == "float32,bitwise,order=0..63"
    assert order.tree[0][0][1] == 61 and order.depth == 63


def test_lanes_of_our_own():
    order = assay.reveal_order(lambda x: lanes(x, 4), 18)
    assert order.shape == "4 lanes (term i in lane i mod 4), each one after the other, joined one after the other"
    assert order.bitwise


def test_a_float64_accumulator_is_seen():
    order = assay.reveal_order(lambda x: np.float32(lanes(x.astype(np.float64), 4, np.float64)), 16)
    assert (order.accumulator_bits, order.bitwise) == (53, True)
    assert order.accumulator.startswith("float64,bitwise,order=")


def test_products_are_rounded_or_fused():
    def dot(x, y):
        total = np.float32(0)
        for a, b in zip(x, y, strict=True):
            total += a * b
        return total

    def fma(x, y):  # exact in longdouble's 64 bits: a product of 48 and a sum of 24 that overlaps it
        total = np.float32(0)
        for a, b in zip(x, y, strict=True):
            total = np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(total))
        return total

    assert assay.reveal_order(dot, 12, "dot").products == "rounded"
    found = assay.reveal_order(fma, 12, "dot")
    assert found.products == "fused"
    if np.finfo(np.longdouble).nmant >= 63:
        assert found.bitwise, found


def test_a_matmul_is_judged_bit_for_bit():
    def kernel(a, b):  # two halves of K, each from left to right
        halves = np.split(np.arange(a.shape[1]), 2)
        parts = []
        for half in halves:
            part = np.zeros((a.shape[0], b.shape[1]), np.float32)
            for k in half:
                part += a[:, k : k + 1] * b[k]
            parts.append(part)
        return parts[0] + parts[1]

    order = assay.reveal_order(kernel, 32, "matmul", shape=(3, 5))
    assert order.shape == "blocks of 16, each one after the other, joined in one addition"
    random = np.random.default_rng(0)
    a, b = (random.normal(size=s).astype(np.float32) for s in [(3, 32), (32, 5)])
    y = kernel(a, b)
    verdict = assay.judge("matmul", {"a": a, "b": b}, y, accumulator=order, prove=True)
    assert verdict.passed, verdict
    assert "every bit of matmul" in verdict.findings[0].rule
    for wrong in (np.nextafter(y, np.float32(9)), (a[:, ::-1] @ b[::-1]).astype(np.float32)):
        verdict = assay.judge("matmul", {"a": a, "b": b}, wrong, accumulator=order)
        assert not verdict.passed
        assert assay.judge("matmul", {"a": a, "b": b}, wrong).passed
        assert any("adds in another order" in note for note in verdict.findings[0].notes)


def test_gradients_may_add_in_another_order():
    def kernel(x, w):  # from the last term on
        y = np.zeros((x.shape[0], w.shape[0]), np.float32)
        for k in reversed(range(x.shape[1])):
            y += x[:, k : k + 1] * w[:, k]
        return y

    order = assay.reveal_order(lambda a, b: kernel(a, np.ascontiguousarray(b.T)), 24, "matmul", shape=(24, 24))
    random = np.random.default_rng(0)
    x, w, grad_y = (random.normal(size=(24, 24)).astype(np.float32) for _ in range(3))
    outputs = {"y": kernel(x, w), "grad_x": grad_y @ w, "grad_w": grad_y.T @ x}
    verdict = assay.judge("linear", {"x": x, "w": w, "grad_y": grad_y}, outputs, accumulator=order)
    assert verdict.passed, verdict
    rules = {f.output: f.rule for f in verdict.findings}
    assert "every bit of linear" in rules["y"]
    assert "accumulator float32 (" in rules["grad_x"], rules


def test_assertions_take_an_order():
    torch = pytest.importorskip("torch")
    order = assay.reveal_order(torch.sum, 64, dtype=torch.float32)
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    assay.testing.assert_matches_golden("reduce_sum", x, torch.sum(x), accumulator=order)
    assay.testing.assert_matches_reference(torch.sum, x, torch.sum(x), accumulator=order)


def test_sums_of_another_length_keep_their_bound():
    order = assay.reveal_order(np.sum, 64)
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    assert assay.judge("reduce_sum", x, np.sum(x), accumulator=order).passed
    assert not assay.judge("reduce_sum", x, np.sum(x) + 1e-3, accumulator=order).passed


def test_a_known_order_bounds_more_sharply():
    order = assay.reveal_order(lambda x: lanes(x, 32), 256)
    x = np.ones(256, np.float32)
    along = order.accumulator.replace(",bitwise", "")
    allowed = float(assay.bound("reduce_sum", x, accumulator=along)["y"])
    assert 0 < allowed < float(assay.bound("reduce_sum", x)["y"]) / 3


def test_orders_are_kept_in_files(tmp_path):
    order = assay.reveal_order(lambda x: lanes(x, 4), 16)
    order.save(tmp_path / "order.json")
    assert json.loads((tmp_path / "order.json").read_text()) == order.to_dict()
    x = np.random.default_rng(0).normal(size=16).astype(np.float32)
    assert assay.judge("reduce_sum", x, lanes(x, 4), accumulator=str(tmp_path / "order.json")).passed
    with pytest.raises(assay.Error, match="expected a name that ends with"):
        order.save(tmp_path / "order")


def test_bfloat16_of_torch():
    torch = pytest.importorskip("torch")
    order = assay.reveal_order(torch.sum, 300, dtype=torch.bfloat16)
    assert order.result == "bfloat16" and order.accumulator_bits == 24
    x = torch.randn(300, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    assert assay.judge("reduce_sum", x, torch.sum(x), accumulator=order).passed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_of_torch(dtype):
    torch = pytest.importorskip("torch")
    of = getattr(torch, dtype)
    order = assay.reveal_order(torch.matmul, 96, "matmul", dtype=of, shape=(8, 8))
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(8, 96, generator=random).to(of), torch.randn(96, 8, generator=random).to(of)
    verdict = assay.judge("matmul", {"a": a, "b": b}, a @ b, accumulator=order)
    assert verdict.passed, (str(order), verdict)


def test_what_has_no_order_is_refused():
    random = np.random.default_rng(0)
    for function, problem in [
        (np.mean, "expected the term itself"),
        (lambda x: np.float32(3), "makes 3"),
        (lambda x: np.sum(x[1:]), "term 0 of 1"),
        (lambda x: x, r"made float32 \[8\]; expected one number"),
        (lambda x: np.sum(random.permutation(x)), "no order was found|not repeatable"),
        (lambda x: np.sum(np.sort(np.abs(x))), "no sum of its terms"),
    ]:
        with pytest.raises(assay.Error, match=problem):
            assay.reveal_order(function, 8)
    import math

    with pytest.raises(assay.Error, match="exact or compensated"):
        assay.reveal_order(lambda x: np.float32(math.fsum(x)), 8)
    with pytest.raises(assay.Error, match="expected sum, dot or matmul"):
        assay.reveal_order(np.sum, 8, "max")


def test_torch_is_not_imported():
    program = "import assay, numpy, sys; assay.reveal_order(numpy.sum, 16); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
