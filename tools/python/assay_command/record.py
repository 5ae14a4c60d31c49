"""`assay record`: runs a program of PyTorch as it is, and records it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

EPILOG = """examples:
  assay record -o dump -- torchrun --nproc_per_node 4 train.py
  assay record -o dump --steps 0,100 --modules 'model.layers.0.*' -- python train.py
  assay record --estimate -- torchrun --nproc_per_node 4 train.py
  assay record -o dump --steps '*/100' --values statistics -- torchrun --nproc_per_node 8 train.py
  assay record -o dump --kinds gradients,states -- torchrun --nproc_per_node 8 train.py

Every process of the command that imports torch and calls a model with gradients enabled is recorded, each rank into its
own file of one dump; layouts come from DTensors, meshes and process groups. Needs no change of the program.
The exit status is the command's."""


def main(words: Sequence[str]) -> int:
    selection = _module("_selection")
    default = selection.Selection()
    parser = argparse.ArgumentParser(
        prog="assay record",
        usage="assay record (-o DIR | --estimate) [OPTIONS] -- COMMAND ..",
        description="Records a training program into a dump, which appears whole when the program has ended.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ranges = "numbers and ranges, 0-3,100 or */100"
    parser.add_argument("-o", "--out", metavar="DIR", help="the dump: a new folder")
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="only say how large it will be, from the first step; the command ends there",
    )
    parser.add_argument("--steps", default=default.steps, help=f"optimizer steps: {ranges} (default %(default)s)")
    parser.add_argument(
        "--micro-batches", default=default.micro_batches, metavar="N", help=f"of each rank's own: {ranges}"
    )
    parser.add_argument("--ranks", default=default.ranks, metavar="N", help=f"{ranges}")
    parser.add_argument("--modules", action="append", default=[], metavar="PATTERN", help="only these; may be repeated")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="not these; may be repeated")
    parser.add_argument("--depth", type=int, metavar="N", help="no containers that lie deeper in the model")
    parser.add_argument("--kinds", default=",".join(selection.KINDS), help="of tensors (default %(default)s)")
    parser.add_argument("--phases", default=",".join(selection.PHASES), help="of a step (default %(default)s)")
    parser.add_argument(
        "--values",
        default=default.values,
        choices=selection.VALUES,
        help="of a tensor: all, or instead min, max, mean and norm, 2 KB, or a SHA-256 (default %(default)s)",
    )
    parser.add_argument(
        "--dtypes", default="", metavar="T", help="only tensors of these, as torch calls them: bfloat16,float32"
    )
    parser.add_argument(
        "--functions", action="store_true", help="also what modules call between their submodules; long to judge"
    )
    words = list(words)
    cut = words.index("--") if "--" in words else len(words)
    given, command = parser.parse_args(words[:cut]), words[cut + 1 :]
    if given.out is None and not given.estimate:
        return _trouble("no folder for the dump; expected: assay record -o DIR -- torchrun train.py")
    if not command:
        return _trouble("no command; expected: assay record -o DIR -- torchrun train.py")
    try:
        chosen = selection.Selection(
            steps=given.steps,
            micro_batches=given.micro_batches,
            ranks=given.ranks,
            modules=given.modules,
            exclude=given.exclude,
            depth=given.depth,
            functions=given.functions,
            kinds=tuple(k for k in given.kinds.split(",") if k),
            phases=tuple(p for p in given.phases.split(",") if p),
            values=given.values,
            dtypes=tuple(d for d in given.dtypes.split(",") if d),
        )
    except ValueError as error:
        return _trouble(f"--{error}")
    out = Path(given.out or ".").absolute()
    if not given.estimate and out.exists() and (not out.is_dir() or any(out.iterdir())):
        return _trouble(f"{given.out} exists; a dump is recorded into a new folder only")
    program = shutil.which(command[0])
    if program is None:
        return _trouble(f"{command[0]} is no program that can be found; expected one such as python or torchrun")
    # Sets of names, which modules go through, are in another order in each process otherwise.
    environment = {
        "PYTHONHASHSEED": "0",
        **os.environ,
        "ASSAY_RECORD_PROGRAM": str(out),
        "ASSAY_RECORD_SELECTION": chosen.text(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_startup()), os.environ.get("PYTHONPATH", "")])),
    }
    if given.estimate:
        return _estimate([program, *command[1:]], environment, chosen, out)
    return _end(out, given.out, _call([program, *command[1:]], environment))


def _call(command: list[str], environment: dict[str, str]) -> int:
    """Returns its exit status as a shell has it."""
    try:
        status = subprocess.call(command, env=environment)
    except KeyboardInterrupt:
        status = 130
    return status if status >= 0 else 128 - status


def _estimate(command: list[str], environment: dict[str, str], selection: Any, out: Path) -> int:
    with TemporaryDirectory(prefix="assay-") as folder:
        status = _call(command, environment | {"ASSAY_RECORD_ESTIMATE": folder})
        reports = [json.loads(path.read_text()) for path in Path(folder).glob("rank*.json")]
    if not reports or len(reports) < reports[0]["world_size"]:
        print("assay: no estimate: the command has not come to the end of a first step", file=sys.stderr)
        return status or 2
    size = _module("_size", "torch")
    place, free = size.free_at(out)
    print(f"{size.table_of(reports, selection)}; {place} has {size.words(free)} free")
    return status


def _end(out: Path, name: str, status: int) -> int:
    if (out / "manifest.json").exists():
        return status
    if (out / "manifest.json.unfinished").exists():
        print(f"assay: {name} is unfinished: a rank has not ended; what was recorded can be read", file=sys.stderr)
        return status or 2
    why = "" if out.is_dir() else ": no process called a model of torch with gradients enabled"  # else it has said why
    print(f"assay: nothing was recorded in {name}{why}", file=sys.stderr)
    return status or 2


def _package() -> Path:
    package = find_spec("assay")
    places = package.submodule_search_locations if package else None
    if not places:
        raise SystemExit(_trouble("the package assay is missing; install it again"))
    return Path(next(iter(places)))


def _startup() -> Path:
    return _package() / "torch" / "startup"


def _module(name: str, folder: str = "") -> ModuleType:
    """A module of the package alone: the package itself imports the extension, its recorder torch."""
    found = PathFinder.find_spec(name, [str(_package() / folder)])
    if found is None or found.loader is None:
        raise SystemExit(
            _trouble("the package's recorder (assay/_selection.py, assay/torch) is missing; install it again")
        )
    module = module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _trouble(what: str) -> int:
    print(f"assay: {what}", file=sys.stderr)
    return 2
