"""What assay.jax.record writes down of small programs, against numpy and what JAX itself says."""

import assay
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")

import assay.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

jax.config.update("jax_num_cpu_devices", 4)


def recorded(folder, function, *args, calls=1, **options):
    """By module, slot, argument, call and micro-batch; and what the function returned."""
    step = assay.jax.record(function, out=folder, **options)
    for _ in range(calls):
        results = step(*args)
    step.close()
    found = {}
    for t in assay.inspect(folder):
        found[t.step, t.micro_batch, t.module, t.slot, t.arg, t.call] = t
    return found, results


def values(t):
    return np.asarray(t.read())


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


def layer(weights, x):
    with jax.named_scope("layers_0/up"):
        h = x @ weights["up"]["kernel"]
    with jax.named_scope("layers_0/act"):
        return jnp.maximum(h, 0) * h


def loss_of(weights, x):
    return layer(weights, x).sum()


WEIGHTS = {"layers_0": {}, "up": {"kernel": draw(4, 6)}}
X = draw(5, 4, seed=1)


def step(weights, x):
    loss, grads = jax.value_and_grad(loss_of)(weights, x)
    return loss, grads, jax.tree.map(lambda w, g: w - 0.5 * g, weights, grads)


def test_modules_have_what_numpy_says(tmp_path):
    dump, (loss, grads, _) = recorded(tmp_path / "dump", jax.jit(step), WEIGHTS, X, results=("loss", "grads", "params"))
    x, w = np.asarray(X), np.asarray(WEIGHTS["up"]["kernel"])
    h = x @ w
    y = np.maximum(h, 0) * h
    grad_h = 2 * np.maximum(h, 0)
    expected = {
        ("layers.0.up", "input", "x"): x,
        ("layers.0.up", "output", "y"): h,
        ("layers.0.act", "input", "x"): h,
        ("layers.0.act", "output", "y"): y,
        ("layers.0.act", "grad_output", "y"): np.ones_like(y),
        ("layers.0.act", "grad_input", "x"): grad_h,
        ("layers.0.up", "grad_output", "y"): grad_h,
    }
    for (module, slot, arg), want in expected.items():
        assert np.array_equal(values(dump[0, 0, module, slot, arg, 0]), want), (module, slot)
    assert values(dump[0, 0, "loss", "loss", "lm", 0]) == y.sum() == loss
    grad = dump[0, -1, "up", "grad", "kernel", 0]
    assert grad.phase == "backward" and np.array_equal(values(grad), x.T @ grad_h)
    assert np.array_equal(np.asarray(grads["up"]["kernel"]), x.T @ grad_h)
    new = [t for t in assay.inspect(tmp_path / "dump") if t.phase == "optimizer"]
    assert [t.name for t in new] == ["up param kernel (step 0, optimizer)"]
    assert np.array_equal(values(new[0]), w - 0.5 * (x.T @ grad_h))


def test_equations_are_calls_of_operators(tmp_path):
    dump, _ = recorded(tmp_path / "dump", step, WEIGHTS, X, functions=True)
    product = {key[3:5]: t for key, t in dump.items() if key[2] == "layers.0.up.einsum()"}
    assert list(product) == [("input", "x_0"), ("input", "x_1"), ("output", "y")]
    assert all(t.op == "einsum" for t in product.values())
    y = values(product["output", "y"])
    x, w = (values(product["input", arg]) for arg in ("x_0", "x_1"))
    assert np.array_equal(np.einsum("ab,bc->ac", x, w), y)
    assert product["output", "y"].attributes == {"equation": "ab,bc->ac"}
    modules = {key[2] for key in dump}
    assert {"layers.0.act.maximum()", "layers.0.act.mul()", "layers.0.up.backward.einsum()"} <= modules
    assert "sub()" not in modules  # the optimizer's
    assert assay.diff(tmp_path / "dump", tmp_path / "dump").passed


