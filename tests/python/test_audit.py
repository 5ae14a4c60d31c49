import doctest
import math

import assay
import numpy as np
import pytest
from assay import gates


def test_docstrings():
    found = doctest.testmod(gates, extraglobs={"assay": assay})
    assert found.attempted > 0
    assert found.failed == 0


X = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)


def test_trials_are_wrong_and_in_the_kernels_dtype():
    found = gates.trials("softmax", X)
    assert {t.actual.dtype for t in found} == {np.dtype(np.float32)}
    assert {"all zeros", "all NaN", "one row zero", "the outputs of other inputs"} <= {t.fault for t in found}
    golden = assay.golden("softmax", X)["y"].astype(np.float32)
    for t in found:
        assert (t.expected == golden).all()
        assert not np.array_equal(t.actual, golden)


def test_a_gate_is_any_function():
    strict = gates.prove(np.testing.assert_array_equal, "softmax", X)
    assert strict
    assert not strict.accepted
    blind = gates.prove(lambda a, e: True, "softmax", X, name="blind")
    assert not blind
    assert len(blind.accepted) == len(gates.trials("softmax", X))
    assert "blind on softmax" in str(blind)
    wall = gates.prove(lambda a, e: False, "softmax", X)
    assert wall.rejects_golden
    assert not wall


def rule(**options):
    return gates.Rule("rule", "here", {"": (0.0, 0.1)}, **options)


@pytest.mark.parametrize(
    ("close", "options", "actual", "expected"),
    [
        (True, {}, [1.0, 2.0], [1.0625, 2.0]),
        (False, {}, [1.0, 2.0], [1.25, 2.0]),
        (False, {}, [math.nan], [math.nan]),
        (True, {"nan_is_equal": True}, [math.nan], [math.nan]),
        (False, {"nan_is_equal": True}, [math.nan], [1.0]),
        (True, {}, [math.inf], [math.inf]),
        (False, {}, [math.inf], [1.0]),
        (True, {"share": 0.5}, [0.0, 5.0], [0.0, 0.0]),
        (False, {"share": 0.75}, [0.0, 5.0], [0.0, 0.0]),
        (False, {}, [0.0], [0.0, 0.0]),
    ],
)
def test_rules(close, options, actual, expected):
    assert rule(**options)(actual, expected) is close


def test_rules_are_those_of_their_libraries():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    random = np.random.default_rng(1)
    for name in ("float32", "float16", "bfloat16"):
        dtype = getattr(torch, name)
        for scale in 10.0 ** np.arange(-7, 0):
            e = torch.tensor(random.normal(size=4)).to(dtype)
            a = (e.double() * torch.tensor(1 + scale * random.normal(size=4))).to(dtype)
            for rule_, (rtol, atol) in (
                ("torch.testing", (None, None)),
                ("BackendBench", (1e-2, 1e-2)),
                ("robust-kbench", (1e-5, 1e-5)),
            ):
                try:
                    torch.testing.assert_close(a, e, rtol=rtol, atol=atol)
                    passes = True
                except AssertionError:
                    passes = False
                assert gates.rules[rule_](a, e) is passes, (rule_, name, scale)


def test_the_field():
    found = {a.gate: a for a in gates.audit("softmax", X / 8, dtype="bfloat16")}
    assert list(found) == [*gates.rules, *gates.baselines, "assay"]
    assert not any(t.is_trivial for t in found["assay"].accepted)
    assert not found["assay"].rejects_golden
    assert "all zeros" in {t.fault for t in found["mlir-air flash attention"].accepted}


def test_what_a_policy_has_no_rule_for_is_not_let_through():
    found = {a.gate: a for a in gates.audit("softmax", X / 8, dtype="float64")}
    for name in gates.baselines:
        assert found[name].says_nothing and not found[name].accepted and not found[name].rejected
        assert not found[name] and "no rule" in str(found[name])


def test_the_command(capsys):
    assert gates.main(["matmul", "--all"]) == 0
    out = capsys.readouterr().out
    assert "GATE" in out
    assert "KernelBench on matmul" in out
    with pytest.raises(SystemExit):
        gates.main(["no_operator"])
    assert "expected one of" in capsys.readouterr().err


class TestScore:
    def scored(self, y):
        return assay.judge("softmax", X, y).score

    y = assay.golden("softmax", X)["y"].astype(np.float32)

    def test_what_passes_has_one(self):
        assert self.scored(self.y) == 1

    def test_it_falls_with_the_error(self):
        error = np.random.default_rng(2).normal(size=self.y.shape)
        scores = [self.scored((self.y * (1 + t * error)).astype(np.float32)) for t in 10.0 ** np.arange(-8, 1, 0.5)]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == 1
        assert scores[-1] == 0
        assert len(set(scores)) > 6

    @pytest.mark.parametrize("op", ["softmax", "rms_norm", "gelu", "l2_norm"])
    def test_what_has_nothing_of_the_call_has_none(self, op):
        x = np.abs(X) + 0.1
        inputs = {"x": x, "weight": np.ones(64, np.float32)} if op == "rms_norm" else {"x": x}
        name = assay.operator(op).outputs[0]
        for t in gates.trials(op, inputs):
            if t.is_trivial and t.output == name:
                assert assay.judge(op, inputs, {name: t.actual}).score == 0, t.fault
        golden = assay.golden(op, inputs)[name].astype(np.float32)
        for hack in (np.full_like(golden, np.inf), np.ones_like(golden) * 1e30, golden[..., None], -golden):
            assert assay.judge(op, inputs, {name: hack}).score == 0

    def test_a_diff_has_none(self):
        with pytest.raises(TypeError, match="that of judge"):
            _ = assay.diff({"a": X}, {"a": X}).score


def test_what_nothing_was_put_before_is_not_proved():
    found = assay.prove(lambda actual, expected: True, "argmax", [[1.0, 5.0, 2.0]], {"dim": -1})
    assert not found and "nothing is proved" in str(found)
