"""What PyTorch's eager operators make of bfloat16 on a CPU, composed as Hugging Face's models compose them: every step between
is rounded to bfloat16. Writes one folder per case beside this script."""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent / "torch_cases"))
import case

case.FOLDER = Path(__file__).parent
torch.set_num_threads(1)


def write(op, name, attributes, f, inputs, outputs=("y",), constants=()):
    """f of bfloat16 leaves {name: (tensor, role)}; gradients by autograd. constants: (name, tensor, role) that f knows."""
    leaves = {k: v.bfloat16().requires_grad_() for k, (v, _) in inputs.items()}
    results = f(*leaves.values())
    results = results if isinstance(results, tuple) else (results,)
    g = case.values(*results[0].shape, seed=99).bfloat16()
    results[0].backward(g)
    stored = lambda t: t.detach().float().numpy().astype(case.ml_dtypes.bfloat16)
    given = [(k, stored(v), inputs[k][1]) for k, v in leaves.items()]
    made = [(k, stored(v), "output") for k, v in zip(outputs, results, strict=True)]
    gradients = [(f"grad_{k}", stored(v.grad), "grad_input") for k, v in leaves.items()]
    case.write_case(op, name, attributes, [*given, *constants, ("grad_y", stored(g), "grad_output")], [*made, *gradients])


x = case.values(6, 64, low=-4, high=4, seed=1)
w = case.values(64, low=0.5, high=2, seed=2)


def llama_rms_norm(x, w, eps=1e-5):  # transformers, LlamaRMSNorm
    hidden = x.float()
    rstd = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + eps)
    return w * (hidden * rstd).to(x.dtype), rstd


write("rms_norm", "llama", {"eps": 1e-5}, llama_rms_norm, {"x": (x, "input"), "weight": (w, "param")}, ("y", "rstd"))

up = case.values(6, 64, low=-4, high=4, seed=3)
write("swiglu", "llama", {}, lambda gate, up: F.silu(gate) * up, {"gate": (x, "input"), "up": (up, "input")})
write("geglu", "gemma", {"approximate": "tanh"}, lambda gate, up: F.gelu(gate, approximate="tanh") * up,
      {"gate": (x, "input"), "up": (up, "input")})


def llama_rope(x):  # transformers, apply_rotary_pos_emb
    frequency = 1 / 10000 ** (torch.arange(0, 64, 2).float() / 64)
    angle = torch.arange(6).float()[:, None] * frequency
    angle = torch.cat((angle, angle), -1)
    cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
    return x * cos + torch.cat((-x[..., 32:], x[..., :32]), -1) * sin


write("rope", "llama", {}, llama_rope, {"x": (x, "input")})

logits = case.values(6, 40, low=-6, high=6, seed=4)
write("softmax", "rows", {}, lambda x: F.softmax(x, -1), {"x": (logits, "input")})
write("log_softmax", "rows", {}, lambda x: F.log_softmax(x, -1), {"x": (logits, "input")})
target = torch.arange(0, 36, 6)
write("cross_entropy", "mean", {}, lambda x: F.cross_entropy(x, target), {"logits": (logits, "input")}, ("loss",),
      [("target", target, "index")])
write("cross_entropy", "label_smoothing", {"label_smoothing": 0.1},
      lambda x: F.cross_entropy(x, target, label_smoothing=0.1), {"logits": (logits, "input")}, ("loss",),
      [("target", target, "index")])
write("sigmoid", "plain", {}, torch.sigmoid, {"x": (x, "input")})
write("tanh", "plain", {}, torch.tanh, {"x": (x, "input")})
write("layer_norm", "plain", {"eps": 1e-5}, lambda x: F.layer_norm(x, (64,), None, None, 1e-5), {"x": (x, "input")})
