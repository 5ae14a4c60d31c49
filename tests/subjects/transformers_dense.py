"""A small decoder of transformers, trained for some steps, with weights that do not depend on its release."""

import argparse
import zlib

import torch
import transformers

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gemma")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()

    configuration = transformers.AutoConfig.for_model(options.model, **SIZES)
    model = transformers.AutoModelForCausalLM.from_config(configuration, attn_implementation="eager")
    model = model.to(getattr(torch, options.dtype))
    for name, weight in model.named_parameters():
        draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        weight.data.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        optimizer.zero_grad()
        tokens = torch.randint(3, SIZES["vocab_size"], (2, options.tokens), generator=data)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
