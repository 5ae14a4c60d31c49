"""References in torch: right kernels pass, wrong ones do not, and what has no bound is named."""

import assay
import pytest
from assay.testing import assert_matches_reference

torch = pytest.importorskip("torch", reason="torch is not installed")
from assay.reference import UnknownBound, reference  # noqa: E402

functional = torch.nn.functional


def rope(x):
    d = x.shape[-1]
    angles = torch.arange(x.shape[-2])[:, None] / (10000 ** (torch.arange(0, d, 2).float() / d))
    cos, sin, a, b = angles.cos(), angles.sin(), x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def rows(x):
    made = torch.empty_like(x)
    for i, row in enumerate(x):
        made[i] = row.exp()
    return made


def seen_by_a_view(x):
    made = x / 3
    flat = made.view(-1)
    made.mul_(7)
    return flat


def by_blocks(x):
    parts = [p.double().sum(-1) for p in x.split(16, -1)]
    return torch.stack(parts, -1).sum(-1).to(x.dtype)


X, Q = (8, 64), (2, 3, 16, 8)
CALLS = {
    "softmax": (lambda x: torch.softmax(x, -1), [X]),
    "softmax by hand": (lambda x: (e := (x - x.max(-1, keepdim=True).values).exp()) / e.sum(-1, keepdim=True), [X]),
    "mlp": (lambda x, w, b, v: functional.gelu(x @ w + b) @ v, [X, (64, 32), (32,), (32, 16)]),
    "linear": (lambda x, w, b: functional.linear(x, w, b).tanh(), [X, (32, 64), (32,)]),
    "layer_norm": (lambda x, w: functional.layer_norm(x, (64,), w), [X, (64,)]),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (64,), w, 1e-5), [X, (64,)]),
    "group_norm": (lambda x: functional.group_norm(x, 4), [(2, 8, 10)]),
    "attention": (lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), [Q, Q, Q]),
    "rope": (rope, [Q]),
    "conv1d": (lambda x, w, b: functional.conv1d(x, w, b, padding=1), [(2, 4, 20), (6, 4, 3), (6,)]),
    "conv2d": (lambda x, w: functional.conv2d(x, w, stride=2, dilation=2), [(2, 3, 12, 11), (5, 3, 3, 3)]),
    "grouped conv2d": (lambda x, w: functional.conv2d(x, w, groups=2), [(2, 4, 9, 8), (6, 2, 3, 3)]),
    "conv3d": (lambda x, w: functional.conv3d(x.exp(), w, padding=1), [(1, 2, 4, 5, 6), (3, 2, 3, 3, 3)]),
    "conv_transpose2d": (
        lambda x, w, b: functional.conv_transpose2d(x.exp(), w, b, stride=2, output_padding=1),
        [(2, 4, 5, 6), (4, 3, 3, 3), (3,)],
    ),
    "batch_norm": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True), [X, (64,), (64,)]),
    "pool": (lambda x: functional.adaptive_avg_pool2d(x * 3, (3, 2)), [(2, 3, 7, 8)]),
    "activations": (
        lambda x: [getattr(functional, f)(x / 3) for f in "mish hardswish hardsigmoid selu elu leaky_relu".split()],
        [X],
    ),
    "celu": (lambda x: functional.celu(x, 0.7) + functional.logsigmoid(x), [X]),
    "losses": (
        lambda x, y: [
            functional.mse_loss(x, y),
            functional.smooth_l1_loss(x, y, beta=0.5),
            functional.huber_loss(x, y, delta=0.5),
        ],
        [X, X],
    ),
    "cross_entropy": (lambda x: functional.cross_entropy(x, torch.arange(8)), [X]),
    "swiglu": (lambda x: functional.silu(x[:, :32]) * x[:, 32:], [X]),
    "masked": (lambda x: torch.softmax(x.masked_fill(x > 1, float("-inf")), -1), [X]),
    "rows in place": (rows, [X]),
    "a view in place": (lambda x: (y := x.clone(), y[0].mul_(1.1), y.view(-1)[9:].add_(1))[0] / 3, [X]),
    "seen by a view": (seen_by_a_view, [X]),
    "put": (lambda x: (y := x.exp(), y.index_put_((torch.tensor([1, 2]),), x[:2].sin()))[0], [X]),
    "in place": (lambda x: x.clone().mul_(3).add_(1).div_(7), [X]),
    "mean square": (lambda x: ((x - 1) ** 2).mean(), [X]),
    "unit rows": (lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True), [X]),
    "einsum": (lambda q, k: torch.einsum("bhld,bhsd->bhls", q, k), [Q, Q]),
    "two outputs": (lambda x: (x.exp(), x.cumsum(-1)), [X]),
    "named outputs": (lambda x: {"y": x.sigmoid(), "z": (x / 3).amax(-1)}, [X]),
    "weights of a module": (torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Softplus()), [X]),
    "sin": (lambda x: torch.sin(x) + torch.erf(x), [X]),
}


def tensors(shapes, dtype=torch.float32):
    return tuple(torch.randn(s).to(dtype) for s in shapes)


