"""Shell sessions of a document: what to run, and whether it prints what the document shows."""
import os
import pathlib
import re
import subprocess
import sys


def sessions(text):
    """Lists of (command, expected output), one for each ```shell-session block."""
    for block in re.finditer(r"^```shell-session\n(\$ (?:.*\n)*?)```$", text, re.M):
        yield [(part.partition("\n")[0], part.partition("\n")[2]) for part in re.split(r"^\$ ", block.group(1), flags=re.M)[1:]]


def without_measures(text):
    """Times, and last places that depend on the CPU."""
    return re.sub(r"error/allowed [-+.e0-9E]+", "error/allowed E", re.sub(r" +\d+\.\d s", " T s", text))


def shows(expected, actual):
    """A line of "..." stands for any lines, ".." for the rest of a word or line."""
    lines = without_measures(expected).splitlines()
    some = [re.escape(line).replace(re.escape(" .. "), r" \S+ ").replace(r"\.\.", ".*") for line in lines]
    pattern = "".join("(?:.*\n)*?" if line == "..." else one + "\n" for line, one in zip(lines, some))
    return re.fullmatch(pattern, without_measures(actual)) is not None


def package_of(assay):
    """The folder of the Python package beside a build's program; None where it was not built."""
    package = assay.resolve().parents[2] / "python"
    return package if (package / "assay" / "_core.abi3.so").exists() else None


class Shell:
    """Runs commands with this interpreter as python3 and torchrun, and assay on the path: of the Python package, where the build has it."""

    def __init__(self, folder, assay):
        package = package_of(assay)
        programs = {"python3": "", "torchrun": " -m torch.distributed.run"} | ({"assay": " -m assay_command"} if package else {})
        for name, words in programs.items():
            path = pathlib.Path(folder, name)
            path.write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
            path.chmod(0o755)
        self.environment = dict(os.environ, PATH=f"{folder}:{assay.parent}:{os.environ['PATH']}", NO_COLOR="1", GITHUB_ACTIONS="false",
                                OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", GLOO_SOCKET_IFNAME="lo")
        if package:
            self.environment["PYTHONPATH"] = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(self, command, cwd):
        print(f"$ {command}", flush=True)
        return subprocess.run(["bash", "-c", command], cwd=cwd, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
