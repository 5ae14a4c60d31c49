#!/usr/bin/env python3
"""The expected losses and gradients of tests/align/huggingface_test.cpp: one micro-batch through Hugging Face's own modeling
code of DeepSeek-V3, Mixtral and Qwen3-MoE, in float64, from the configurations beside this file.

    python3 tests/data/replay/make_huggingface.py        (torch, and transformers 5 from PyPI)

The modeling code computes its norms, routers, rotary angles, attention weights and losses in float32 whatever the model's
type is: it says torch.float32, torch.float and Tensor.float(). While it runs these names mean float64; its formulas stay as
they are, and a tensor of a smaller float anywhere is an error.
Of each gradient the sums of make.py are kept, under the replay's names: experts' gate and up projections are one tensor in
the modeling code and two in the replay. "checkpoint" is what a model's checkpoint has, for tests/assay/given_test.py.
"""
import json
import tempfile
from pathlib import Path
from unittest import mock

import safetensors
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from make import HERE, initial, stream_of, sums

FAMILIES = ("deepseek_v3", "mixtral", "qwen3_moe")
FLOAT64 = mock.patch.multiple(torch, float32=torch.float64, float=torch.float64)
TO_FLOAT64 = mock.patch.object(torch.Tensor, "float", torch.Tensor.double)
SMALLER = (torch.float32, torch.float16, torch.bfloat16)
GATE_UP = ".experts.gate_up_proj"


class OnlyFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.dtype in SMALLER:
                raise TypeError(f"{function} gives {tensor.dtype}")
        return out


def parts(name, tensor):
    """What the replay calls a tensor of the modeling code, or its parts."""
    if name.endswith(GATE_UP):
        module = name.removesuffix(GATE_UP)
        gate, up = tensor.chunk(2, 1)
        return {f"{module}.experts.*.gate_proj.weight": gate, f"{module}.experts.*.up_proj.weight": up}
    return {name.replace(".experts.down_proj", ".experts.*.down_proj.weight"): tensor}


def load(model):
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" not in name:
                for own, part in parts(name, tensor).items():
                    part.copy_(initial(own, part.shape))


def checkpoint(model):
    """Names and shapes of the tensors that the modeling code saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safetensors.safe_open(Path(folder) / "model.safetensors", "pt") as file:
            return {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}


def expected(path):
    config = transformers.AutoConfig.for_model(**json.loads(path.read_text()))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                          experts_implementation="eager")
    load(model)
    stream = stream_of(config.vocab_size)
    tokens, targets = stream[:, :-1], stream[:, 1:].contiguous()
    # shift_labels: targets as they are; the modeling code would shift labels by itself, and lose the last
    out = model(input_ids=tokens, labels=targets, shift_labels=targets, use_cache=False)
    out.loss.backward()
    gradients = {own: sums("gradient of " + own, part) for name, p in model.named_parameters()
                 for own, part in parts(name, p.grad).items()}
    return {"total": out.loss.item(), "logits": sums("logits", out.logits.transpose(0, 1)), "gradients": gradients,
            "checkpoint": checkpoint(model)}


def main():
    with FLOAT64, TO_FLOAT64, OnlyFloat64():
        models = {family: expected(HERE / f"{family}.json") for family in FAMILIES}
    written = {"transformers": transformers.__version__, "torch": torch.__version__, "models": models}
    (HERE / "expected_huggingface.json").write_text(json.dumps(written, indent=0) + "\n")


if __name__ == "__main__":
    main()
