"""Cases of latent_attention: what transformers' own DeepseekV3Attention (5.14.1) makes between its projections, which hand on what
the case gives them."""
import torch
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from case import values, write_case

B, L, H, N, R, V, C = 2, 5, 3, 4, 6, 5, 3  # sequences, tokens, heads; widths of k_nope, k_rope, v and of what makes kv
YARN = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}


def between_projections(dtype, implementation, more):
    """f(q, kv, compressed) of a DeepseekV3Attention, and its tables of cos and sin."""
    rope = {"rope_theta": 10000.0, "rope_type": "default", **more.pop("rope", {})}
    config = DeepseekV3Config(hidden_size=8, num_attention_heads=H, num_key_value_heads=H, q_lora_rank=None, kv_lora_rank=C,
                              qk_nope_head_dim=N, qk_rope_head_dim=R, v_head_dim=V, rope_parameters=rope, **more)
    config._attn_implementation = implementation
    module = DeepseekV3Attention(config, 0).to(dtype)
    tables = DeepseekV3RotaryEmbedding(config)(torch.zeros(1, dtype=torch.bfloat16), torch.arange(L)[None])
    tables = [t.to(dtype) for t in tables]
    mask = torch.full((L, L), float("-inf"), dtype=dtype).triu(1)[None, None]

    def run(q, kv, compressed):
        hands_on = lambda x: lambda _: x
        for name, result in {"q_proj": q, "kv_a_proj_with_mqa": compressed, "kv_b_proj": kv}.items():
            module._modules.pop(name, None)
            setattr(module, name, hands_on(result))
        for name in ("kv_a_layernorm", "o_proj"):
            module._modules.pop(name, None)
            setattr(module, name, lambda x: x)
        return module(torch.zeros(B, L, 8, dtype=dtype), tables, mask)[0]

    return run, tables


def inputs(seed):
    widths = {"q": H * (N + R), "kv": H * (N + V), "compressed": C + R}
    return {name: values(B, L, width, seed=seed + i) for i, (name, width) in enumerate(widths.items())}


def case(name, attributes, seed, **more):
    run, tables = between_projections(torch.float64, "sdpa", more)
    given = {k: v.requires_grad_() for k, v in inputs(seed).items()}
    out = run(*given.values())
    g = values(*out.shape, seed=seed + 9)
    out.backward(g)
    D = N + R
    write_case("latent_attention", name, {"heads": H, **attributes},
               [*((k, v, "input") for k, v in given.items()), ("cos", tables[0], "input"), ("sin", tables[1], "input"),
                ("grad_out", g, "grad_output")],
               [("out", out, "output"), *((f"grad_{k}", v.grad, "grad_input") for k, v in given.items())],
               {"out": 2 + D + L, "grad_q": 2 + D + L + V, "grad_kv": 2 + D + L + V, "grad_compressed": 2 + D + H * L + V})


if __name__ == "__main__":
    case("deepseek_v3", {}, 1)
    case("half", {"style": "half"}, 11, rope_interleave=False)
    case("yarn", {"mscale": 1.3688879454113936}, 21, rope=YARN)  # 0.1 ln 40 + 1
