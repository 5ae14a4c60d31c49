"""The `assay` command of the wheel: the C++ program that the package brings, and what needs Python.

Apart from the package, so that the command does not wait for its import.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    if sys.argv[1:2] == ["audit"]:
        from assay.gates import main as audit

        sys.exit(audit(sys.argv[2:]))
    package = find_spec("assay")
    program = Path(str(package and package.origin)).with_name("bin") / "assay"
    if not program.exists():
        sys.exit(f"assay: {program} is missing; expected the program that belongs to the package: install it again")
    os.execv(program, [str(program), *sys.argv[1:]])
