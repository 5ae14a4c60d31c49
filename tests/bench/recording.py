#!/usr/bin/env python3
"""How much longer training steps take under the recorder of PyTorch, in turns with plain steps of the same process.

    PYTHONPATH=build/release/python python3 tests/bench/recording.py [llama|ddp|moe|large ..] [--rounds N]

llama, ddp and moe are the programs of tests/subjects (moe needs transformers 5), with steps of milliseconds: the worst case. large is a
Llama of 6.4 M parameters of Hugging Face with two micro-batches of 512 tokens. In each round plain steps, and steps between those that are
recorded, take turns with a step that is recorded: all of it, its activations, statistics of these. What is written behind the step
counts; the first recorded step of a run, which looks for the optimizers, does not. Printed are medians over the rounds of what a step
takes over what a plain one does, in seconds of a clock | of the CPU for the program's thread | for all threads. The writer's thread has a
core to itself where one is free. Of every 100th step recorded: (99 steps between + 1 recorded) / 100.

Goals: everything of a step at most 3 times the step; every module's activations of every 100th step under 2 %.
"""

import argparse
import contextlib
import io
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

import assay.torch
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "subjects"))
LARGE = dict(vocab_size=2048, hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=8)
RECORDED = {  # of a step that is recorded
    "everything": {},
    "activations": {"kinds": ("activations",)},
    "statistics of activations": {"kinds": ("activations",), "values": "statistics"},
}


def decoder(wrap=lambda model: model):
    import torch_llama

    model = torch_llama.Decoder()
    text = torch.randint(torch_llama.WORDS, (2, torch_llama.BATCH, torch_llama.TOKENS + 1))
    net = wrap(model)
    return net, [lambda x=x: torch_llama.loss_of(net(x[:, :-1]), x[:, 1:]) for x in text]


def ddp():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return decoder(torch.nn.parallel.DistributedDataParallel)


def hugging_face(config, samples):
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(config).train()
    text = torch.randint(config.vocab_size, samples)
    return model, [lambda x=x: model(input_ids=x, labels=x, use_cache=False).loss for x in text]


def moe():
    import transformers_moe

    return hugging_face(transformers_moe.configuration("mixtral"), (2, 2, 16))


def large():
    import transformers

    return hugging_face(transformers.LlamaConfig(**LARGE), (2, 2, 256))


class Subject:
    def __init__(self, make):
        torch.manual_seed(0)
        self.model, self.micro_batches = make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self):
        for loss_of in self.micro_batches:
            (loss_of() / len(self.micro_batches)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def times(self, count):
        marks = [now()]
        for _ in range(count):
            self.step()
            marks.append(now())
        return [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(marks)]

    def recorded(self, count, **selection):
        """Of each of `count` steps between, and of a recorded one with `count` steps behind it."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            steps = f"0,{count + 1},{1000 * count}"
            recorder = assay.torch.record(self.model, out=Path(folder, "dump"), steps=steps, **selection)
            times = self.times(2 * count + 2)
            recorder.close()
        return times[1 : count + 1], [sum(column) for column in zip(*times[count + 1 :], strict=True)]


def now():
    return time.perf_counter(), time.thread_time(), time.process_time()


def median(rows):
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def measure(name, subject, rounds, count):
    subject.times(3)
    plain, between, once = [], [], {how: [] for how in RECORDED}
    for _ in range(rounds):
        for how, selection in RECORDED.items():
            base = median(subject.times(count))
            idle, whole = subject.recorded(count, **selection)
            plain.append(base)
            idle = median(idle)
            between.append([a / b for a, b in zip(idle, base, strict=True)])
            once[how].append([(a - count * i) / b for a, i, b in zip(whole, idle, base, strict=True)])
    idle = median(between)
    print(f"{name}: a step takes " + " | ".join(f"{1e3 * t:.1f} ms" for t in median(plain)))
    print(f"  between recorded steps: {percent(idle)}")
    for how, rows in once.items():
        times = median(rows)
        every = [(99 * a + b) / 100 for a, b in zip(idle, times, strict=True)]
        print(
            f"  {how}: {' | '.join(f'{x:.2f}' for x in times)} times; of every 100th step: {percent(every)}", flush=True
        )


def percent(ratio):
    return " | ".join(f"{100 * (r - 1):+.2f} %" for r in ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", default=["llama", "ddp", "moe", "large"])
    parser.add_argument("--rounds", type=int, default=15, help="(default %(default)s)")
    given = parser.parse_args()
    makers = {"llama": decoder, "ddp": ddp, "moe": moe, "large": large}
    torch.set_num_threads(1)
    for name in given.subjects:
        measure(name, Subject(makers[name]), given.rounds, 3 if name == "large" else 20)


if __name__ == "__main__":
    main()
