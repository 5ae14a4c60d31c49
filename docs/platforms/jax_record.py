"""Records a JAX training program for assay. Copy this file; it needs jax, numpy, ml_dtypes and safetensors.

    def loss_of(weights, tape, tokens, targets):        # the model calls its modules by the tape
        x = tape("embedding", "Embedding", embed, {"weight": weights["embedding.weight"]}, input=tokens)
        ..
    recorder = Recorder("dump", {"lr": 1e-3})
    for step ..:
        recorder.begin(step, weights)
        for micro_batch ..:
            loss, gradient = recorder.run(loss_of, weights, micro_batch, tokens, targets)
        recorder.end(gradient of the step, weights, states)  # states: {"exp_avg": {name: ..}, ..}
    recorder.save()
"""
import json
import os

import jax
import jax.numpy as jnp
import numpy
from safetensors.numpy import save_file

if "xla_allow_excess_precision=false" not in os.environ.get("XLA_FLAGS", ""):
    raise SystemExit("XLA_FLAGS must hold --xla_allow_excess_precision=false: else XLA hands on results that it did not "
                     "round to bfloat16, and what is recorded is not what it computes with")


class Tape:
    """Calls modules; notes what goes into them and what they make. zeros are added to it: their gradients are its own."""

    def __init__(self, zeros):
        self.zeros, self.values, self.ops = zeros, {}, {}

    def __call__(self, module, op, function, weights=None, **inputs):
        self.ops[module] = op
        inputs = {arg: self._note((module, "input", arg), x) for arg, x in inputs.items()}
        return self._note((module, "output", "y"), function(**(weights or {}), **inputs))

    def _note(self, key, x):
        name = " ".join(key)
        if name in self.values:
            raise ValueError(f"{name} is noted twice: a module that is called again needs another name")
        if name in self.zeros:
            x = x + self.zeros[name]
        self.values[name] = x
        return x


class Recorder:
    def __init__(self, folder, settings=None):
        self.folder, self.step, self.tensors, self.lines = folder, 0, {}, []
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(f"{folder}/manifest.json"):  # of a run before this one
            os.remove(f"{folder}/manifest.json")
        self.manifest = {"format": "assay-dump", "version": 1, "world_size": 1, "mesh": {"dims": [], "shape": []},
                         "producer": {"framework": f"jax {jax.__version__}"} | (settings or {})}

    def add(self, phase, module, slot, arg, tensor, op=None, micro_batch=-1):
        name, tensor = f"t{len(self.lines)}", numpy.asarray(tensor)
        self.tensors[name] = numpy.ascontiguousarray(tensor).reshape(tensor.shape)
        self.lines.append(json.dumps({
            "seq": len(self.lines), "step": self.step, "micro_batch": micro_batch, "phase": phase, "module": module, "op": op,
            "slot": slot, "arg": arg, "call": 0, "dtype": str(tensor.dtype), "shape": tensor.shape, "global_shape": tensor.shape,
            "placements": [], "mesh_coordinate": [], "data": {"file": "rank00000.safetensors", "name": name}}))

    def of_weights(self, phase, slot, weights, suffix="", op=None):
        for name, weight in weights.items():
            module, _, arg = name.rpartition(".")
            self.add(phase, module, slot, arg + suffix, weight, op)

    def begin(self, step, weights):
        self.step = step
        self.of_weights("forward", "param", weights)

    def run(self, loss_of, weights, micro_batch, *data, scale=1.0):
        """Returns the loss and the gradients of scale times it."""
        def scaled(weights, zeros):
            tape = Tape(zeros)
            loss = loss_of(weights, tape, *data)
            self.ops = tape.ops
            return loss * scale, (loss, tape.values)
        _, (_, shapes) = jax.eval_shape(scaled, weights, {})
        zeros = {k: jnp.zeros(x.shape, x.dtype) for k, x in shapes.items() if jnp.issubdtype(x.dtype, jnp.floating)}
        gradients, (loss, values) = jax.jit(jax.grad(scaled, argnums=(0, 1), has_aux=True))(weights, zeros)
        for name in shapes:  # jit sorts them; a trace has them as they came
            module, slot, arg = name.split(" ")
            self.add("forward", module, slot, arg, values[name], self.ops[module], micro_batch)
        self.add("forward", "loss", "loss", "lm", loss, micro_batch=micro_batch)
        for name in reversed(list(zeros)):
            module, slot, arg = name.split(" ")
            self.add("backward", module, f"grad_{slot}", arg, gradients[1][name], self.ops[module], micro_batch)
        return loss, gradients[0]

    def end(self, gradient, weights, states, op="AdamW"):
        self.of_weights("backward", "grad", gradient)
        self.of_weights("optimizer", "param", weights, op=op)
        for state, of_weights in states.items():
            self.of_weights("optimizer", "state", of_weights, f".{state}", op)

    def save(self):
        save_file(self.tensors, f"{self.folder}/rank00000.safetensors")
        with open(f"{self.folder}/rank00000.jsonl", "w") as file:
            file.writelines(line + "\n" for line in self.lines)
        with open(f"{self.folder}/manifest.json", "w") as file:  # the last: a dump with a manifest is finished
            json.dump(self.manifest, file)
