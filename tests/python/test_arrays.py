"""Arrays of every library reach the core with the values that they have, whatever their layout."""

import array

import assay
import numpy as np
import pytest
from assay import testing


def values(x, **options):
    t = assay.tensor(x, **options)
    return t.dtype, t.shape, t.values()


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"],
)
def test_numpy_dtypes(dtype):
    x = np.array([[0, 1, 2], [3, 0, 1]]).astype(dtype)
    assert values(x) == (dtype, (2, 3), x.astype(float).ravel().tolist())


def layouts(x):
    return {
        "transposed": x.T,
        "every second": x[::2, ::2],
        "reversed": x[::-1, ::-1],
        "broadcast": np.broadcast_to(x[0], x.shape),
        "one column": x[:, 1],
        "empty": x[:0],
        "scalar": x[0, 0, ...],
        "one row": x[1:2],
    }


@pytest.mark.parametrize("layout", layouts(np.zeros((4, 6))))
def test_numpy_layouts(layout):
    x = layouts(np.arange(24, dtype=np.float32).reshape(4, 6))[layout]
    assert values(x) == ("float32", x.shape, x.ravel().tolist())
    frozen = np.array(x)
    frozen.flags.writeable = False
    assert values(frozen)[2] == x.ravel().tolist()


def test_dense_arrays_are_not_copied():
    x = np.zeros(4, dtype=np.float32)
    t = assay.tensor(x)
    x[2] = 7
    assert t.values() == [0, 0, 7, 0]


def test_the_memory_outlives_its_array():
    t = assay.tensor(np.arange(100000, dtype=np.float64))
    assert sum(t.values()) == 99999 * 50000


def test_buffers_numbers_and_lists():
    assert values(array.array("f", [1, 2])) == ("float32", (2,), [1, 2])
    assert values(memoryview(b"\x01\x02")) == ("uint8", (2,), [1, 2])
    assert values(1.5) == ("float64", (), [1.5])
    assert values([[1, 2], [3, 4]]) == ("int64", (2, 2), [1, 2, 3, 4])
    assert values([[1, 2.5]], dtype="bfloat16") == ("bfloat16", (1, 2), [1, 2.5])
    assert values([]) == ("float64", (0,), [])


def test_bits_of_other_dtypes():
    bits = np.array([0x3F80, 0x4000], dtype=np.uint16)
    assert values(bits, dtype="bfloat16") == ("bfloat16", (2,), [1, 2])
    assert values(np.array([0x38], dtype=np.uint8), dtype="float8_e4m3fn")[2] == [1]
    with pytest.raises(assay.Error, match="not the bits of bfloat16; expected integers of 2 bytes"):
        assay.tensor(np.zeros(2, dtype=np.float16), dtype="bfloat16")
    with pytest.raises(assay.Error, match="'bfloat'"):
        assay.tensor(bits, dtype="bfloat")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_ml_dtypes(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = np.array([[1, 2], [-0.5, 4]]).astype(getattr(ml_dtypes, dtype))
    assert values(x) == (dtype, (2, 2), [1, 2, -0.5, 4])
    assert values(x.T) == (dtype, (2, 2), [1, -0.5, 2, 4])


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (np.array([1, 2], dtype=">f4"), "byte order"),
        (np.array([1j]), "complex128"),
        (np.array(["a"]), "expected floats"),
        (np.array([object()]), "expected floats"),
        (np.zeros(2, dtype=[("a", "u1"), ("b", "f4")])["b"], "copy it first"),
        ([[1, 2], [3]], "ragged"),
        ({"a": 1}, "mapping|array"),
        (object(), "is no array"),
        (None, "is no array"),
    ],
)
def test_what_is_no_array_is_refused_with_a_sentence(x, why):
    with pytest.raises((assay.Error, TypeError), match=why):
        assay.tensor(x)


class TestTorch:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize(
        "dtype",
        [
            *["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"],
            *["int64", "int32", "int16", "int8", "uint8", "bool"],
        ],
    )
    def test_dtypes(self, dtype):
        x = self.torch.tensor([[0.0, 1], [2, 1]]).to(getattr(self.torch, dtype))
        assert values(x) == (dtype, (2, 2), x.double().flatten().tolist())
        assert values(x.T)[2] == x.double().T.flatten().tolist()

    def test_gradients_and_strides(self):
        x = self.torch.arange(12.0).reshape(3, 4).requires_grad_()
        assert values(x * 1)[2] == list(range(12))
        assert values(x[:, 1:3])[2] == [1, 2, 5, 6, 9, 10]
        assert values(self.torch.nn.Parameter(x.detach()))[1] == (3, 4)
        assert values(x.expand(2, 3, 4))[1] == (2, 3, 4)

    def test_what_has_no_plain_memory(self):
        for x, why in (
            (self.torch.eye(3).to_sparse(), "to_dense"),
            (self.torch.zeros(2, dtype=self.torch.complex64), "real dtype"),
            (self.torch.zeros(2, device="meta"), "meta|storage|data"),
        ):
            with pytest.raises((assay.Error, TypeError, NotImplementedError, RuntimeError, BufferError), match=why):
                assay.tensor(x)

    def test_results_are_torch_tensors(self):
        x = self.torch.zeros(2, 3)
        found = assay.golden("softmax", x)
        assert found["y"].dtype == self.torch.float64
        self.torch.testing.assert_close(found["y"], self.torch.softmax(x.double(), -1))


