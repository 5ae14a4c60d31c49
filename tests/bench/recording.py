#!/usr/bin/env python3
"""How much longer training steps take under the recorder of PyTorch, in turns with plain steps of the same process.

    PYTHONPATH=build/release/python python3 tests/bench/recording.py [llama|ddp|moe|large ..] [--rounds N]

llama, ddp and moe are the programs of tests/subjects (moe needs transformers 5), with steps of milliseconds: the worst case. large is a
Llama of 6.4 M parameters of Hugging Face with two micro-batches of 512 tokens. Each round takes plain steps, steps between those that are
recorded, a step with all of it recorded, with its activations, and with statistics of these. Printed are medians over the rounds of what
a step takes over what a plain one does, in seconds of a clock | of the CPU, all threads: the writer's, too, which has a core to itself
where one is free. Of every 100th step recorded: (99 steps between + 1 recorded) / 100.

Goals: everything of a step at most 3 times the step; every module's activations of every 100th step under 2 %.
"""

import argparse
import contextlib
import io
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

    def times(self, count, **selection):
        """Of each step, and of the end of the recording if there is a selection: seconds of a clock and of the CPU."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            recorder = assay.torch.record(self.model, out=Path(folder, "dump"), **selection) if selection else None
            marks = [(time.perf_counter(), time.process_time())]
            for _ in range(count):
                self.step()
                marks.append((time.perf_counter(), time.process_time()))
            if recorder is not None:
                recorder.close()
                marks.append((time.perf_counter(), time.process_time()))
        return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(marks, marks[1:], strict=False)]


def median(rows):
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def measure(name, subject, rounds, count):
    subject.times(3)
    plain, between, recorded = [], [], {how: [] for how in RECORDED}
    for _ in range(rounds):
        plain.append(median(subject.times(count)))
        between.append(median(subject.times(count + 1, steps="1000")[1:-1]))
        for how, selection in RECORDED.items():
            _, step, end = subject.times(2, steps="1", **selection)
            recorded[how].append((step[0] + end[0], step[1] + end[1]))

    def ratios(rows):
        return median(
            [tuple(a / b for a, b in zip(row, base, strict=True)) for row, base in zip(rows, plain, strict=True)]
        )

    step, idle = median(plain), ratios(between)
    print(f"{name}: a step takes {1e3 * step[0]:.1f} ms | {1e3 * step[1]:.1f} ms")
    print(f"  a step between those that are recorded     {percent(idle)}")
    for how, rows in recorded.items():
        once = ratios(rows)
        every = tuple((99 * a + b) / 100 for a, b in zip(idle, once, strict=True))
        print(
            f"  {how + ' of a step':<42} {once[0]:6.2f} times | {once[1]:6.2f} times; of every 100th {percent(every)}",
            flush=True,
        )


def percent(ratio):
    return " | ".join(f"{100 * (r - 1):+6.2f} %" for r in ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", default=["llama", "ddp", "moe", "large"])
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    makers = {"llama": decoder, "ddp": ddp, "moe": moe, "large": large}
    torch.set_num_threads(1)
    for name in given.subjects:
        measure(name, Subject(makers[name]), given.rounds, 3 if name == "large" else 20)


if __name__ == "__main__":
    main()
