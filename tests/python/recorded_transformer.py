"""Two layers of torch's own transformer in training, which know nothing of assay; test_transformer.py records them.

DTYPE, then any of: batch_first, gelu, causal, padding (masks), weights (need_weights), decoder (with a memory),
and one fault of the second layer's attention: heads (in another order), scale (of its scores, left out).
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, TOKENS, WORDS, WIDTH, HEADS = 2, 3, 12, 24, 32, 4
DTYPE, FLAGS = getattr(torch, sys.argv[1]), sys.argv[2:]
HOW = {
    "dim_feedforward": 48,
    "dropout": 0.0,
    "activation": "gelu" if "gelu" in FLAGS else "relu",
    "batch_first": "batch_first" in FLAGS,
}


class WeightedLayer(nn.TransformerEncoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask)[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        if "decoder" in FLAGS:
            self.memory = nn.Embedding(WORDS, WIDTH)
            self.layers = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, **HOW), 2)
        else:
            layer = (WeightedLayer if "weights" in FLAGS else nn.TransformerEncoderLayer)(WIDTH, HEADS, **HOW)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        y, masks = self.embedding(x), {}
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=DTYPE) if "causal" in FLAGS else None
        padding = None
        if "padding" in FLAGS:
            padding = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
            padding[1, 9:] = True
        if "decoder" in FLAGS:
            masks = {"tgt_mask": mask, "tgt_is_causal": mask is not None, "memory_key_padding_mask": padding}
            return self.head(self.layers(y, self.memory(x.flip(1)), **masks))
        return self.head(self.layers(y, mask=mask, src_key_padding_mask=padding, is_causal=mask is not None))


def plant():
    """Into every second call of attention."""
    right, calls = F.scaled_dot_product_attention, []

    def attention(q, *rest, **how):
        calls.append(q)
        if len(calls) % 2:
            return right(q, *rest, **how)
        return (
            right(q, *rest, **how).roll(1, 1) if "heads" in FLAGS else right(q * (WIDTH / HEADS) ** 0.5, *rest, **how)
        )

    F.scaled_dot_product_attention = attention


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if {"heads", "scale"} & set(FLAGS):
        plant()
    model = Model().to(DTYPE)
    for weight in model.parameters():  # of the same bits on every vector unit
        weight.data.copy_(torch.randint(-64, 65, weight.shape) / 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        x = torch.randint(WORDS, (BATCH, TOKENS) if HOW["batch_first"] else (TOKENS, BATCH))
        F.cross_entropy(model(x).flatten(0, 1).float(), x.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


main()
