"""Torchtitan's Qwen3-MoE on CPUs, trained for some steps. It knows nothing of assay.

Torchtitan is written for GPUs: on_cpus() replaces what asks for one. Layouts are torchtitan's
own: its parallelize_qwen3 and pipeline_llm cut a model that every rank has built as a whole.
"""

import argparse
import os
import sys
import warnings
from unittest.mock import MagicMock

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

TOKENS, VOCABULARY, WIDTH, HEAD = 16, 96, 32, 8


def on_cpus(options: argparse.Namespace) -> None:
    # It imports triton, for an exchange that only GPUs have.
    sys.modules["torchtitan.distributed.minimal_async_ep"] = MagicMock()
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", torch.cpu
    from torch.distributed.tensor.experimental._context_parallel import _attention
    from torch.nn.attention import flex_attention

    flex_attention._DEFAULT_SPARSE_BLOCK_SIZE = 4  # cp cuts between blocks; theirs have 128 tokens
    _attention._compiled_create_block_mask = flex_attention.create_block_mask  # without a compiler
    from torchtitan.models.common.attention import FlexAttention

    def attend(q, k, v, *, block_mask, scale, enable_gqa, **_: object) -> tuple[torch.Tensor, None]:
        mask = flex_attention.create_mask(block_mask.mask_mod, len(q), 1, q.shape[2], k.shape[2], "cpu")
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa), None

    FlexAttention.compiled_flex_attn = staticmethod(attend)  # torch's has no backward on CPUs
    # The router asks for float32 of an autocast that knows only smaller types here.
    warnings.filterwarnings("ignore", "In CPU autocast")
    if options.float32_experts:  # torchtitan's take bfloat16 whatever the model's type
        torch.Tensor.bfloat16 = torch.Tensor.float


def configuration(options: argparse.Namespace) -> object:
    from torchtitan.models import qwen3
    from torchtitan.models.common import CosSinRoPE, Embedding, Linear
    from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config

    config = qwen3.Qwen3Model.Config(
        vocab_size=VOCABULARY,
        dim=WIDTH,
        norm=qwen3._qwen3_norm(WIDTH),
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=WIDTH, param_init=qwen3._EMBEDDING_INIT
        ),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCABULARY, param_init=qwen3._LINEAR_INIT),
        layers=qwen3._build_qwen3_moe_layers(
            n_layers=2,
            dim=WIDTH,
            n_heads=4,
            n_kv_heads=2,
            head_dim=HEAD,
            moe_hidden_dim=16,
            num_experts=8,
            top_k=2,
            attn_backend="flex",
            moe_comm_backend="standard",
            rope=CosSinRoPE.Config(dim=HEAD, max_seq_len=TOKENS, theta=1e6),
        ),
    )
    set_qwen3_sharding_config(config, enable_sp=True, enable_ep=options.ep > 1)
    return config


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--float32-experts", action="store_true")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--cp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    on_cpus(options)
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.context_parallel import prepare_context_parallel_input
    from torchtitan.distributed.pipeline_parallel import pipeline_llm
    from torchtitan.distributed.utils import set_spmd_backend
    from torchtitan.models.qwen3 import parallelize_qwen3
    from torchtitan.tools.utils import set_default_dtype

    parallelism = ParallelismConfig(
        data_parallel_shard_degree=options.dp,
        tensor_parallel_degree=options.tp,
        context_parallel_degree=options.cp,
        pipeline_parallel_degree=options.pp,
        pipeline_parallel_microbatch_size=2,
        expert_parallel_degree=options.ep,
        spmd_backend="partial_dtensor",  # the default, spmd_types, asks more of FSDP than torch 2.13 has
    )
    set_spmd_backend(parallelism.spmd_backend)
    config = configuration(options)
    with set_default_dtype(getattr(torch, options.dtype)):
        model = config.build()
    torch.manual_seed(options.seed)
    with torch.no_grad():
        model.init_weights()
        for weight in model.parameters():
            if weight.dim() > 1:  # 0.02 is meant for wider layers
                weight.mul_(5)
    model.train()

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, dict]:
        return cross_entropy_loss(logits, targets) / (options.micro_batches * 2 * TOKENS), {}

    parts, schedule, dims, share = [model], None, None, 0
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        dims = ParallelDims.from_config(parallelism, dist.get_world_size())
        share = dims.get_mesh("batch").get_local_rank() if options.dp > 1 else 0
        how = {
            "parallel_dims": dims,
            "training": TrainingConfig(
                mixed_precision_param=options.dtype, local_batch_size=2 * options.micro_batches // options.dp
            ),
            "parallelism": parallelism,
            "compile_config": CompileConfig(),
            "ac_config": None,
            "dump_folder": "",
        }
        if options.pp > 1:
            schedule, parts, is_first, is_last = pipeline_llm(
                model,
                device=torch.device("cpu"),
                model_config=config,
                parallelize_fn=parallelize_qwen3,
                loss_fn=loss_of,
                **how,
            )
        else:
            parallelize_qwen3(model, **how)
    for module in (m for part in parts for m in part.modules() if isinstance(m, FSDPModule)):
        module.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM

    def inputs_of(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict]:
        targets, positions = tokens.roll(-1, 1), torch.arange(TOKENS).expand(len(tokens), -1)
        more = {"positions": positions, "attention_masks": model.get_attention_masks(positions)}
        if options.cp == 1:
            return tokens, targets, more
        return prepare_context_parallel_input(tokens, targets, more, dims.get_mesh("cp"), torch.device("cpu"))

    optimizer = torch.optim.AdamW([w for part in parts for w in part.parameters()], lr=1e-3, weight_decay=0.1)
    data = torch.Generator().manual_seed(options.seed)
    for step in range(options.steps):
        optimizer.zero_grad()
        batch = torch.randint(0, VOCABULARY, (options.micro_batches, 2, TOKENS), generator=data)
        losses = []
        own = batch[share :: options.dp]
        if schedule:
            tokens, targets, more = inputs_of(own.flatten(0, 1))
            schedule.step(*((tokens,) if is_first else ()), target=targets if is_last else None, losses=losses, **more)
        else:
            for micro_batch in own:
                tokens, targets, more = inputs_of(micro_batch)
                loss, _ = loss_of(parts[0](tokens, **more), targets)
                loss.backward()
                losses.append(loss)
        optimizer.step()
        total = torch.tensor([loss.item() for loss in losses]).sum()
        for mesh in (dims.get_optional_mesh("loss"), dims.get_optional_mesh("pp")) if dims else ():
            if mesh:
                dist.all_reduce(total, group=mesh.get_group())
        if not dims or dist.get_rank() == 0:
            print(f"step {step}: loss {total.item():.6f}")
    if dims:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
