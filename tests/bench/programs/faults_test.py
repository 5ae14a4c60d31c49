"""Each fault of faults.py first changes a number of the tensor where it is expected, against a run without it that is made alike.

    python3 faults_test.py [FAULT ..]

In each dtype in which it is a fault, with a family of its turn; some minutes for all. Where a package of requirements.txt is not
installed it says so and ends with status 77.
"""
import fnmatch
import importlib.util
import itertools
import json
import shutil
import sys
import tempfile
from pathlib import Path

missing = [name for name in ("numpy", "safetensors", "torch", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {sys.executable} has no {', '.join(missing)}")
    sys.exit(77)

import torch  # noqa: E402
import transformers  # noqa: E402
from board import DTYPES, LAYOUTS, place_of  # noqa: E402
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


def is_rounding(actual: torch.Tensor, right: torch.Tensor) -> bool:
    """Factors that cancel in an optimizer's step still round."""
    u = torch.finfo(right.dtype).eps if right.dtype.is_floating_point else 0
    return actual.shape == right.shape and torch.allclose(actual.double(), right.double(), rtol=2 * u, atol=1e-9)


def change_at(place: str, faulty: Path, clean: Path, rank: int) -> str | None:
    """The name of the expected tensor if it changes and all before it by roundings at most, else of the first that changes."""
    actual, right = records(faulty, rank), records(clean, rank)
    first = None
    for name, x in right.items():
        if name in actual and torch.equal(actual[name], x):
            continue
        if fnmatch.fnmatchcase(place_of(name), place):
            return name
        first = first or name
        if name not in actual or not is_rounding(actual[name], x):
            return first
    return first or next((name for name in actual if name not in right), None)


def main() -> int:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    failed, names = 0, sys.argv[1:] or list(FAULTS)
    with tempfile.TemporaryDirectory() as folder:
        for (turn, name), dtype in itertools.product(enumerate(names), DTYPES):
            fault = FAULTS[name]
            if dtype not in fault.dtypes:
                continue
            family, layout = fault.families[turn % len(fault.families)], fault.layouts[0]
            options = LAYOUTS[layout].options | {"family": family, "dtype": dtype}
            clean, faulty = Path(folder, f"{family}-{dtype}-{layout}"), Path(folder, f"{name}-{dtype}")
            if not (clean.exists() or run(Options(str(clean), **options))) or not run(Options(str(faulty), fault=name, **options)):
                failed += 1
                print(f"{name} in {dtype} ends in an error:\n{Path(f'{faulty}.log').read_text()}")
                continue
            changes = [change_at(fault.place, faulty, clean, rank) or "nothing" for rank in range(options.get("ranks", 1))]
            if not any(fnmatch.fnmatchcase(place_of(change), fault.place) for change in changes):
                failed += 1
                print(f"{name} in {dtype} is expected at {fault.place}; it changes {', '.join(changes)}")
            shutil.rmtree(faulty)
    print(f"{len(names)} faults, {failed} elsewhere")
    return 0 if names and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
