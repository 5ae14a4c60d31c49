"""The `assay` command of the wheel: the C++ program beside the package."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).with_name("bin") / "assay"
    if not program.exists():
        sys.exit(f"assay: {program} is missing; expected the program that belongs to the package: install it again")
    os.execv(program, [str(program), *sys.argv[1:]])
