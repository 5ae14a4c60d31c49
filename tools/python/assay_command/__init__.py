"""The `assay` command of the package: the program as it is built without Python, and what needs Python.

Apart from the package, so that the command does not wait for its import.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import NoReturn


def _trouble(what: str) -> NoReturn:
    print(f"assay: {what}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    if sys.argv[1:2] == ["audit"]:
        if find_spec("numpy") is None:
            _trouble("audit needs numpy; pip install numpy")
        from assay.gates import main as audit

        sys.exit(audit(sys.argv[2:]))
    if sys.argv[1:2] == ["record"]:
        from assay_command.record import main as record

        sys.exit(record(sys.argv[2:]))
    package = find_spec("assay")
    found = PathFinder.find_spec("_core", package.submodule_search_locations if package else None)
    if found is None or found.loader is None:
        _trouble("the package's extension (assay/_core) is missing; install it again")
    core = module_from_spec(found)
    found.loader.exec_module(core)
    sys.exit(core.command(["assay", *sys.argv[1:]]))
