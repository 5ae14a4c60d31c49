"""PyTorch's own sample inputs (OpInfo) through the Python API: each of torch's float64 results, forward and backward,
is held to the bound of the golden operator. What is written as a call and judged wrong is a wrong value of assay.

    pytest tests/opinfo               the first samples of each entry
    pytest tests/opinfo --whole       all of them, and the reference inputs: minutes
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from typing import Any

import assay
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from calls import Call, NotACall, entries, leaves  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

CASTS = {"bfloat16": "bfloat16", "half": "float16", "float": "float32", "double": "float64"}
SOME = 6
# How many of the first samples are no call of the operator: more would mean that less is tested.
NO_CALLS = {
    "cat": 1,
    "gather": 2,
    "linalg.vector_norm": 5,
    "nn.functional.batch_norm": 2,
    "nn.functional.scaled_dot_product_attention": 2,
}
infos = {info.full_name: info for info in op_db}


def samples(info: Any, whole: bool) -> Any:
    made = info.sample_inputs("cpu", torch.float64, requires_grad=info.supports_autograd)
    if not whole:
        return itertools.islice(made, SOME)
    if info.reference_inputs_func is None:
        return made
    reference = info.reference_inputs("cpu", torch.float64, requires_grad=info.supports_autograd)
    return itertools.chain(made, as_far_as_made(reference))


def as_far_as_made(reference: Any) -> Any:
    try:
        yield from reference
    except ValueError as error:  # torch 2.13 asks for booleans with a gradient
        warnings.warn(f"torch cannot make more samples: {error}", stacklevel=1)


def judged_sample(info: Any, sample: Any) -> assay.Verdict:
    convert = entries[info.full_name]
    extra = {}
    if info.full_name in CASTS:
        extra["to"] = CASTS[info.full_name]
        sample.input = sample.input.detach().float().double().requires_grad_()
    try:
        inspect.signature(convert).bind(sample.input, *sample.args, **sample.kwargs, **extra)
    except TypeError as error:
        raise NotACall(str(error)) from None
    call = convert(sample.input, *sample.args, **sample.kwargs, **extra)
    return judged(call, list(leaves(info.op(sample.input, *sample.args, **sample.kwargs))))


def judged(call: Call, results: list[Any]) -> assay.Verdict:
    """torch's results of the call, with their gradients."""
    outputs = {n: r for n, r in zip(call.outputs, results, strict=True) if n is not None}
    inputs = dict(call.inputs)
    wanted = {n: x for n, x in inputs.items() if x.requires_grad}
    differentiable = {n: y for n, y in outputs.items() if y.requires_grad}
    if wanted and differentiable:
        torch.manual_seed(0)
        grads = {n: torch.randn_like(y, dtype=torch.float64).to(y.dtype) for n, y in differentiable.items()}
        name = {"loss": "y"}  # cross_entropy's grad_y
        inputs |= {f"grad_{name.get(n, n)}": g for n, g in grads.items()}
        try:
            made = torch.autograd.grad(
                list(differentiable.values()), list(wanted.values()), list(grads.values()), allow_unused=True
            )
        except RuntimeError as error:
            raise NotACall(f"torch cannot differentiate it: {error}") from None
        outputs |= {f"grad_{n}": g for n, g in zip(wanted, made, strict=True) if g is not None}
    return assay.judge(call.op, inputs, outputs, call.attributes, causes=False)


@pytest.mark.parametrize("name", sorted(entries))
def test_torch_is_within_the_bound(name: str, whole: bool, record_property: Any) -> None:
    info = infos[name]
    counts = {"passed": 0, "mistrusted": 0, "not a call": 0, "refused": 0}
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(info, whole):
            try:
                verdict = judged_sample(info, sample)
            except NotACall:
                counts["not a call"] += 1
                continue
            except assay.Error as error:
                counts["refused"] += 1
                wrong.append(f"refused: {error}\n{sample}")
                continue
            if any(f.verdict not in ("passed", "mistrusted") for f in verdict.findings):
                wrong.append(f"{verdict.report()}\n{sample}")
            counts["passed" if verdict.passed else "mistrusted"] += 1
    for what, count in counts.items():
        record_property(what, count)
    assert not wrong, f"{len(wrong)} of {sum(counts.values())}\n" + "\n".join(wrong[:2])
    assert counts["passed"] > 0, counts
    if not whole:
        assert counts["not a call"] == NO_CALLS.get(name, 0), counts
