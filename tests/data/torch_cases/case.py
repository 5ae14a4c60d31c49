"""Writes one operator case (case.json and .npy files) beside the script that made it: what the scripts of this
folder share. Values have 8 significand bits, exact in bfloat16 and float16; outputs are PyTorch's, in float64."""
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

FOLDER = Path(__file__).parent
STORED_AS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def values(*shape, low=-2.0, high=2.0, seed=0):
    """Uniform in [low, high], rounded to 8 significand bits."""
    made = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.from_numpy(made.astype(ml_dtypes.bfloat16).astype(np.float64))


def write_case(op, name, attributes, inputs, outputs, counts=None):
    """inputs, outputs: lists of (name, array or tensor, role). counts: accumulation count by output."""
    folder = FOLDER / op / name
    folder.mkdir(parents=True, exist_ok=True)
    entries = {}
    for kind, tensors in (("input", inputs), ("output", outputs)):
        entries[kind] = []
        for i, (tensor, array, role) in enumerate(tensors):
            if isinstance(array, torch.Tensor):
                array = array.detach().numpy()
            array = np.asarray(array, order="C")
            dtype = str(array.dtype)
            file = f"{kind}_{i}.npy"
            np.save(folder / file, array.view(STORED_AS[dtype]) if dtype in STORED_AS else array)
            entries[kind].append({"name": tensor, "file": file, "dtype": dtype, "shape": list(array.shape), "role": role})
    case = {"op": op, "case": name, "attributes": attributes, "inputs": entries["input"], "outputs": entries["output"]}
    if counts is not None:
        case["accumulation_count"] = counts
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def write_autograd(op, name, attributes, f, inputs, outputs=("y",), counts=None, fixed=(), grad_y=True):
    """Runs f on inputs, {name: (tensor, role)}, and differentiates its first result by all of them. fixed: further inputs
    (name, tensor, role) that f knows itself. Without grad_y the gradient of the result is 1 and not written."""
    leaves = {k: v.clone().requires_grad_() for k, (v, _) in inputs.items()}
    results = f(*leaves.values())
    results = results if isinstance(results, tuple) else (results,)
    g = values(*results[0].shape, seed=99) if grad_y else torch.ones_like(results[0])
    results[0].backward(g)
    given = [(k, v, role) for k, (v, role) in inputs.items()]
    made = [(k, v, "output") for k, v in zip(outputs, results, strict=True)]
    gradients = [(f"grad_{k}", v.grad, "grad_input") for k, v in leaves.items()]
    upstream = [("grad_y", g, "grad_output")] if grad_y else []
    write_case(op, name, attributes, [*given, *fixed, *upstream], [*made, *gradients], counts)
