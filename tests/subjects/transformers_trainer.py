"""Trainer of transformers with gradient accumulation, over sequences of different lengths."""

import argparse
import zlib

import torch
import transformers


class Sequences(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(1)
        self._tokens = torch.randint(3, 96, (count, 16), generator=draw)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        labels = self._tokens[i].clone()
        labels[: 5 * (i % 3)] = -100  # as instructions are
        return {"input_ids": self._tokens[i], "labels": labels}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    configuration = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(configuration)
    for name, weight in model.named_parameters():
        draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        weight.data.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
    transformers.Trainer(
        model,
        transformers.TrainingArguments(
            options.out,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
            max_steps=2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            max_grad_norm=0,
            lr_scheduler_type="constant",
        ),
        train_dataset=Sequences(8),
    ).train()


if __name__ == "__main__":
    main()
