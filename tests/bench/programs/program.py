"""A tiny language model of Hugging Face transformers that is trained on random text and recorded by record.py.

Two steps of four micro-batches, data parallel over the ranks. launch.py runs it; it needs requirements.txt.
"""
import contextlib
import dataclasses

import numpy
import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from record import Recorder

STEPS, MICRO_BATCHES, SEQUENCES, TOKENS = 2, 4, 2, 16
VOCABULARY, HIDDEN, LAYERS, EXPERTS = 128, 64, 3, 8
SCALE = HIDDEN**-0.5  # of weights: activations are as large as in a trained model; the 0.02 of transformers hides mistakes
RATE, DECAY, BETAS, MAX_NORM = 1e-3, 0.1, (0.9, 0.95), 1.0
NO_LABEL = -100  # torch's ignore_index
COMMON = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
              bos_token_id=1, eos_token_id=1, pad_token_id=0)
MOE = COMMON | dict(num_experts_per_tok=2)
CONFIGS = {
    "mixtral": lambda: transformers.MixtralConfig(**MOE, intermediate_size=48, num_local_experts=EXPERTS),
    # the balance of the router is part of the loss: one family with it, the others without
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(**MOE, head_dim=16, num_experts=EXPERTS, moe_intermediate_size=32,
                                                     norm_topk_prob=True, output_router_logits=True),
    "olmoe": lambda: transformers.OlmoeConfig(**MOE, intermediate_size=48, num_experts=EXPERTS),
    "llama": lambda: transformers.LlamaConfig(**COMMON, intermediate_size=96),
}


@dataclasses.dataclass
class Options:
    dump: str
    family: str = "mixtral"
    dtype: str = "float32"
    attention: str = "eager"
    experts: str = "eager"  # or grouped_mm
    ranks: int = 1
    average: bool = False  # gradients are averaged over the ranks, not added up
    ddp: bool = False  # by DistributedDataParallel
    padded: bool = False  # micro-batches have different numbers of labels
    seed: int = 0
    fault: str = ""


def build(options: Options, random: numpy.random.Generator) -> nn.Module:
    """A model whose weights depend on the seed alone: torch's random numbers also depend on the vector unit."""
    moe = {} if options.family == "llama" else {"experts_implementation": options.experts}
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[options.family](), dtype=getattr(torch, options.dtype),
                                                          attn_implementation=options.attention, **moe)
    with torch.no_grad():
        for weight in model.parameters():
            whole = torch.from_numpy(random.standard_normal(weight.shape))
            weight.copy_(1 + 0.1 * whole if weight.dim() == 1 else whole * SCALE)
    return model.train()


class Trainer:
    """The training loop in steps that a fault can replace on the instance."""

    def __init__(self, options: Options) -> None:
        self.options, self.rank, self.ranks = options, dist.get_rank(), dist.get_world_size()
        self.averages = options.average or options.ddp
        random = numpy.random.default_rng(options.seed)
        self.model = build(options, random)
        self.text = torch.from_numpy(random.integers(2, VOCABULARY, (STEPS, MICRO_BATCHES, SEQUENCES, TOKENS)))
        groups = [{"params": [w for w in self.model.parameters() if w.dim() > 1]},
                  {"params": [w for w in self.model.parameters() if w.dim() == 1], "weight_decay": 0.0}]
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=DECAY, betas=BETAS)

    def sample(self, step: int, micro_batch: int) -> Tensor:
        return self.text[step, micro_batch]

    def labels(self, sample: Tensor, micro_batch: int) -> Tensor:
        labels = sample.clone()
        if self.options.padded:
            labels[:, TOKENS - 3 * micro_batch:] = NO_LABEL
        return labels

    def share(self, micro_batch: int) -> float:
        """Of the micro-batch's mean loss in the loss of the step."""
        labels = [TOKENS - 1 - 3 * m if self.options.padded else 1 for m in range(MICRO_BATCHES)]
        return labels[micro_batch] / sum(labels)

    def rate(self, step: int) -> float:
        return RATE * (step + 1) / STEPS

    def reduces(self, last: bool) -> bool:
        """Whether DistributedDataParallel reduces gradients behind this backward pass."""
        return last

    def reduce(self) -> None:
        for name, weight in self.model.named_parameters():
            if weight.grad is not None:
                self.reduce_one(name, weight)

    def reduce_one(self, name: str, weight: nn.Parameter) -> None:
        dist.all_reduce(weight.grad)
        if self.averages:
            weight.grad /= self.ranks

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)

    def update(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()

    def forget(self) -> None:
        self.optimizer.zero_grad()

    def train(self) -> None:
        mesh = dist.init_device_mesh("cpu", (self.ranks,), mesh_dim_names=("dp",))
        model = DistributedDataParallel(self.model) if self.options.ddp else self.model
        recorder = Recorder(self.options.dump, mesh, model, {}, {"lr": RATE, "weight_decay": DECAY, "seed": self.options.seed})
        own = range(self.rank, MICRO_BATCHES, self.ranks)
        for step in range(STEPS):
            recorder.begin(step)
            for micro_batch in own:
                recorder.micro_batch = micro_batch
                sample = self.sample(step, micro_batch)
                alone = self.options.ddp and not self.reduces(micro_batch == own[-1])
                with model.no_sync() if alone else contextlib.nullcontext():
                    loss = model(sample, labels=self.labels(sample, micro_batch), use_cache=False).loss
                    recorder.loss(loss)
                    (loss * self.share(micro_batch) * (self.ranks if self.averages else 1)).backward()
            if not self.averages:
                recorder.gradients(addends=["dp"])
            if not self.options.ddp:
                self.reduce()
            recorder.gradients()
            self.clip()
            self.update(step)
            recorder.end(self.optimizer)
            self.forget()
        recorder.save()
