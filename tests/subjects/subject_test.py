"""Walks a plan with a program that is not ours from one process to its full strategy: every stage has to pass. Where a
package that the program needs is missing it says so and ends with status 77:

    build/venv/bin/python tests/subjects/subject_test.py build/release/tools/assay/assay tests/subjects/transformers.toml \
        MODEL=mixtral DTYPE=bfloat16 EXPERTS=grouped_mm
"""

import importlib.util
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import Shell, package_of

NEEDS = {"transformers": "transformers", "megatron": "megatron"}


def main() -> int:
    assay, plan = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    missing = [name for name in ("torch", NEEDS[plan.stem]) if importlib.util.find_spec(name) is None]
    if missing or package_of(assay) is None:
        print(f"skipped: {sys.executable} has no {missing[0]}" if missing else "skipped: the build has no Python package")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)
        shell.environment |= dict(word.split("=", 1) for word in sys.argv[3:])
        shell.environment["CHECKPOINT"] = f"{folder}/checkpoint"
        done = shell.run(f"assay align {plan} --work {folder}/work", folder)
        print(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
