"""Runs the example of two platforms: every shell-session block of the page shows what its commands print. Where torch or jax
is not installed it says so and ends with status 77; as they are no packages of the distribution, only this test wants them:

    python3 -m venv venv && venv/bin/pip install torch jax optax numpy safetensors
    venv/bin/python tests/docs/platforms_test.py docs/platforms.md path/to/assay
"""
import importlib.util
import pathlib
import shutil
import sys
import tempfile

from session import Shell, sessions, shows


def main():
    missing = [name for name in ("torch", "jax", "optax", "numpy", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; see the head of {__file__}")
        return 77
    document, assay = (pathlib.Path(p).resolve() for p in sys.argv[1:])
    found = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)
        for name in ("torch", "platforms"):
            shutil.copytree(document.parent / name, pathlib.Path(folder, "docs", name))
        for session in sessions(document.read_text()):
            for command, expected in session:
                found += 1
                done = shell.run(command, pathlib.Path(folder, "docs", "platforms"))
                if not shows(expected, done.stdout):
                    failed += 1
                    print(f"--- the document shows\n{expected}--- the command prints\n{done.stdout}")
    print(f"{found} commands of the document, {failed} differ")
    return 0 if found and not failed else 1


sys.exit(main())
