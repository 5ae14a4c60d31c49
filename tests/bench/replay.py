#!/usr/bin/env python3
"""A training step of the tiny telechat3-105b in float32 by assay replay, against eager PyTorch and against itself on 8 ranks:

    python3 tests/bench/replay.py build/release/tools/assay/assay [STEPS]

Processor time of a step, without what comes before the first, all on one core, whose caches the ranks share: the least of
interleaved runs, for others on the machine only add to it. PyTorch gets the model of tests/data/replay/make.py, every expert
on every token, and one thread, which is what a rank of a replay has; the losses of both must agree. Where valgrind is
installed the ranks' instructions are counted too: what they do, whatever they cost each other in caches and turns.
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
MODEL, PARALLEL = "telechat3-105b-tiny", "tp=2,pp=2,dp=2,ep=2"
LENGTH, MICRO_BATCHES, REPEATS = 32, 8, 5


def load_formulas():
    spec = importlib.util.spec_from_file_location("make", ROOT / "tests" / "data" / "replay" / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    make.SEQUENCES, make.LENGTH = 1, LENGTH
    return make


class Eager:
    """The same model, batch and optimizer in PyTorch, step after step."""

    def __init__(self, make):
        self.formulas = make.Step(tomllib.loads((ROOT / "tools" / "align" / "models" / f"{MODEL}.toml").read_text()))
        vocabulary, drawn, initial = self.formulas.m["vocabulary"], make.drawn, make.initial
        make.initial = lambda *of: initial(*of).float()

        def stream(number):
            name = "tokens" if number == 0 else f"tokens of micro-batch {number}"
            tokens = abs(drawn(name, LENGTH + 1)) * vocabulary
            return torch.from_numpy(tokens.astype("int64") % vocabulary)[None]

        self.streams, self.number = [stream(k) for k in range(MICRO_BATCHES)], 0
        make.stream_of = lambda *_: self.streams[self.number]
        self.optimizer = None

    def step(self):
        loads, loss = {}, 0.0
        for self.number in range(MICRO_BATCHES):
            self.formulas.losses = {}
            targets, routers = self.formulas.run()
            (targets + routers).backward()
            loss += (targets + routers).item() / MICRO_BATCHES
            for module, load in self.formulas.loads.items():
                loads[module] = loads.get(module, 0) + load
        self.update(loads)
        return loss

    @torch.no_grad()
    def update(self, loads):
        rate, parameters = self.formulas.moe["bias_rate"], self.formulas.parameters
        for module, load in loads.items():
            parameters[module + ".gate.e_score_correction_bias"] += rate * torch.sign(load.mean() - load).float()
        learnt = [p for p in parameters.values() if p.grad is not None]
        torch._foreach_div_([p.grad for p in learnt], MICRO_BATCHES)
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(
                [{"params": [p for p in learnt if p.dim() > 1], "weight_decay": 0.1},
                 {"params": [p for p in learnt if p.dim() == 1], "weight_decay": 0.0}],
                lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        self.optimizer.step()
        self.optimizer.zero_grad()


def words(assay, steps):
    return [assay, "replay", "--model", MODEL, "--precision", "fp32", "--sequences", "1", "--length", str(LENGTH),
            "--micro-batches", str(MICRO_BATCHES), "--steps", str(steps)]


def replay(assay, steps, *options):
    """(processor seconds, first loss)"""
    before = os.times()
    out = subprocess.run([*words(assay, steps), *options], check=True, capture_output=True, text=True).stdout
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, float(re.search(r"loss ([^,]*)", out)[1])


def step_of_replay(assay, steps, *options):
    return (replay(assay, 1 + steps, *options)[0] - replay(assay, 1, *options)[0]) / steps


def instructions(assay, steps, *options):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *words(assay, steps), *options]
    return int(re.search(r"Collected : (\d+)", subprocess.run(command, check=True, capture_output=True, text=True).stderr)[1])


def instructions_of_step(assay, *options):
    return instructions(assay, 2, *options) - instructions(assay, 1, *options)


def step_of_eager(eager, steps):
    start = time.process_time()
    for _ in range(steps):
        eager.step()
    return (time.process_time() - start) / steps


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    assay, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    eager = Eager(load_formulas())
    expected, loss = eager.step(), replay(assay, 1)[1]
    if not abs(loss - expected) <= 1e-5 * expected:
        sys.exit(f"the loss of the replay is {loss}, of PyTorch {expected}: not the same step")
    runs = {"single device": lambda: step_of_replay(assay, steps),
            "8 ranks": lambda: step_of_replay(assay, steps, "--parallel", PARALLEL),
            "eager PyTorch": lambda: step_of_eager(eager, steps)}
    times = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            times[name].append(run())
    least = {name: min(t) for name, t in times.items()}
    for name, seconds in least.items():
        print(f"{name:14} {1e3 * seconds:8.1f} ms")
    print(f"single device against eager PyTorch: {least['single device'] / least['eager PyTorch']:.2f}")
    print(f"{PARALLEL} against single device: {least['8 ranks'] / least['single device']:.2f}")
    if shutil.which("valgrind"):
        ratio = instructions_of_step(assay, "--parallel", PARALLEL) / instructions_of_step(assay)
        print(f"{PARALLEL} against single device, in instructions: {ratio:.2f}")


main()
