"""Runs every console block of a document and compares what it shows with what the commands print, and has
assay read every block of rules.

A line "..." in a block stands for any lines, and a time for any time. Commands run in the root of the tree.
usage: document_test.py README.md path/to/assay
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def blocks(text):
    """(line number, command, expected output) of each '$ command' in the ```console blocks."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        line = text[: block.start(1)].count("\n") + 1
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.group(1), re.M):
            yield line + block.group(1)[: part.start()].count("\n"), part.group(1), part.group(2)


def without_times(text):
    return re.sub(r" +\d+\.\d s\b", " T s", text)


def shows(expected, actual):
    lines = without_times(expected).splitlines()
    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in lines)
    return re.fullmatch(pattern, without_times(actual)) is not None


def rules_blocks(text):
    """(line number, content) of each ```toml block with tables of a rules file."""
    for block in re.finditer(r"^```toml\n(.*?)^```$", text, re.M | re.S):
        if "[[" in block.group(1):
            yield text[: block.start(1)].count("\n") + 1, block.group(1)


def complaint_about(rules, assay):
    """What assay says of a rules file that it does not take; empty if it does."""
    with tempfile.TemporaryDirectory() as folder:
        tensor = pathlib.Path(folder, "scalar.bin")
        tensor.write_bytes(bytes(4))
        file = pathlib.Path(folder, "rules.toml")
        file.write_text(rules)
        run = subprocess.run([assay, "diff", tensor, tensor, "--raw", "float32:", "--rules", file], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return run.stderr if run.returncode else ""


def main():
    document, assay = (pathlib.Path(p).resolve() for p in sys.argv[1:])
    root = pathlib.Path(__file__).resolve().parents[2]
    environment = dict(os.environ, PATH=f"{assay.parent}:{os.environ['PATH']}", NO_COLOR="1", GITHUB_ACTIONS="false")
    found = failed = 0
    for line, command, expected in blocks(document.read_text()):
        found += 1
        run = subprocess.run(["bash", "-c", command], cwd=root, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not shows(expected, run.stdout):
            failed += 1
            print(f"{document}:{line}: $ {command}\n--- the document shows\n{expected}--- the command prints\n{run.stdout}")
    for line, rules in rules_blocks(document.read_text()):
        found += 1
        if complaint := complaint_about(rules, assay):
            failed += 1
            print(f"{document}:{line}: rules that assay does not take: {complaint}")
    print(f"{found} commands and rules files, {failed} differ or fail")
    return 0 if found and not failed else 1


sys.exit(main())
