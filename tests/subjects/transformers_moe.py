"""A mixture of experts of transformers, trained for some steps. It knows nothing of assay.

Layouts are transformers' own: DistributedConfig cuts attention (tp), experts (ep) and
parameters (fsdp).
"""

import argparse
import inspect
import os
from pathlib import Path

import torch
import torch.distributed as dist
import transformers

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def configuration(model: str) -> transformers.PreTrainedConfig:
    if model == "mixtral":
        return transformers.MixtralConfig(**SIZES, num_local_experts=8, num_experts_per_tok=2)
    if model == "qwen3":
        return transformers.Qwen3MoeConfig(
            **SIZES,
            head_dim=8,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            norm_topk_prob=True,
        )
    if model == "olmoe":
        return transformers.OlmoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2)
    return transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4},
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
        n_group=2,
        topk_group=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_shared_experts=1,
    )


def distributed(options: argparse.Namespace) -> dict[str, object]:
    sizes = {"tp_size": options.tp, "ep_size": options.ep, "fsdp_size": options.fsdp}
    sizes = {name: size for name, size in sizes.items() if size > 1}
    if not sizes:
        return {}
    from transformers.distributed import DistributedConfig

    if "ep_size" not in inspect.signature(DistributedConfig).parameters:  # before 5.20
        return {"tp_plan": "auto", "distributed_config": DistributedConfig(enable_expert_parallel=options.ep > 1)}
    return {"distributed_config": DistributedConfig(**sizes)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("mixtral", "qwen3", "olmoe", "deepseek"), required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--experts", default="grouped_mm")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--fsdp", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if ranks > 1 else 0
    if rank == 0 and not options.checkpoint.exists():
        transformers.set_seed(options.seed)
        new = transformers.AutoModelForCausalLM.from_config(configuration(options.model))
        new.save_pretrained(options.checkpoint)
    if ranks > 1:
        dist.barrier()

    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.checkpoint,
        dtype=getattr(torch, options.dtype),
        experts_implementation=options.experts,
        **distributed(options),
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    data = torch.Generator().manual_seed(options.seed)
    share = rank // (ranks // options.fsdp)
    for step in range(options.steps):
        optimizer.zero_grad()
        batch = torch.randint(3, SIZES["vocab_size"], (options.micro_batches, 2, 16), generator=data)
        own = batch[share :: options.fsdp]
        for tokens in own:
            loss = model(input_ids=tokens, labels=tokens).loss
            (loss / len(own)).backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
