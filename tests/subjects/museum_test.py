"""Records releases with known numerical bugs beside those without, and runs what docs/museum.md shows of them. Where
torch is missing, or PyPI, it says so and ends with status 77:

    build/venv/bin/python tests/subjects/museum_test.py build/release/tools/assay/assay docs/museum.md [PIECE..]
"""

import os
import pathlib
import sys
import tempfile

from installed import can_run, environment, folder_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))
from session import Shell, sessions, shows

HERE = pathlib.Path(__file__).parent
MOE = "transformers_moe.py --checkpoint checkpoint-{} --model {}"
# What is recorded: the dump, the packages, ranks, the program.
DUMPS = [
    ("qwen3-1", "transformers-5.23.0", 1, MOE.format("qwen3", "qwen3")),
    ("qwen3-tp2", "transformers-5.23.0", 2, MOE.format("qwen3", "qwen3") + " --tp 2"),
    ("mixtral-1", "transformers-5.14.1", 1, MOE.format("mixtral", "mixtral")),
    ("mixtral-ep2", "transformers-5.14.1", 2, MOE.format("mixtral", "mixtral") + " --ep 2"),
    ("megatron-1", "megatron-core-0.16.1", 1, "megatron_moe.py"),
    ("megatron-tp2", "megatron-core-0.16.1", 2, "megatron_moe.py --tp 2 --sp"),
    ("gemma-4.38.2", "transformers-4.38.2", 1, "transformers_dense.py"),
    ("gemma-4.39.3", "transformers-4.39.3", 1, "transformers_dense.py"),
    ("gemma-bf16-4.38.2", "transformers-4.38.2", 1, "transformers_dense.py --dtype bfloat16 --tokens 400 --steps 1"),
    ("gemma-bf16-4.39.3", "transformers-4.39.3", 1, "transformers_dense.py --dtype bfloat16 --tokens 400 --steps 1"),
    ("trainer-4.45.2", "transformers-4.45.2", 1, "transformers_trainer.py --out trained"),
    ("trainer-4.46.3", "transformers-4.46.3", 1, "transformers_trainer.py --out trained"),
]


def main() -> int:
    assay, document = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    if not can_run(assay, "torch"):
        return 77
    commands = [one for session in sessions(document.read_text()) for one in session]
    shown = {word for command, _ in commands for word in command.split()}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for dump, packages, ranks, program in DUMPS:
            if dump not in shown or not dump.startswith(tuple(sys.argv[3:]) or ""):
                continue
            installed = folder_of(packages, assay.parents[3] / "subjects")
            if installed is None:
                return 77
            saved = dict(os.environ)
            os.environ |= environment(installed)
            launch = (
                "python3"
                if ranks == 1 and "megatron" not in program
                else f"torchrun --standalone --nproc_per_node {ranks}"
            )
            done = Shell(folder, assay).run(f"assay record -o {dump} --steps 0- -- {launch} {HERE}/{program}", folder)
            os.environ.clear()
            os.environ |= saved
            if not pathlib.Path(folder, dump, "manifest.json").exists():
                print(done.stdout[-2000:])
        shell = Shell(folder, assay)
        for command, expected in commands:
            if command.startswith("assay diff ") and command.split()[2].startswith(tuple(sys.argv[3:]) or ""):
                actual = shell.run(command, folder).stdout
                if not shows(expected, actual):
                    failed += 1
                    print(f"--- the document shows\n{expected}--- the command prints\n{actual}")
    print(f"{len(commands)} commands of the document, {failed} differ")
    return 0 if commands and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