@pytest.mark.parametrize("name", CALLS)
def test_a_right_kernel_passes(name):
    function, shapes = CALLS[name]
    given = tensors(shapes)
    with torch.no_grad():
        verdict = assert_matches_reference(function, given, function(*given))
    assert verdict.ratio < 1


@pytest.mark.parametrize("name", CALLS)
def test_a_bound_is_no_blank_cheque(name):
    function, shapes = CALLS[name]
    found = reference(function, *tensors(shapes))
    assert not found.unknown
    for key, value in found.values.items():
        error = found.errors[key]
        assert error.shape == value.shape
        assert (error > 0).any(), "something rounds"
        assert error.median() < 1e-3 * value.abs().mean()
        wrong = dict(found.values)
        at = error.flatten().argmax()
        wrong[key] = value.clone()
        wrong[key].view(-1)[at] += 3 * error.flatten()[at] + 1e-6 * value.abs().max()
        assert not found.judge({k: v.float() for k, v in wrong.items()})


def test_another_order_of_sums_passes():
    (x,) = tensors([(16, 4096)])
    assert_matches_reference(lambda x: x.sum(-1), x, by_blocks(x))


def test_narrow_kernels():
    x, w = tensors([(8, 64), (64, 32)], torch.bfloat16)
    eager = (x @ w).softmax(-1)
    fused = (x.float() @ w.float()).softmax(-1).bfloat16()
    assert assert_matches_reference(lambda x, w: (x @ w).softmax(-1), (x, w), fused)
    assert assert_matches_reference(lambda x, w: (x @ w).softmax(-1), (x, w), eager, intermediate="bfloat16")
    with pytest.raises(AssertionError, match="outside"):
        assert_matches_reference(lambda x, w: (x @ w).softmax(-1), {"x": x, "w": w}, (x @ w * 1.1).softmax(-1))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("topk", lambda x: x.topk(2).values),
        ("index_put", lambda x: x.clone().index_put_((torch.tensor([1, 1]),), x[:2], accumulate=True)),
        ("max_pool2d_with_indices", lambda x: functional.max_pool2d(x[None], 2)),
        ("add", lambda x: torch.add(x, x, out=torch.empty_like(x))),
        ("div", lambda x: torch.div(x, 3, rounding_mode="floor")),
        ("_local_scalar_dense", lambda x: x * x.exp().sum().item()),
        ("_to_copy", lambda x: x.exp().int().float()),
        ("scatter", lambda x: x.clone().scatter_(0, torch.zeros(X, dtype=torch.int64), x, reduce="add")),
    ],
)
def test_what_has_no_bound_is_named(name, function):
    (x,) = tensors([X])
    with torch.no_grad(), pytest.raises(UnknownBound, match=name):
        assert_matches_reference(function, x, function(x))


def test_limits_that_were_computed_have_errors():
    x, low = tensors([X, X])
    assert assert_matches_reference(lambda x, low: x.clamp(min=low.exp() * 0.7), (x, low), x.clamp(min=low.exp() * 0.7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_without_epsilon_takes_that_of_the_kernel(dtype):
    (x,) = tensors([X], dtype)
    norm = torch.nn.RMSNorm(X[-1], dtype=dtype)
    with torch.no_grad():
        assert assert_matches_reference(norm, x * 1e-4, norm(x * 1e-4))
        assert not reference(norm, (x * 1e-4).double()).judge(norm(x * 1e-4))


def test_modules_stay_as_they_were():
    (x,) = tensors([(3, 4, 16)])
    convolution, norm = torch.nn.Conv1d(4, 2, 3), torch.nn.BatchNorm1d(4)
    with torch.no_grad():
        assert assert_matches_reference(convolution, x, convolution(x))
    assert convolution.weight.dtype == torch.float32
    assert assert_matches_reference(norm.eval(), x, norm(x))
    assert (norm.running_mean == 0).all()


@pytest.mark.parametrize("words", [{"accumulator": "hoper"}, {"intermediate": "bflt16"}])
def test_mistyped_words_are_an_error(words):
    (x,) = tensors([X])
    with pytest.raises(assay.Error, match=r"hoper|bflt16"):
        assert_matches_reference(lambda x: x.exp(), x, x.exp(), **words)


def test_what_does_not_follow_from_it_is_judged():
    (x,) = tensors([X])
    found = reference(lambda x: (x.exp(), x.topk(2).values), x)
    assert found.unknown == {"topk": 1}
    assert torch.isinf(found.errors["output_1"]).all()
    assert not torch.isinf(found.errors["output_0"]).any()


def test_the_caller_stays_as_it_was():
    (x,) = tensors([X])
    before = x.clone()
    reference(lambda x: x.mul_(2), x)
    assert (x == before).all()
    assert torch.get_default_dtype() == torch.float32
    with pytest.raises(ZeroDivisionError):
        reference(lambda x: 1 / 0, x)
    assert torch.get_default_dtype() == torch.float32


def test_other_outputs_are_refused():
    (x,) = tensors([X])
    with pytest.raises(TypeError, match="output_0"):
        assert_matches_reference(lambda x: (x, x), x, x)
    with pytest.raises(AssertionError, match="shape"):
        assert_matches_reference(lambda x: x.exp(), x, x.exp()[:2])
