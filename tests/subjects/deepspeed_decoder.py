"""A decoder of transformers under DeepSpeed's ZeRO on CPUs, trained for some steps. It knows nothing of assay.

Under a launcher the ranks share the data, and DeepSpeed cuts the optimizer (--zero 1), the gradients (2) and the
parameters (3). Without one it is plain torch, with the same arithmetic.
"""

import argparse
import os

import torch
import transformers

TOKENS = 16
CONFIGURATION = transformers.LlamaConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.1,
    use_cache=False,
)


def on_cpus() -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"  # read where deepspeed is imported
    import deepspeed.ops

    # All-reduces through shared memory are a C++ extension, which would be compiled at the start.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def optimizer_of(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)


class Plain:
    """One process, in the terms of DeepSpeed's engine: an optimizer of float32, for weights of any dtype."""

    def __init__(self, model: torch.nn.Module, micro_batches: int) -> None:
        self.model, self.micro_batches, self.calls = model, micro_batches, 0
        self.weights = list(model.parameters())
        self.masters = [w if w.dtype == torch.float32 else w.detach().float() for w in self.weights]
        self.optimizer = optimizer_of(self.masters)

    def __call__(self, **inputs: torch.Tensor) -> object:
        return self.model(**inputs)

    def backward(self, loss: torch.Tensor) -> None:
        (loss / self.micro_batches).backward()

    def step(self) -> None:
        self.calls += 1
        if self.calls % self.micro_batches:
            return
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.grad = weight.grad.float()
        self.optimizer.step()
        for master, weight in zip(self.masters, self.weights, strict=True):
            weight.data.copy_(master.data)
            weight.grad = None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    own = options.micro_batches // ranks
    torch.manual_seed(options.seed)
    model = transformers.LlamaForCausalLM(CONFIGURATION).to(getattr(torch, options.dtype))
    model.train()
    if "RANK" in os.environ:
        on_cpus()
        import deepspeed

        deepspeed.init_distributed("gloo")
        config = {
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": own,
            "gradient_clipping": 0.0,  # 1.0 where it is not said
            "bf16": {"enabled": options.dtype == "bfloat16"},
            "zero_optimization": {
                "stage": options.zero,
                "reduce_bucket_size": 8192,
                "stage3_param_persistence_threshold": 0,  # smaller parameters would stay whole
            },
        }
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer_of(list(model.parameters())), config=config, dist_init_required=False
        )
    else:
        engine = Plain(model, own)

    data = torch.Generator().manual_seed(options.seed)
    for step in range(options.steps):
        batch = torch.randint(3, CONFIGURATION.vocab_size, (options.micro_batches, 2, TOKENS), generator=data)
        for tokens in batch[rank::ranks]:
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        if rank == ranks - 1:
            print(f"step {step}: loss {loss.item():.6f}")
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