def test_a_loop_numbers_its_calls_and_repeats_nothing(tmp_path):
    def deep(weights, x):
        @jax.checkpoint
        def block(x, w):
            with jax.named_scope("block"):
                return jnp.sin(x @ w), None

        return jax.lax.scan(block, x, weights)[0].sum()

    weights = draw(3, 4, 4) / 8
    dump, (_, grads) = recorded(tmp_path / "dump", jax.value_and_grad(deep), weights, X, results=("loss", "grads"))
    x, backs = np.asarray(X), []
    for call, w in enumerate(np.asarray(weights)):
        assert np.allclose(values(dump[0, 0, "block", "input", "x", call]), x, rtol=1e-6)
        backs.append((np.cos(x @ w), w))
        x = np.sin(x @ w)
        assert np.allclose(values(dump[0, 0, "block", "output", "y", call]), x, rtol=1e-5)
    assert not any(key[2] == "block" and key[5] > 2 for key in dump)
    gradient = np.ones_like(x)
    for call in (2, 1, 0):
        assert np.allclose(values(dump[0, 0, "block", "grad_output", "y", call]), gradient, rtol=1e-4)
        cos, w = backs[call]
        gradient = (gradient * cos) @ w.T
    assert np.array_equal(values(dump[0, -1, "", "grad", "weight", 0]), np.asarray(grads))


def test_what_checkpointing_computes_again_is_recorded_once(tmp_path):
    @jax.checkpoint
    def block(w, x):
        with jax.named_scope("block"):
            return jnp.tanh(x @ w).sum()

    dump, _ = recorded(tmp_path / "dump", jax.grad(block), WEIGHTS["up"]["kernel"], X, functions=True)
    calls = {key[5] for key in dump if key[2] == "block.tanh()"}
    assert calls == {0}


def test_products_are_rounded_before_they_are_added(tmp_path):
    def function(x):
        scores = x * np.float32(0.3535)
        masked = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), scores, -1e30)
        return jax.nn.softmax(masked)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(64, 16, 16)).astype(np.float32))
    dump, _ = recorded(tmp_path / "dump", function, x, functions=True)
    a, b = (values(dump[0, 0, "sub()", "input", arg, 0]) for arg in "ab")
    assert np.array_equal(values(dump[0, 0, "sub()", "output", "y", 0]), a - b)


def test_gradients_in_a_loop_are_those_of_micro_batches(tmp_path):
    def accumulate(weights, batches):
        def one(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss_of)(weights, x)), None

        return jax.lax.scan(one, jax.tree.map(jnp.zeros_like, weights), batches)[0]

    batches = jnp.stack([X, 2 * X, -X])
    dump, _ = recorded(tmp_path / "dump", accumulate, WEIGHTS, batches, results="grads")
    for n, factor in enumerate((1, 2, -1)):
        assert np.array_equal(values(dump[0, n, "layers.0.up", "input", "x", 0]), factor * np.asarray(X))
    assert np.array_equal(
        values(dump[0, 1, "layers.0.act", "grad_input", "x", 0]), 2 * np.maximum(2 * X @ WEIGHTS["up"]["kernel"], 0)
    )


def test_only_the_branch_that_was_taken(tmp_path):
    def function(flag, x):
        def scoped(name, factor):
            def branch(x):
                with jax.named_scope(name):
                    return x * factor

            return branch

        return jax.lax.cond(flag, scoped("then", 2.0), scoped("otherwise", 3.0), x)

    dump, y = recorded(tmp_path / "dump", function, jnp.array(True), X, params=1)
    assert np.array_equal(np.asarray(y), 2 * np.asarray(X))
    assert {key[2] for key in dump if key[2]} == {"then"}


def mesh_of():
    return jax.make_mesh((2, 2), ("dp", "ep"), axis_types=(AxisType.Auto,) * 2)


