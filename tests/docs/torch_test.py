"""Runs the PyTorch example: every shell-session block of a document shows what its commands print, and each bug that
train.py can plant is named. Where torch or the Python package is missing it says so and ends with status 77:

    build/venv/bin/python tests/docs/torch_test.py docs/torch.md build/release/tools/assay/assay
"""
import importlib.util
import pathlib
import sys
import tempfile

from session import Shell, package_of, sessions, shows

# What the first line of the report and the cause must be: (strategy, bug, tensor, cause).
BUGS = [
    ("--dp 2", "dp-sum", "layers.0.down grad weight (step 0, backward)", "partial sum, the all-reduce over dp is missing"),
    ("--tp 2", "row-output", "layers.0.down output y (step 0, micro-batch 0, forward)", "partial sum, the all-reduce over tp is missing"),
    ("--tp 2", "column-mean", "layers.1.up grad_input x (step 0, micro-batch 0, backward)", "actual = 0.5 x reference (0.5 = 1/tp or 1/ranks)"),
    ("--dp 2", "loss-share", "loss grad_output y (step 0, micro-batch 0, backward)", "actual = 2 x reference (2 = dp or ranks)"),
    ("", "norm-decay", "layers.0.norm param weight (step 0, optimizer)", "weight decay 0.1 where the reference has none"),
]


def main():
    document, assay = (pathlib.Path(p).resolve() for p in sys.argv[1:])
    if importlib.util.find_spec("torch") is None or package_of(assay) is None:
        print(f"skipped: {sys.executable} has no torch, or the build no Python package; see the head of {__file__}")
        return 77
    example, failed = document.parent / "torch", 0
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder, assay)
        found = 0
        for command, expected in (one for session in sessions(document.read_text()) for one in session):
            found += 1
            # Its dumps do not go into the tree.
            done = shell.run(command.replace(" align.toml", f" align.toml --work {folder}/{found}"), document.parent.parent)
            actual = done.stdout.replace(f"{folder}/{found}/", "assay-align/")
            if not shows(expected, actual):
                failed += 1
                print(f"--- the document shows\n{expected}--- the command prints\n{actual}")
        launch = f"assay record -o {{1}} -- torchrun --standalone --nproc_per_node {{0}} {example}/train.py {{2}}"
        reference = shell.run(launch.format(1, "reference", ""), folder)
        for strategy, bug, tensor, cause in BUGS:
            trained = shell.run(launch.format(2 if strategy else 1, bug, f"{strategy} --bug {bug}"), folder)
            report = shell.run(f"assay diff {bug} reference", folder)
            said = " ".join(report.stdout.split())
            if report.returncode != 1 or f"first in execution order: {tensor} " not in said or cause not in said:
                failed += 1
                print(f"--- {bug} was not named\n{reference.stdout}{trained.stdout}{report.stdout}")
    print(f"{found} commands of the document and {len(BUGS)} bugs, {failed} differ")
    return 0 if found and not failed else 1


sys.exit(main())
