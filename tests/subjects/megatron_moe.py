"""A mixture of experts of Megatron-core on CPUs, trained for some steps. It knows nothing of assay.

Megatron-core is written for GPUs: on_cpus() replaces what asks for one.
"""

import argparse
import contextlib
import re
import zlib

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

TOKENS, EXPERTS = 16, 4


class _Stream:
    """Of a machine whose kernels end before they return."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, _: str) -> object:
        return lambda *_: self


class _OnCpus(TorchFunctionMode):
    """What is asked for on a GPU is made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        result = func(*args, **kwargs)
        # Optimizers look at the names of types.
        return result.replace("torch.", "torch.cuda.") if func is torch.Tensor.type and len(args) == 1 else result


def on_cpus() -> None:
    _OnCpus().__enter__()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.cuda.current_stream = lambda *_, **__: _Stream()
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.Tensor.record_stream = lambda *_: None
    exchange = dist.all_to_all_single

    def all_to_all_single(
        output: torch.Tensor, given: torch.Tensor, output_split_sizes=None, input_split_sizes=None, **more: object
    ) -> object:
        listed = [s.tolist() if torch.is_tensor(s) else s for s in (output_split_sizes, input_split_sizes)]
        return exchange(output, given, *listed, **more)

    dist.all_to_all_single = all_to_all_single
    import megatron.core.transformer.moe.moe_utils
    import megatron.core.transformer.torch_norm
    from megatron.core.tensor_parallel import random

    megatron.core.transformer.moe.moe_utils.te_general_gemm = None  # 0.16.1 asks for it without a look
    random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()

    class Norm(torch.nn.RMSNorm):
        """torch's, which 0.16.1 refuses under sequence parallelism: its gradient is to be summed there."""

        def __init__(self, config: object, hidden_size: int, eps: float = 1e-5, **_: object) -> None:
            super().__init__(hidden_size, eps=eps)
            self.weight.sequence_parallel = config.sequence_parallel

    megatron.core.transformer.torch_norm.WrappedTorchNorm.__new__ = lambda _, **named: Norm(**named)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--sp", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    on_cpus()
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig

    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=1,
    )
    dtype = getattr(torch, options.dtype)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_moe_experts=EXPERTS,
        moe_router_topk=2,
        moe_ffn_hidden_size=32,
        moe_token_dispatcher_type="alltoall",
        moe_router_load_balancing_type="none",
        moe_router_dtype="fp32",
        use_cpu_initialization=True,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=1,
        sequence_parallel=options.sp,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=options.dtype == "bfloat16",
        persist_layer_norm=False,
    )
    is_first, is_last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    layers = get_gpt_layer_local_spec(num_experts=EXPERTS, moe_grouped_gemm=False, normalization="RMSNorm")
    model = GPTModel(
        config,
        layers,
        vocab_size=64,
        max_sequence_length=TOKENS,
        position_embedding_type="rope",
        pre_process=is_first,
        post_process=is_last,
        share_embeddings_and_output_weights=False,
    ).to(dtype)
    take_weights(model, options, parallel_state)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam", lr=1e-3, weight_decay=0.1, clip_grad=0.0, bf16=config.bf16, params_dtype=dtype
        ),
        [model],
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss

    shares = parallel_state.get_data_parallel_world_size()
    share = parallel_state.get_data_parallel_rank()
    positions = torch.arange(TOKENS).expand(2, -1)
    mask = torch.triu(torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool), 1)
    data = torch.Generator().manual_seed(options.seed)

    def forward(batches, model):
        tokens = next(batches)
        losses = model(tokens, positions, mask, labels=tokens.roll(-1, 1))
        return losses, lambda losses: (losses.float().mean(), {"loss": losses.detach().float().mean()})

    for step in range(options.steps):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        batch = torch.randint(0, 64, (options.micro_batches, 2, TOKENS), generator=data)
        own = batch[share::shares]
        losses = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(own),
            model=[model],
            num_microbatches=len(own),
            seq_length=TOKENS,
            micro_batch_size=2,
            forward_only=False,
        )
        optimizer.step()
        if is_last and dist.get_rank() == dist.get_world_size() - 1:
            print(f"step {step}: loss {losses[-1]['loss'].item():.6f}")
    dist.destroy_process_group()


def take_weights(model: torch.nn.Module, options: argparse.Namespace, state: object) -> None:
    """The same model in every layout: each weight is drawn as a whole, by its name, and cut."""
    layers = 2 // options.pp
    for name, weight in model.named_parameters():
        whole_name = name
        if found := re.search(r"layers\.(\d+)", name):
            layer = int(found[1]) + layers * state.get_pipeline_model_parallel_rank()
            whole_name = whole_name.replace(found[0], f"layers.{layer}")
        if found := re.search(r"local_experts\.(\d+)", name):
            expert = int(found[1]) + EXPERTS // options.ep * state.get_expert_model_parallel_rank()
            whole_name = whole_name.replace(found[0], f"local_experts.{expert}")
        shape, dim = list(weight.shape), getattr(weight, "partition_dim", -1)
        is_cut = dim >= 0 and options.tp > 1 and "experts" not in name
        if is_cut:
            shape[dim] *= options.tp
        draw = torch.Generator().manual_seed(zlib.crc32(whole_name.encode()) + options.seed)
        whole = torch.randn(shape, generator=draw) * 0.1 + (1 if len(shape) == 1 else 0)
        own = whole.chunk(options.tp, dim)[state.get_tensor_model_parallel_rank()] if is_cut else whole
        weight.data.copy_(own)


if __name__ == "__main__":
    main()
