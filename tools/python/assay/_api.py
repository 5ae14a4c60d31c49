"""What the package computes and judges."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from ._arrays import like, named, to_numpy
from ._declarations import operator
from ._order import Order, stated
from ._progress import bars
from ._verdict import Verdict

Policies = str | Sequence[str]
"""Tolerance policies by name or .toml file; of several the first decides."""


def golden(op: str, inputs: Any, attributes: Mapping[str, Any] | None = None, *, level: str = "fp64") -> dict[str, Any]:
    """What the operator's outputs should be.

    Args:
        op: a name or an alias of OPERATORS.md.
        inputs: arrays by the operator's names for them; one array alone is the first input. Gradients follow
            where those of the outputs are among them (``"grad_y"``).
        attributes: where they are not the defaults: ``{"eps": 1e-6}``.
        level: ``"fp64"``; ``"report"``, float32 arithmetic on float32 inputs; ``"certified"``, correctly
            rounded to float32, with proof.

    Returns:
        All outputs by name: torch tensors for torch inputs, else numpy arrays; float64, of level report and
        certified float32, indices int64.

    Raises:
        Error: for unknown operators and attributes, and for shapes that contradict.

    >>> assay.golden("softmax", [0.0, 0.0])["y"].tolist()
    [0.5, 0.5]
    """
    return like(_core.golden(op, named(inputs, _first_input(op, inputs), "input"), _flat(attributes), level), inputs)


def bound(
    op: str,
    inputs: Any,
    attributes: Mapping[str, Any] | None = None,
    *,
    dtype: str = "float32",
    accumulator: str | Order = "",
    intermediate: str | None = None,
) -> dict[str, Any]:
    """The error that a correct kernel may make, for each output and element, before it stores the result.

    Args:
        dtype: of the kernel's arithmetic.
        accumulator: how the device adds: ``"hopper"``, ``"bfloat16,tree"``, what `reveal_order` found, or a .json
            file of ``assay order``; by default in `dtype`, in any order.
        intermediate: the dtype in which results between steps are kept.

    Source:
        Running error analysis, Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.3;
        docs/check.md.

    >>> 0 < float(assay.bound("exp", [1.0])["y"][0]) < 1e-5
    True
    """
    given = named(inputs, _first_input(op, inputs), "input")
    return like(_core.bound(op, given, _flat(attributes), stated(accumulator), intermediate, dtype, []), inputs)


def judge(
    op: str,
    inputs: Any,
    outputs: Any,
    attributes: Mapping[str, Any] | None = None,
    *,
    tolerance: Policies = "derived",
    level: str = "fp64",
    accumulator: str | Order = "",
    intermediate: str | None = None,
    whole: bool = False,
    causes: bool = True,
    prove: bool = False,
) -> Verdict:
    """Judges what a kernel computed. Raises nothing for a wrong output.

    Args:
        op, inputs, attributes: as for `golden`.
        outputs: arrays by the operator's names for them (``"y"``, ``"grad_x"``); one array alone is the first
            output. Each is judged in its own dtype.
        tolerance: ``"derived"`` (the error bound of this very call), another policy or a .toml file; of
            several the first decides.
        accumulator, intermediate: what is known of the device, as for `bound`.
        whole: fail a common factor within every element's bound where results are kept narrow, too.
        causes: also look for what makes a failing output.
        prove: also inject faults into golden outputs, each of which must be rejected.

    Raises:
        Error: for what is no call of the operator: unknown names, shapes of inputs that contradict.

    >>> assay.judge("relu", [-1.0, 2.0], [0.0, 2.0]).passed
    True
    """
    given = named(inputs, _first_input(op, inputs), "input")
    made = named(outputs, None if isinstance(outputs, Mapping) else operator(op).outputs[0], "output")
    settings, device = _flat(attributes), stated(accumulator)
    tolerances = [tolerance] if isinstance(tolerance, str) else list(tolerance)
    report = _core.judge(op, given, made, settings, tolerances, level, device, intermediate, whole, causes, prove, 1)
    return Verdict(report, lambda: _core.score(op, given, made, settings, tolerances, device, intermediate))


def generate(
    op: str,
    sizes: Mapping[str, int | Sequence[int]],
    attributes: Mapping[str, Any] | None = None,
    *,
    dtype: str = "float32",
    fill: str = "random",
    leave_out: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Inputs for a call, with gradients of its outputs: legal indices, values in the operator's domain.

    Args:
        sizes: extents by the letters of the declared shapes; of a starred letter a list: ``{"N": [2, 3]}``.
        dtype: that values are rounded to; they are float64 arrays of numpy.
        fill: ``"random"``, ``"integer"`` (every partial result is exact) or ``"special"`` (NaN, infinities,
            subnormals, zeros of both signs).
        leave_out: optional inputs that are not given.

    >>> sorted(assay.generate("rms_norm", {"N": [4], "C": [8]}))
    ['grad_y', 'weight', 'x']
    """

    def text(extent: int | Sequence[int]) -> str:
        return str(extent) if isinstance(extent, int) else "x".join(str(e) for e in extent)

    call = ",".join(f"{letter}={text(extent)}" for letter, extent in sizes.items())
    made = _core.generate(op, call, _flat(attributes), list(leave_out), fill, dtype, seed)
    return {name: to_numpy(t) for name, t in made}


