#!/usr/bin/env python3
"""assay diff against what people use today, on the same warm files, in one run:

    python3 tests/bench/differ_others.py build/release/tools/assay/assay [MILLION_ELEMENTS]

Prints how many times faster than each it is: medians of interleaved runs, the start of the process included for assay
and h5diff, excluded for numpy. h5diff is left out where it, or h5py, is not installed.
"""
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def allclose(a, r):
    return np.allclose(a, r, rtol=1e-4, atol=1e-4)


def relative_error(a, r):
    epsilon = np.where(r == 0, np.finfo(np.float32).eps, np.float32(0))
    return np.abs((a + epsilon - (r + epsilon)) / (r + epsilon))


def six_passes(a, r):
    """The metrics of msprobe's compare (mindstudio_probe 26.2), each by itself as there: the first three in float64, the
    relative error in float32 anew for each of the others."""
    def wide():
        return a.reshape(-1).astype(np.float64), r.reshape(-1).astype(np.float64)

    x, y = wide()
    cosine = np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))
    x, y = wide()
    euclidean = np.linalg.norm(x - y)
    x, y = wide()
    largest = np.max(np.abs(x - y))
    return (cosine, euclidean, largest, np.max(relative_error(a, r)),
            np.mean(relative_error(a, r) < 1e-3), np.mean(relative_error(a, r) < 5e-3))


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    assay = sys.argv[1]
    elements = int(sys.argv[2] if len(sys.argv) > 2 else 64) * 1_000_000
    rng = np.random.default_rng(7)
    reference = rng.random(elements, dtype=np.float32) * 2 - 1
    actual = reference * (1 + rng.random(elements, dtype=np.float32) * np.float32(1e-6))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        paths = {}
        for name, array in (("actual", actual), ("reference", reference)):
            paths[name] = folder / f"{name}.npy"
            np.save(paths[name], array)
        del actual, reference

        def command(*arguments):
            subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

        def load():
            return np.load(paths["actual"]), np.load(paths["reference"])

        runs = {f"assay, {n} threads": lambda n=n: command(assay, "diff", paths["actual"], paths["reference"],
                                                           "--threads", str(n)) for n in (1, 2)}
        runs["numpy.allclose"] = lambda: allclose(*load())
        runs["six numpy passes"] = lambda: six_passes(*load())
        try:
            import h5py
            for name, path in list(paths.items()):
                paths[f"{name}.h5"] = path.with_suffix(".h5")
                with h5py.File(paths[f"{name}.h5"], "w") as file:
                    file["t"] = np.load(path)
            if shutil.which("h5diff"):
                runs["assay, HDF5, 1 threads"] = lambda: command(assay, "diff", paths["actual.h5"],
                                                                 paths["reference.h5"], "--threads", "1")
                runs["h5diff"] = lambda: command("h5diff", "-q", "-d", "1e-4", paths["actual.h5"],
                                                 paths["reference.h5"], "/t")
        except ImportError:
            print("h5py is not installed: no h5diff")
        times = {name: [] for name in runs}
        for _ in range(5):
            for name, run in runs.items():
                times[name].append(seconds(run))
        medians = {name: statistics.median(t) for name, t in times.items()}
        for name, median in medians.items():
            print(f"{name:24} {median:8.3f} s  {median / medians['assay, 1 threads']:6.1f} x assay on 1 thread,"
                  f" {median / medians['assay, 2 threads']:6.1f} x on 2")


main()
