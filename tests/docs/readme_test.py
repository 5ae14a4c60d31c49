"""Runs every console block of a document and compares what it shows with what the commands print.

A line "..." in a block stands for any lines.  usage: readme_test.py README.md path/to/assay
"""
import os
import pathlib
import re
import subprocess
import sys


def blocks(text):
    """(line number, command, expected output) of each '$ command' in the ```console blocks."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        line = text[: block.start(1)].count("\n") + 1
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.group(1), re.M):
            yield line + block.group(1)[: part.start()].count("\n"), part.group(1), part.group(2)


def shows(expected, actual):
    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in expected.splitlines())
    return re.fullmatch(pattern, actual) is not None


def main():
    document, assay = (pathlib.Path(p).resolve() for p in sys.argv[1:])
    environment = dict(os.environ, PATH=f"{assay.parent}:{os.environ['PATH']}", NO_COLOR="1")
    found = failed = 0
    for line, command, expected in blocks(document.read_text()):
        found += 1
        run = subprocess.run(["bash", "-c", command], cwd=document.parent, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not shows(expected, run.stdout):
            failed += 1
            print(f"{document}:{line}: $ {command}\n--- the document shows\n{expected}--- the command prints\n{run.stdout}")
    print(f"{found} commands, {failed} differ")
    return 0 if found and not failed else 1


sys.exit(main())