def save_case(
    folder: str | os.PathLike[str],
    op: str,
    inputs: Any,
    outputs: Any,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Writes a call into a new folder, which ``assay check`` judges again."""
    _core.write_case(
        os.fspath(folder),
        os.fsencode(os.path.basename(os.fspath(folder))).decode("utf-8", "replace"),
        op,
        named(inputs, _first_input(op, inputs), "input"),
        named(outputs, None if isinstance(outputs, Mapping) else operator(op).outputs[0], "output"),
        _flat(attributes),
    )


def diff(
    actual: Any,
    reference: Any,
    *,
    rules: str | os.PathLike[str] | None = None,
    tolerance: Policies = "telechat3",
    only: str = "",
    end_to_end: bool = False,
) -> Verdict:
    """Judges all tensors of one side by those of the other, as ``assay diff`` does.

    Args:
        actual, reference: both paths of any readable format, or both mappings of names to arrays (state
            dicts).
        rules: a TOML file (docs/rules.md).
        tolerance: ``"telechat3"``, ``"torch"``, ``"bitwise"`` or a .toml file; the first decides.
        only: a glob over names.
        end_to_end: the tolerance alone decides, however much rounding was amplified on the way.

    >>> assay.diff({"w": [1.0, 2.0]}, {"w": [1.0, 2.5]}).failures[0].name
    'w'
    """
    is_path = [isinstance(side, (str, os.PathLike)) for side in (actual, reference)]
    if any(is_path) and not all(is_path):
        raise TypeError("diff: one side is a path and the other is not; expected two paths or two mappings")
    tolerances = [tolerance] if isinstance(tolerance, str) else list(tolerance)
    with bars() as progress:
        how = _core.DiffSettings(tolerances, None if rules is None else os.fspath(rules), only, end_to_end, progress)
        if all(is_path):
            return Verdict(_core.diff_paths(os.fspath(actual), os.fspath(reference), how))
        return Verdict(_core.diff_tensors(named(actual, None, "actual"), named(reference, None, "reference"), how))


def policies() -> list[str]:
    """The names of the built-in tolerance policies."""
    return _core.policy_names()


def set_threads(threads: int) -> None:
    """How many threads a call may take; 1 at first. Their number changes no result."""
    _core.set_threads(threads)


def cases(
    op: str,
    sizes: Sequence[Mapping[str, int | Sequence[int]]],
    dtypes: Sequence[str] = ("float32",),
    attributes: Mapping[str, Any] | None = None,
    *,
    seeds: int = 1,
    leave_out: Sequence[str] = (),
) -> list[Case]:
    """Calls for ``pytest.mark.parametrize``, which takes their ids: each of the sizes in each of the dtypes.

    >>> [case.id for case in assay.cases("softmax", [{"A": [2], "C": [8], "B": []}], ["float32", "bfloat16"])]
    ['softmax-float32-A2_C8_B', 'softmax-bfloat16-A2_C8_B']
    """
    name = operator(op).name
    return [
        Case(name, dict(size), dtype, dict(attributes or {}), tuple(leave_out), seed)
        for dtype in dtypes
        for size in sizes
        for seed in range(seeds)
    ]


@dataclass(frozen=True)
class Case:
    """A call that is generated when it is asked for."""

    op: str
    sizes: Mapping[str, int | Sequence[int]]
    dtype: str
    attributes: Mapping[str, Any]
    leave_out: tuple[str, ...] = ()
    seed: int = 0

    @property
    def id(self) -> str:
        extents = (
            letter + (str(e) if isinstance(e, int) else "x".join(str(n) for n in e)) for letter, e in self.sizes.items()
        )
        return "-".join([self.op, self.dtype, "_".join(extents), *([f"seed{self.seed}"] if self.seed else [])])

    @property
    def __name__(self) -> str:  # where pytest looks for an id
        return self.id

    @property
    def inputs(self) -> dict[str, Any]:
        """float64 arrays of numpy, with values of the dtype."""
        return generate(
            self.op, self.sizes, self.attributes, dtype=self.dtype, leave_out=self.leave_out, seed=self.seed
        )

    def judge(self, outputs: Any, **options: Any) -> Verdict:
        return judge(self.op, self.inputs, outputs, self.attributes, **options)


def _flat(attributes: Mapping[str, Any] | None, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in (attributes or {}).items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _first_input(op: str, inputs: Any) -> str | None:
    return None if isinstance(inputs, Mapping) else next(a.name for a in operator(op).args if a.is_given)