def test_devices_are_ranks_and_shardings_layouts(tmp_path):
    mesh = mesh_of()
    weights = {"up": {"kernel": jax.device_put(WEIGHTS["up"]["kernel"], NamedSharding(mesh, P(None, "ep")))}}
    x = jax.device_put(draw(8, 4), NamedSharding(mesh, P(("dp", "ep"))))
    dump, _ = recorded(tmp_path / "dump", jax.jit(step), weights, x)
    assert np.array_equal(values(dump[0, -1, "up", "param", "kernel", 0]), np.asarray(WEIGHTS["up"]["kernel"]))
    assert np.array_equal(values(dump[0, 0, "layers.0.up", "input", "x", 0]), np.asarray(x))
    text = b"".join(path.read_bytes() for path in (tmp_path / "dump").glob("*"))
    assert b'"placements": ["Replicate()", "Shard(dim=1)"]' in text
    assert b'"placements": ["Shard(dim=0)", "Shard(dim=0)"]' in text


def test_values_in_shard_map_are_each_devices_own(tmp_path):
    mesh = mesh_of()

    def body(w, x):
        with jax.named_scope("up"):
            y = x @ w
        with jax.named_scope("total"):
            total = y.sum()
        with jax.named_scope("joined"):
            return jax.lax.psum(total, ("dp", "ep"))

    function = jax.shard_map(body, mesh=mesh, in_specs=(P(), P(("dp", "ep"))), out_specs=P())
    x = draw(8, 4)
    w = WEIGHTS["up"]["kernel"]
    recorded(tmp_path / "sharded", jax.jit(function), w, x)

    def whole(w, x):
        with jax.named_scope("up"):
            y = x @ w
        with jax.named_scope("total"):
            return y.sum()

    recorded(tmp_path / "whole", whole, w, x)
    text = b"".join(path.read_bytes() for path in (tmp_path / "sharded").glob("*"))
    assert b'"unplaced": ["dp", "ep"]' in text
    verdict = assay.diff(tmp_path / "sharded", tmp_path / "whole")
    passed = {f.name for f in verdict.findings if f.verdict == "passed"}
    # Rows that devices share out, and the addends of a sum.
    assert "up output y (step 0, micro-batch 0, forward)" in passed
    assert "total output y (step 0, micro-batch 0, forward)" in passed


def test_bfloat16_is_rounded_where_the_program_says_so(tmp_path):
    def function(w, x):
        with jax.named_scope("a"):
            y = x * w
        with jax.named_scope("b"):
            return y + x

    x = jax.random.normal(jax.random.key(0), (64,), jnp.bfloat16)
    w = jax.random.normal(jax.random.key(1), (64,), jnp.bfloat16)
    dump, _ = recorded(tmp_path / "dump", function, w, x)
    y = dump[0, 0, "a", "output", "y", 0]
    assert y.dtype == "bfloat16"
    exact = np.asarray(w, np.float32) * np.asarray(x, np.float32)
    assert np.array_equal(values(y), exact.astype(jnp.bfloat16))


@pytest.mark.parametrize("results", [("loss", "gradients"), "weights"])
def test_results_that_have_no_such_name(tmp_path, results):
    with pytest.raises(ValueError, match="expected loss, grads, params, states"):
        assay.jax.record(step, out=tmp_path / "dump", results=results)


def test_without_a_folder_nothing_is_recorded(monkeypatch):
    monkeypatch.delenv("ASSAY_RECORD", raising=False)
    assert assay.jax.record(step) is step


def test_what_goes_wrong_is_said_and_the_program_goes_on(tmp_path, capsys):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    broken = assay.jax.record(step, out=tmp_path / "old", results=("loss", "grads", "params"))
    loss, _, _ = broken(WEIGHTS, X)
    assert loss == step(WEIGHTS, X)[0]
    broken(WEIGHTS, X)
    broken.close()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("assay: ")]
    assert len(said) == 1 and "is not recorded any more" in said[0]
    assert (tmp_path / "old" / "manifest.json").read_text() == "{}"


def test_an_error_of_the_program_is_its_own(tmp_path):
    with pytest.raises(TypeError, match="dot_general requires contracting"):
        assay.jax.record(step, out=tmp_path / "dump", results=("loss", "grads", "params"))(WEIGHTS, X.T)
