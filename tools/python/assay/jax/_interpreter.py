"""Runs a jaxpr within a trace as it stands, and hands out what its equations make.

What is traced so is compiled as one program that returns its intermediate values beside its results: the values that it
computes with. Running equation by equation would compute others.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.sharding import NamedSharding, PartitionSpec

from ._equations import call_of
from ._frames import Devices, Draft, Event, Frame, Iterations, Place
from ._modules import Signature, module_of, note_modules

INLINED = set("jit pjit closed_call core_call remat2 remat checkpoint custom_jvp_call custom_vjp_call".split())
"""Primitives that do nothing but run a jaxpr."""
MOVING = set(
    "convert_element_type reshape transpose slice squeeze broadcast_in_dim dynamic_slice copy pvary reshard"
    " stop_gradient sharding_constraint".split()
)
"""What they make of a parameter is one to the modules that are given it."""
BACKWARD = "backward"
"""The module of a scope's backward equations, in it."""
Values = Sequence[Any]


@dataclass
class Interpreter:
    """Of one program."""

    takes_functions: bool
    signatures: dict[str, Signature] = field(default_factory=dict)
    remarks: Counter[str] = field(default_factory=Counter)
    _calls: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, closed: ClosedJaxpr, values: Values, weights: set[int]) -> tuple[list[Any], Frame]:
        """Evaluates a program.

        Args:
            closed: the program.
            values: what it is given.
            weights: the numbers of those that are parameters.
        """
        frame = Frame(weights={id(values[i]) for i in weights})
        results = self._level(closed, values, frame)
        frame.needed = set(map(id, results))
        self._close(frame)
        return results, frame

    def _level(self, closed: ClosedJaxpr, values: Values, frame: Frame) -> list[Any]:
        results = self._evaluate(closed.jaxpr, closed.consts, values, frame, frame.elements)
        frame.results.extend(results)
        return results

    def _evaluate(
        self, jaxpr: Jaxpr, consts: Values, values: Values, frame: Frame, elements: tuple[Any, ...]
    ) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, values, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            # Not JAX's own empty tracers: each value has an id, and lives as long as its level.
            around = (*elements, *equation.source_info.name_stack.stack)
            with equation.ctx.manager:
                outputs = self._run_equation(equation, inputs, frame, around)
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _run_equation(self, equation: Any, inputs: list[Any], frame: Frame, around: tuple[Any, ...]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        if name in INLINED:
            return self._inline(name, params, inputs, frame, around)
        place = Place.of(around)
        event = Event(place, name, inputs, [])
        at = len(frame.events)
        frame.events.append(event)
        if name == "scan":
            event.outputs = self._scan(params, inputs, frame, around, at)
        elif name == "shard_map":
            event.outputs = self._shard_map(params, inputs, frame, around, at)
        elif name == "cond":
            event.outputs = self._cond(params, inputs, frame, around, at)
        else:
            if name == "while":
                self.remarks["nothing in a while loop is recorded"] += 1
            bound = equation.primitive.get_bind_params(params)
            functions, bound = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.10
            made = equation.primitive.bind(*functions, *inputs, **bound)
            event.outputs = list(made) if equation.primitive.multiple_results else [made]
            if name in MOVING and id(inputs[0]) in frame.weights:
                frame.weights.update(map(id, event.outputs))
            self._note_call(event, params, frame, at)
        if place.is_backward:
            frame.gradients.update(map(id, event.outputs))
            frame.has_gradients = True
        return event.outputs

    def _inline(self, name: str, params: Any, inputs: list[Any], frame: Frame, around: tuple[Any, ...]) -> list[Any]:
        inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
        jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, [])
        inputs = _constrained(inputs, params.get("in_shardings"), frame)
        if params.get("differentiated") and params.get("prevent_cse") not in (None, False):
            inputs = _barrier(inputs, frame)  # as jax.checkpoint does: the compiler must not take what is there
        outputs = self._evaluate(jaxpr, consts, inputs, frame, around)
        return _constrained(outputs, params.get("out_shardings"), frame)

    def _note_call(self, event: Event, params: Any, frame: Frame, at: int) -> None:
        place = event.place
        if not self.takes_functions or place.is_repeated or (frame.has_gradients and not place.is_differentiated):
            return
        call = call_of(event.primitive, params, event.inputs, event.outputs)
        if call is None:
            return
        number = next(self._calls)
        # A backward equation is a call of an operator, too: what it is given makes its result.
        scopes = (*place.scopes, BACKWARD) if place.is_backward else place.scopes
        path = f"{module_of(scopes)}.{call.op}()".lstrip(".")
        for slot, tensors in (("input", call.inputs), ("output", call.outputs)):
            for arg, value in tensors:
                draft = Draft(
                    (at, 1), number, path, call.op, "forward", slot, arg, frame.hand_out(value), True, call.attributes
                )
                frame.drafts.append(draft)

    # -- levels within --------------------------------------------------------------------------------------------

    def _within(self, inputs: Values, inner_inputs: Values, frame: Frame, around: tuple[Any, ...]) -> Frame:
        inner = Frame(around)
        for outer, own in zip(inputs, inner_inputs, strict=True):
            if id(outer) in frame.weights:
                inner.weights.add(id(own))
            if id(outer) in frame.gradients:
                inner.gradients.add(id(own))
        return inner

    def _close(self, inner: Frame) -> None:
        note_modules(inner, self._calls, self.signatures)

    def _settle(self, frame: Frame, inner: Frame, outputs: Values, moved: dict[int, Draft]) -> None:
        """What leaves a level within stands if this level uses it."""
        frame.has_gradients = frame.has_gradients or inner.has_gradients
        for own, outer in zip(inner.results, outputs, strict=True):
            if id(own) in inner.gradients:
                frame.gradients.add(id(outer))
            drafts = [moved[id(d)] for d in inner.if_used.get(id(own), ())]
            if drafts:
                frame.if_used.setdefault(id(outer), []).extend(drafts)

    def _scan(self, params: Any, inputs: list[Any], frame: Frame, around: tuple[Any, ...], at: int) -> list[Any]:
        count, carried = params["num_consts"], params["num_carry"]
        consts, first, slices = inputs[:count], inputs[count : count + carried], inputs[count + carried :]
        kept: list[Frame] = []

        def body(carry: Any, x: Any) -> Any:
            given = [*consts, *carry, *x]
            inner = self._within(inputs, given, frame, around)
            results = self._level(params["jaxpr"], given, inner)
            inner.needed = {id(v) for v in results[:carried]}
            self._close(inner)
            kept.append(inner)
            return results[:carried], (results[carried:], inner.out)

        last, (stacked, out) = jax.lax.scan(
            body, first, slices, params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        inner = kept[-1]
        makes_both = any(e.place.is_backward for e in inner.events) and any(
            e.place.is_differentiated and not e.place.is_backward for e in inner.events
        )
        axis = Iterations(params["length"], params["reverse"], makes_both and not Place.of(around).is_backward)
        outputs = [*last, *stacked]
        self._settle(frame, inner, outputs, frame.take(inner, out, at, axis))
        return outputs

    def _shard_map(self, params: Any, inputs: list[Any], frame: Frame, around: tuple[Any, ...], at: int) -> list[Any]:
        mesh, jaxpr = params["mesh"], params["jaxpr"]
        axes = tuple(a for a in mesh.axis_names if a in params["newly_manual_axes"])
        kept: list[Frame] = []

        def body(*given: Any) -> Any:
            inner = self._within(inputs, given, frame, around)
            results = self._level(ClosedJaxpr(jaxpr, ()), given, inner)
            self._close(inner)
            kept.append(inner)
            return results, [x[None] for x in inner.out]

        outputs, out = jax.shard_map(
            body,
            mesh=mesh,
            in_specs=tuple(params["in_specs"]),
            out_specs=(list(params["out_specs"]), PartitionSpec(axes)),
            axis_names=set(axes),
            check_vma=params["check_vma"],
        )(*inputs)
        inner = kept[-1]
        self._settle(frame, inner, outputs, frame.take(inner, out, at, Devices(axes)))
        return list(outputs)

    def _cond(self, params: Any, inputs: list[Any], frame: Frame, around: tuple[Any, ...], at: int) -> list[Any]:
        which, operands = inputs[0], inputs[1:]
        frames: list[Frame] = []

        def evaluate(closed: ClosedJaxpr, given: Values) -> tuple[list[Any], Frame]:
            inner = self._within(operands, given, frame, around)
            results = self._level(closed, given, inner)
            self._close(inner)
            return results, inner

        shapes = [jax.eval_shape(lambda *x, b=b: evaluate(b, x)[1].out, *operands) for b in params["branches"]]

        def branch(n: int) -> Any:
            def run(*given: Any) -> Any:
                results, inner = evaluate(params["branches"][n], given)
                frames.append(inner)
                zeros = [jax.numpy.zeros(s.shape, s.dtype) for i, all in enumerate(shapes) if i < n for s in all]
                more = [jax.numpy.zeros(s.shape, s.dtype) for i, all in enumerate(shapes) if i > n for s in all]
                return results, [*zeros, *inner.out, *more]

            return run

        outputs, out = jax.lax.switch(which, [branch(n) for n in range(len(shapes))], *operands)
        condition = frame.hand_out(which)
        rest = iter(out)
        for n, inner in enumerate(frames[-len(shapes) :]):
            values = list(itertools.islice(rest, len(inner.out)))
            self._settle(frame, inner, outputs, frame.take(inner, values, at, None, (condition, n)))
        return list(outputs)


def _constrained(values: list[Any], shardings: Any, frame: Frame) -> list[Any]:
    made = list(values)
    for i, sharding in enumerate(shardings or ()):
        if isinstance(sharding, NamedSharding):
            made[i] = jax.lax.with_sharding_constraint(values[i], sharding)
            frame.alias(values[i], made[i])
    return made


def _barrier(values: list[Any], frame: Frame) -> list[Any]:
    behind = list(jax.lax.optimization_barrier(values))
    for x, y in zip(values, behind, strict=True):
        frame.alias(x, y)
    return behind
