"""Each fault of faults.py first changes a number of the tensor where it is expected, against a run without it that is made alike.

    python3 faults_test.py [FAULT ..]

In float32, each with a family of its turn; four minutes for all. Where a package of requirements.txt is not installed it says so
and ends with status 77.
"""
import fnmatch
import importlib.util
import itertools
import json
import sys
import tempfile
from pathlib import Path

missing = [name for name in ("numpy", "safetensors", "torch", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {sys.executable} has no {', '.join(missing)}")
    sys.exit(77)

import torch  # noqa: E402
import transformers  # noqa: E402
from board import LAYOUTS  # noqa: E402
from faults import FAULTS  # noqa: E402
from launch import run  # noqa: E402
from program import Options  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def records(dump: Path, rank: int) -> dict[str, torch.Tensor]:
    """By the names of findings, in execution order."""
    tensors = load_file(dump / f"rank{rank:05}.safetensors")
    found = {}
    for line in (dump / f"rank{rank:05}.jsonl").read_text().splitlines():
        r = json.loads(line)
        when = f"step {r['step']}" + (f", micro-batch {r['micro_batch']}" if r["micro_batch"] >= 0 else "")
        call = f", call {r['call']}" if r["call"] else ""
        found[f"{r['module']} {r['slot']} {r['arg']} ({when}, {r['phase']}{call})"] = tensors[r["data"]["name"]]
    return found


def is_same(actual: torch.Tensor, right: torch.Tensor) -> bool:
    """But for a rounding: of an optimizer's step some factors cancel."""
    return actual.shape == right.shape and torch.allclose(actual.double(), right.double(), rtol=1e-6, atol=1e-9)


def first_changes(faulty: Path, clean: Path, ranks: int) -> list[str]:
    """The first of each rank."""
    found = []
    for rank in range(ranks):
        actual, right = records(faulty, rank), records(clean, rank)
        changed = (name for name, x in right.items() if name not in actual or not is_same(actual[name], x))
        added = (name for name in actual if name not in right)
        found += itertools.islice(changed, 1) or itertools.islice(added, 1)
    return found


def main() -> int:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    failed, names = 0, sys.argv[1:] or list(FAULTS)
    with tempfile.TemporaryDirectory() as folder:
        for turn, name in enumerate(names):
            fault = FAULTS[name]
            family, layout = fault.families[turn % len(fault.families)], fault.layouts[0]
            options = LAYOUTS[layout].options | {"family": family}
            clean, faulty = Path(folder, f"{family}-{layout}"), Path(folder, name)
            if not (clean.exists() or run(Options(str(clean), **options))) or not run(Options(str(faulty), fault=name, **options)):
                failed += 1
                print(f"{name} ends in an error:\n{Path(f'{faulty}.log').read_text()}")
                continue
            changes = first_changes(faulty, clean, options.get("ranks", 1))
            if not any(fnmatch.fnmatchcase(change.removeprefix("module."), fault.place) for change in changes):
                failed += 1
                print(f"{name} is expected at {fault.place}; it changes {', '.join(changes) or 'nothing'}")
    print(f"{len(names)} faults, {failed} elsewhere")
    return 0 if names and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
