"""PyTorch's own transformer layers under DistributedDataParallel. It knows nothing of assay.

A step has the same samples for any number of ranks and any accumulation of gradients, as a
DistributedSampler deals them out.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, LENGTH, VOCABULARY, WIDTH = 8, 16, 96, 32


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=hidden.dtype)
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model: nn.Module = LanguageModel().to(getattr(torch, args.dtype))
    data = TensorDataset(torch.randint(0, VOCABULARY, (args.steps * SAMPLES, LENGTH + 1)))
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, SAMPLES // world // args.accumulate, sampler=sampler)
    for i, (samples,) in enumerate(loader, 1):
        scores = model(samples[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), samples[:, 1:].flatten())
        (loss / args.accumulate).backward()
        if i % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {i // args.accumulate}: loss {loss.item():.6f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
