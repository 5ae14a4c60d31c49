#!/usr/bin/env python3
"""How much longer steps take while they are recorded: a Llama of 6.4 M parameters of Hugging Face, two micro-batches of 512 tokens.

    PYTHONPATH=build/release/python python3 tests/bench/recording.py [--steps N]

Goals: everything of a step at most 3 times the step; every module's activations of every 100th step under 2 %.
"""

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path

import assay.torch
import torch
import transformers

CONFIG = dict(vocab_size=2048, hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=8)


def seconds_of_steps(count, **selection):
    """Of each step, and of the end of the recording."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(CONFIG["vocab_size"], (2, 2, 256))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        recorder = assay.torch.record(model, out=Path(folder, "dump"), **selection) if selection else None
        times = []
        for _ in range(count):
            start = time.perf_counter()
            for sample in text:
                (model(input_ids=sample, labels=sample, use_cache=False).loss / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        if recorder is not None:
            recorder.close()
        end = time.perf_counter() - start
        size = sum(p.stat().st_size for p in Path(folder).rglob("*.h5"))
    return times, end, size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    steps = parser.parse_args().steps
    seconds_of_steps(2)
    plain = sorted(seconds_of_steps(steps)[0])[steps // 2]
    times, end, size = seconds_of_steps(3, steps="1")
    print(
        f"a step: {plain:.2f} s; recorded whole, {size / 2**20:.0f} MiB: {(times[1] + end) / plain:.2f} times (goal: 3)"
    )
    times, end, size = seconds_of_steps(3, steps="1", kinds=("activations",))
    share = (times[1] + end - plain) / (100 * plain)
    print(f"activations of every 100th step, {size / 2**20:.0f} MiB: {100 * share:.2f} % of all steps (goal: 2 %)")
    idle = sorted(seconds_of_steps(steps, steps="1000")[0])[steps // 2]
    print(f"steps between them: {100 * (idle / plain - 1):.2f} % longer")


if __name__ == "__main__":
    main()
