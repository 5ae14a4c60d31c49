"""Holds training steps of transformers, recorded without a changed line, against the golden replay of the same model:
nothing but the recording is given. Where torch is missing, or PyPI, it says so and ends with status 77:

    build/venv/bin/python tests/subjects/golden_test.py build/release/tools/assay/assay transformers-5.23.0 mixtral 3

The last word is the seed.
"""

import json
import os
import pathlib
import sys
import tempfile

from installed import can_run, environment, folder_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import Shell

PROGRAM = pathlib.Path(__file__).parent / "transformers_moe.py"
# Of all that was recorded, inputs too: containers hand on what was compared where it was made.
LEAST_COMPARED = 0.75


def main() -> int:
    assay, model, seed = pathlib.Path(sys.argv[1]).resolve(), sys.argv[3], sys.argv[4]
    if not can_run(assay, "torch"):
        return 77
    packages = folder_of(sys.argv[2], assay.parents[3] / "subjects")
    if packages is None:
        return 77
    os.environ |= environment(packages)
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)
        optimizer = "torch-adamw,weight_decay=0.1,max_norm=0"
        for command in (
            f"assay record -o run --steps 0- -- python3 {PROGRAM} --model {model} --seed {seed} "
            "--checkpoint checkpoint",
            "assay replay --model checkpoint/config.json --weights checkpoint --tokens run "
            f"--optimizer {optimizer} --dump golden",
            "assay inspect run --json > run.json",
            "assay diff run golden --json report.json",
        ):
            done = shell.run(command, folder)
            print(done.stdout)
            if done.returncode != 0:
                return 1
        recorded = len(json.loads(pathlib.Path(folder, "run.json").read_text())["tensors"])
        compared = len(json.loads(pathlib.Path(folder, "report.json").read_text())["findings"])
        print(f"{compared} of {recorded} recorded tensors are compared")
        if compared < LEAST_COMPARED * recorded:
            return 1
        # The norm after attention with another eps: golden is not only a copy.
        wrong = pathlib.Path(folder, "checkpoint", "wrong.json")
        config = json.loads(wrong.with_name("config.json").read_text())
        wrong.write_text(json.dumps(config | {"rms_norm_eps": 1e-2}))
        shell.run(
            "assay replay --model checkpoint/wrong.json --weights checkpoint --tokens run "
            f"--optimizer {optimizer} --dump wrong",
            folder,
        )
        done = shell.run("assay diff run wrong", folder)
        print(done.stdout)
        named = "it is rms_norm with eps = 1e-" in done.stdout
        return 0 if done.returncode == 1 and named else 1


if __name__ == "__main__":
    sys.exit(main())
