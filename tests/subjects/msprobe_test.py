"""One program, recorded by msprobe itself and by assay: both meet. Without torch or PyPI it ends with status 77.

msprobe_test.py build/release/tools/assay/assay
"""

import json
import os
import pathlib
import re
import sys
import tempfile

from installed import can_run, environment, folder_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import Shell

PROGRAM = pathlib.Path(__file__).with_name("msprobe_decoder.py")
LEAST = 0.95  # of msprobe's tensors; it records gradients of containers, too


def main() -> int:
    assay = pathlib.Path(sys.argv[1]).resolve()
    if not can_run(assay, "torch"):
        return 77
    packages = folder_of("mindstudio-probe-26.2.0", assay.parents[3] / "subjects")
    if packages is None:
        return 77
    os.environ |= environment(packages)
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)

        def run(command: str, status: int = 0) -> str:
            done = shell.run(command, folder)
            print(done.stdout[-2000:])
            assert done.returncode == status, f"{command}: exit status {done.returncode}, expected {status}"
            return done.stdout

        run(f"python3 {PROGRAM} {folder}/L0 L0")
        run(f"python3 {PROGRAM} {folder}/mix mix")
        run(f"assay record -o {folder}/assay -- python3 {PROGRAM}")
        for actual, reference in (("L0", "assay"), ("assay", "L0"), ("mix", "assay")):
            report = run(f"assay diff {actual} {reference}")
            passed = int(re.search(r"(\d+) passed, 0 failed", report.splitlines()[-1])[1])
            # A weight that msprobe records in each call is one of the step.
            listed = json.loads(shell.run("assay inspect --json L0", folder).stdout)["tensors"]
            calls = ("step", "module", "slot", "arg", "phase")
            wanted = len({tuple(t[k] for k in calls) if t["slot"] in ("param", "grad") else t["name"] for t in listed})
            print(f"{actual} against {reference}: {passed} of {wanted} tensors of msprobe are compared and pass")
            assert passed >= LEAST * wanted
    return 0


if __name__ == "__main__":
    sys.exit(main())
