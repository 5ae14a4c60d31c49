"""Sketches in torch: the numbers of an implementation in numpy, and those of C++."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from assay.torch._sketch import MORE, Spec, is_sketched, record_of, sketch, spec_for  # noqa: E402

U = np.uint64
GOLDEN, ROW, COLUMN, PRINT = U(0x9E3779B97F4A7C15), U(0x526F77), U(0x436F6C), U(0x5072696E74)


def mixed(x):
    with np.errstate(over="ignore"):
        x = np.asarray(x, U)
        x = (x ^ (x >> U(30))) * U(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U(27))) * U(0x94D049BB133111EB)
        return x ^ (x >> U(31))


def keys(ids, axis, seed, word=0):
    with np.errstate(over="ignore"):
        return mixed(mixed(U(seed) ^ axis * GOLDEN ^ (U(word) << U(32))) + GOLDEN * (ids.astype(U) + U(1)))


def signs(ids, axis, spec):
    words = [keys(ids, axis, spec.seed, j // 64) >> U(j % 64) for j in range(spec.signs)]
    return 1.0 - 2.0 * (np.stack(words, 1) & U(1)).astype(np.float64)


def oracle(a, spec):
    """Of a whole matrix, element by element as the definition says it."""
    rows, columns = a.shape
    i, c = np.arange(rows), np.arange(columns)
    signed = np.einsum("ic,ij,cj->icj", np.where(np.isfinite(a), a, 0), signs(i, ROW, spec), signs(c, COLUMN, spec))
    values = np.zeros((spec.rows, spec.columns, spec.signs))
    for p in range(spec.rows):
        for q in range(spec.columns):
            own = signed[i * spec.rows // rows == p][:, c * spec.columns // columns == q]
            values[p, q] = own.sum((0, 1))
    bits = np.where(np.isnan(a), U(0x7FF8000000000000), a.view(U))
    with np.errstate(over="ignore"):
        both = keys(i, PRINT ^ ROW, spec.seed)[:, None] + keys(c, PRINT ^ COLUMN, spec.seed)
        return values.ravel(), int(mixed(bits ^ both).sum(dtype=U))


@pytest.mark.parametrize("shape", [(64, 40), (3, 700), (700, 3), (1, 2000), (50, 90)])
@pytest.mark.parametrize("spec", [Spec(), Spec(8, 2, 70, 5)])
def test_has_the_values_of_numpy(shape, spec):
    a = np.random.default_rng(0).normal(size=shape)
    a.flat[7], a.flat[90], a.flat[91], a.flat[92] = np.nan, np.inf, -np.inf, -0.0
    spec = spec_for(shape, spec)
    values, print_ = oracle(a, spec)
    found, fields = record_of(sketch(torch.tensor(a), spec=spec), spec)
    np.testing.assert_allclose(found.numpy(), values, rtol=0, atol=1e-12)
    assert fields["fingerprint"] == f"{print_:016x}"
    assert (fields["nan"], fields["pinf"], fields["ninf"]) == (1, 1, 1)
    finite = a[np.isfinite(a)]
    assert fields["square"] == pytest.approx((finite**2).sum(), rel=1e-13)
    assert fields["peak"] == np.abs(finite).max()


# Those of tests/golden/sketch_test.cpp.
@pytest.mark.parametrize(
    ("shape", "grid", "total", "fingerprint"),
    [
        ((7, 5, 40), (4, 4), 71086, "65cd7ba084b06c80"),
        ((3, 700), (1, 16), 920590, "387044abfa7aed2f"),
        ((700, 3), (16, 1), -799484, "e25eb3a938f4b36f"),
        ((2000,), (1, 16), 1598486, "eecf966a631cc003"),
        ((64, 64), (4, 4), -266089, "4f8e3e488994fe5c"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_has_the_values_of_the_core(shape, grid, total, fingerprint, dtype):
    values = torch.arange(math.prod(shape)) * 2654435761 % 257 - 128
    spec = spec_for(shape)
    assert (spec.rows, spec.columns) == grid
    found, fields = record_of(sketch(values.reshape(shape).to(dtype), spec=spec), spec)
    assert (found * (torch.arange(256) % 97 + 1)).sum() == total
    assert fields["fingerprint"] == fingerprint


def test_boxes_add_up():
    whole = torch.arange(6 * 10 * 33).reshape(6, 10, 33) % 101 - 50.0
    spec = spec_for(whole.shape)
    expected = sketch(whole, spec=spec)
    for cut, dim in ((2, 0), (7, 1), (17, 2)):
        lengths = [cut, whole.shape[dim] - cut]
        parts, total, at = whole.split(lengths, dim), torch.zeros_like(expected), 0
        prints = torch.zeros(1, dtype=torch.int64)
        for part in parts:
            offsets = [0, 0, 0]
            offsets[dim] = at
            at += part.shape[dim]
            one = sketch(part, whole.shape, offsets, spec)
            total += one
            prints += one[-1:].view(torch.int64)
        assert torch.equal(total[: -MORE + 4], expected[: -MORE + 4])
        assert torch.equal(prints, expected[-1:].view(torch.int64))


def test_takes_every_shape_and_kind():
    assert not is_sketched((16, 16)) and is_sketched((257,))
    for tensor in (torch.tensor(3.0), torch.zeros(0, 5), torch.zeros(5, 0), torch.zeros(4, 300).t()):
        assert sketch(tensor).shape == (256 + MORE,)
    large = torch.tensor([-1, 2, 1 << 62])
    assert record_of(sketch(large), Spec())[1]["fingerprint"] == "6a1d2a1a78c0a439"


def test_many_rows_are_taken_piece_by_piece(monkeypatch):
    whole = torch.arange(64 * 40.0).reshape(64, 40)
    expected = sketch(whole)
    monkeypatch.setattr("assay.torch._sketch.AT_ONCE", 130)
    assert torch.equal(sketch(whole), expected)
