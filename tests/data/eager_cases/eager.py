"""What PyTorch's eager operators make of bfloat16 on a CPU, composed as Hugging Face's models compose them: every step between
is rounded to bfloat16; the last ones are transformers' own code (5.14.1). Writes one folder per case beside this script."""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent / "torch_cases"))
import case

case.FOLDER = Path(__file__).parent
torch.set_num_threads(1)


def write(op, name, attributes, f, inputs, outputs=("y",), constants=(), upstream="grad_y"):
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
    case.write_case(op, name, attributes, [*given, *constants, (upstream, stored(g), "grad_output")], [*made, *gradients])


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


def qwen2_moe(x, gate, z, r):  # transformers, Qwen2MoeSparseMoeBlock and the residual around it
    return r + (x + F.sigmoid(gate) * z).reshape(r.shape)


beside = {name: case.values(6, 64, low=-4, high=4, seed=seed) for name, seed in {"x": 31, "z": 32}.items()}
gates = case.values(6, 1, low=-4, high=4, seed=33)
write("gated_add", "qwen2_moe", {}, qwen2_moe,
      {"x": (beside["x"], "input"), "gate": (gates, "input"), "z": (beside["z"], "input"),
       "r": (case.values(2, 3, 64, low=-4, high=4, seed=34), "input")})


def no_norm(x, weight, bias):  # transformers, MobileBERT's NoNorm
    return x * weight + bias


write("channel_affine", "no_norm", {}, no_norm,
      {"x": (x, "input"), "weight": (w, "param"), "bias": (case.values(64, low=-2, high=2, seed=35), "param")})


def mobilebert_logits(x, w, v, b):  # transformers, MobileBertLMPredictionHead
    return x.matmul(torch.cat([w.t(), v], dim=0)) + b


write("extended_linear", "mobilebert", {}, mobilebert_logits,
      {"x": (x, "input"), "w": (case.values(20, 40, seed=36), "param"), "v": (case.values(24, 20, seed=37), "param"),
       "b": (case.values(20, seed=38), "param")})


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

from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import (MixtralExperts, MixtralRotaryEmbedding, apply_rotary_pos_emb,
                                                          eager_attention_forward)


class Grouped:  # what eager_attention_forward asks of its module
    num_key_value_groups, training = 2, False


def attend(q, k, v):
    mask = torch.full((q.shape[2], k.shape[2]), float("-inf"), dtype=q.dtype).triu(1)[None, None]
    return eager_attention_forward(Grouped, q, k, v, mask, q.shape[-1] ** -0.5)[0].transpose(1, 2)


heads = {"q": case.values(2, 4, 7, 6, seed=5), "k": case.values(2, 2, 7, 6, seed=6), "v": case.values(2, 2, 7, 6, seed=7)}
write("attention", "mixtral", {"is_causal": True}, attend, {k: (v, "input") for k, v in heads.items()}, ("out",), upstream="grad_out")

config = MixtralConfig(hidden_size=8, intermediate_size=5, num_local_experts=3, num_attention_heads=4, head_dim=6)
experts = MixtralExperts(config).bfloat16()
index = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1], [0, 1]])


def of_experts(x, weights, gate_up, down):
    parameters = {"gate_up_proj": gate_up, "down_proj": down}
    return torch.func.functional_call(experts, parameters, (x, index, weights))


write("moe_experts", "mixtral", {}, of_experts,
      {"x": (case.values(7, 8, seed=8), "input"), "weights": (case.values(7, 2, low=0.1, high=1, seed=9), "input"),
       "gate_up": (case.values(3, 10, 8, seed=10), "param"), "down": (case.values(3, 8, 5, seed=11), "param")},
      constants=[("index", index, "index")])

from transformers import GptOssConfig, Llama4TextConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.llama4.modeling_llama4 import Llama4TextExperts
from transformers.models.phimoe.modeling_phimoe import sparsemixer

gpt_oss = GptOssExperts(GptOssConfig(hidden_size=8, intermediate_size=5, num_local_experts=3)).bfloat16()
llama4 = Llama4TextExperts(Llama4TextConfig(hidden_size=8, intermediate_size=5, num_local_experts=3)).bfloat16()


def of_gpt_oss(x, weights, gate_up, gate_up_bias, down, down_bias):
    parameters = {"gate_up_proj": gate_up, "gate_up_proj_bias": gate_up_bias, "down_proj": down, "down_proj_bias": down_bias}
    return torch.func.functional_call(gpt_oss, parameters, (x, index, weights))


transposed = {"gate_up": (case.values(3, 8, 10, seed=40), "param"), "down": (case.values(3, 5, 8, seed=41), "param")}
write("moe_experts", "gpt_oss", {"activation": "swigluoai", "interleaved": True, "transposed": True}, of_gpt_oss,
      {"x": (case.values(7, 8, seed=8), "input"), "weights": (case.values(7, 2, low=0.1, high=1, seed=9), "input"),
       "gate_up": transposed["gate_up"], "gate_up_bias": (case.values(3, 10, seed=42), "param"),
       "down": transposed["down"], "down_bias": (case.values(3, 8, seed=43), "param")}, constants=[("index", index, "index")])
write("moe_experts", "llama4", {"transposed": True},
      lambda x, gate_up, down: torch.func.functional_call(llama4, {"gate_up_proj": gate_up, "down_proj": down}, (x,)),
      {"x": (case.values(6, 8, seed=44), "input"), **transposed})
write("router_topk", "sparsemixer", {"top_k": 2, "score": "sparsemixer", "jitter": 0.125}, lambda z: sparsemixer(z, 0.125, False)[0],
      {"logits": (case.values(9, 8, low=0.5, high=1, seed=45), "input")}, ("weights",), upstream="grad_weights")


positions = torch.arange(7)[None]
tables = MixtralRotaryEmbedding(config)(torch.zeros(1, dtype=torch.bfloat16), positions)
bits = lambda t: t.detach().float().numpy().astype(case.ml_dtypes.bfloat16)


def rotary_attend(q, k, v):
    by_head = lambda x: x.view(2, 7, -1, 6).transpose(1, 2)
    return attend(*apply_rotary_pos_emb(by_head(q), by_head(k), *tables), by_head(v)).transpose(1, 2).reshape(2, 7, -1)


write("rotary_attention", "mixtral", {}, rotary_attend,
      {"q": (case.values(2, 7, 24, seed=12), "input"), "k": (case.values(2, 7, 12, seed=13), "input"),
       "v": (case.values(2, 7, 12, seed=14), "input")}, ("out",),
      [("cos", bits(tables[0]), "input"), ("sin", bits(tables[1]), "input")], upstream="grad_out")

import latent_attention

for name, attributes, more in (("deepseek_v3", {}, {}), ("half", {"style": "half"}, {"rope_interleave": False})):
    between, tables = latent_attention.between_projections(torch.bfloat16, "eager", more)
    write("latent_attention", name, {"heads": latent_attention.H, **attributes}, between,
          {k: (v, "input") for k, v in latent_attention.inputs(15).items()}, ("out",),
          [("cos", bits(tables[0]), "input"), ("sin", bits(tables[1]), "input")], upstream="grad_out")
