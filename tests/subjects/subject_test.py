"""Walks a plan with a program that is not ours from one process to its full strategy: every stage has to pass. Where
torch or JAX is missing, or PyPI, it says so and ends with status 77:

    build/venv/bin/python tests/subjects/subject_test.py build/release/tools/assay/assay transformers-5.23.0 \
        tests/subjects/transformers.toml MODEL=mixtral DTYPE=bfloat16 EXPERTS=grouped_mm

"-" stands for no packages beside torch.
"""

import os
import pathlib
import sys
import tempfile

from installed import can_run, environment, folder_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import Shell


def main() -> int:
    assay, plan = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    if not can_run(assay, *(["jax", "optax"] if plan.name.startswith("jax") else ["torch"])):
        return 77
    if sys.argv[2] != "-":
        packages = folder_of(sys.argv[2], assay.parents[3] / "subjects")
        if packages is None:
            return 77
        os.environ |= environment(packages)
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)
        shell.environment |= dict(word.split("=", 1) for word in sys.argv[4:])
        shell.environment["CHECKPOINT"] = f"{folder}/checkpoint"
        done = shell.run(f"assay align {plan} --work {folder}/work", folder)
        print(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