class TestJax:
    jax = pytest.importorskip("jax", reason="jax is not installed")

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "float8_e4m3fn"])
    def test_dtypes(self, dtype):
        x = self.jax.numpy.array([[0, 1], [2, 1]]).astype(dtype)
        assert values(x) == (dtype, (2, 2), [0, 1, 2, 1])


def fp4():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    if not hasattr(ml_dtypes, "float4_e2m1fn"):
        pytest.skip("this ml_dtypes has no fp4")
    return ml_dtypes.float4_e2m1fn


def packed(array):
    """As torch has it: two in an element, the first in the low bits."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no fp4")
    codes = torch.from_numpy(array.view(np.uint8))
    return (codes[..., ::2] | codes[..., 1::2] << 4).view(torch.float4_e2m1fn_x2)


def test_fp4_has_the_values_of_ml_dtypes():
    every = np.arange(16, dtype=np.uint8).view(fp4())
    assert values(every) == ("float4_e2m1fn", (16,), every.astype(np.float64).tolist())
    assert values(packed(every)) == ("float4_e2m1fn", (16,), every.astype(np.float64).tolist())
    assert values(packed(every)[3])[2] == [4, 6]
    assert np.array_equal(assay.golden("neg", every)["y"], -every.astype(np.float64))
    assert assay._arrays.to_numpy(assay.tensor(every)).dtype == fp4()


def test_fp4_outputs_are_judged_by_their_own_rounding():
    x = np.random.default_rng(3).normal(size=(64, 32)).astype(np.float32) * 3  # beyond 6, too
    y = (x * x).astype(fp4())
    for made in (y, packed(y)):
        verdict = assay.judge("mul", {"a": x, "b": x}, made)
        assert verdict, verdict
        testing.assert_matches_golden("mul", {"a": x, "b": x}, made)
    truncated = np.abs(x * x).astype(np.float64)
    steps = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    truncated = steps[np.searchsorted(steps, truncated, side="right") - 1].astype(fp4())
    assert not assay.judge("mul", {"a": x, "b": x}, packed(truncated))
    # The neighbour, 0.45 off, where the nearest is 0.05 off and numbers are 0.5 apart.
    one = {"a": np.float32([1.45]), "b": np.float32([1])}
    assert assay.judge("mul", one, np.array([1.5], fp4()))
    assert not assay.judge("mul", one, np.array([1], fp4()))
    wrong = y.copy()
    wrong[5, 7] = fp4()(6 if float(y[5, 7]) < 4 else 1)
    verdict = assay.judge("mul", {"a": x, "b": x}, wrong)
    assert not verdict and verdict.failures[0].name == "mul y"


def test_fp4_codes_of_quantizations():
    x = np.random.default_rng(4).normal(size=(8, 32)).astype(np.float32)
    # OCP MX 1.0 sec. 6.3: the largest power of two of the block, over that of fp4.
    scale = np.exp2(np.floor(np.log2(np.abs(x).max(-1, keepdims=True))) - 2)
    for op, attributes, made in (
        ("cast", {"to": "float4_e2m1fn"}, {"y": x.astype(fp4())}),
        ("quantize_mx", {"to": "float4_e2m1"}, {"code": np.clip(x / scale, -6, 6).astype(fp4()), "scale": scale}),
    ):
        name, codes = next(iter(made.items()))
        for right in (codes, packed(codes)):
            verdict = assay.judge(op, x, {**made, name: right}, attributes)
            assert verdict, verdict
        flipped = (codes.view(np.uint8) ^ (np.arange(256, dtype=np.uint8).reshape(8, 32) == 77)).view(fp4())
        assert not assay.judge(op, x, {**made, name: packed(flipped)}, attributes)


def test_fp4_tensors_are_compared_bit_by_bit():
    a = np.random.default_rng(5).normal(size=(8, 32)).astype(fp4())
    b = a.copy()
    assert assay.diff({"w": packed(a)}, {"w": b}, tolerance="bitwise")
    b[0, 1] = fp4()(-b[0, 1])
    found = assay.diff({"w": packed(a)}, {"w": b}, tolerance="bitwise")
    assert [f.name for f in found.failures] == ["w"]
    assert not assay.diff({"w": a}, {"w": b})
