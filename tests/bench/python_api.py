#!/usr/bin/env python3
"""How long a judgement takes in Python, against torch's own evaluation in float64 on the same threads.

    PYTHONPATH=build/release/python python3 tests/bench/python_api.py [--threads N]
"""

import argparse
import subprocess
import sys
import time

import assay
import torch
from assay.testing import assert_matches_golden


def best(work, least=0.5):
    """Seconds of the fastest of repeated runs."""
    work()
    times, end = [], time.perf_counter() + least
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def softmax_of(shape):
    x = torch.randn(shape, requires_grad=True)
    g = torch.randn(shape)
    y = torch.softmax(x, -1)
    (grad,) = torch.autograd.grad(y, x, g)
    inputs, outputs = {"x": x, "grad_y": g}, {"y": y, "grad_x": grad}
    x64 = x.detach().double().requires_grad_()
    g64 = g.double()

    def reference():
        torch.autograd.grad(torch.softmax(x64, -1), x64, g64)

    def judge():
        if not assay.judge("softmax", inputs, outputs):
            raise SystemExit("a right softmax is refused")

    return judge, reference


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    assay.set_threads(threads)

    judge, reference = softmax_of((1024, 1024))
    ours, theirs = best(judge), best(reference)
    print(f"judge softmax [1024, 1024] float32, forward and backward: {ours * 1e3:.1f} ms, {ours / theirs:.2f} times torch in float64 (goal: 3)")
    judge, reference = softmax_of((64, 64))
    ours = best(judge)
    print(f"judge softmax [64, 64]: {ours * 1e3:.2f} ms (goal: 1)")

    cases = assay.cases("rms_norm", [{"N": [4], "C": [16]}, {"N": [2, 3], "C": [8]}], seeds=500)
    start = time.perf_counter()
    for case in cases:
        given = case.inputs
        made = {n: v for n, v in assay.golden(case.op, given, case.attributes).items() if n != "rstd"}
        assert_matches_golden(case.op, given, made)
    print(f"{len(cases)} small assertions, generated, computed and judged: {time.perf_counter() - start:.1f} s (goal: 10)")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import assay"], check=True)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    print(f"import assay: {(whole - (time.perf_counter() - start)) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
