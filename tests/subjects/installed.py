"""Releases of PyPI, each in a folder of its own: tests/subjects/packages lists what a program needs."""

import importlib.util
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import package_of

LISTS = pathlib.Path(__file__).parent / "packages"


def can_run(assay: pathlib.Path, *modules: str) -> bool:
    """Whether these are there and the build has the Python package; else a line says what lacks."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing or package_of(assay) is None:
        lacks = f"{sys.executable} has no {', '.join(missing)}" if missing else "the build has no Python package"
        print(f"skipped: {lacks}")
        return False
    return True


def folder_of(packages: str, under: pathlib.Path) -> pathlib.Path | None:
    """Installs the packages once, without their dependencies; None, and a line that says why, where that fails."""
    wanted = (LISTS / f"{packages}.txt").read_text()
    folder = under / packages
    made = folder / "requirements.txt"
    if not made.exists() or made.read_text() != wanted:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--upgrade",
        ]
        done = subprocess.run([*command, "--target", folder, "-r", LISTS / f"{packages}.txt"], check=False)
        if done.returncode != 0:
            print(f"skipped: {packages} cannot be installed from PyPI")
            return None
        made.write_text(wanted)
    return folder


def environment(folder: pathlib.Path) -> dict[str, str]:
    """For programs that import them."""
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    # Megatron-core insists on it where tensor parallelism has sequence parallelism.
    return {"PYTHONPATH": paths, "CUDA_DEVICE_MAX_CONNECTIONS": "1", "TRANSFORMERS_VERBOSITY": "error"}
