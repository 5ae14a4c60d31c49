"""What the pages show of Python is what is printed.

```python blocks are files, named in their first line; ```pycon blocks are interactive sessions, ```shell-session blocks
those of a shell with pytest and assay.
"""

import doctest
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import session  # noqa: E402

PAGES = [
    p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if "assert_matches_golden" in p.read_text()
]


@pytest.fixture(scope="module", params=PAGES, ids=lambda p: p.name)
def page(request):
    return request.param


def test_there_are_pages():
    assert {p.name for p in PAGES} >= {"README.md", "kernels.md"}


def test_interactive_sessions(page):
    text = page.read_text()
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S)
    if not blocks:
        pytest.skip(f"{page.name} has none")
    names: dict = {}
    for block in blocks:
        # ".." stands for the rest of a word, as in the shell's.
        wanted = re.sub(r"(?<![.])\.\.(?![.])", "...", block)
        test = doctest.DocTestParser().get_doctest(wanted, names, page.name, str(page), 0)
        found: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=found.append, clear_globs=False)
        names = test.globs
        assert not found, "".join(found)


def test_shell_sessions(page, tmp_path):
    text = page.read_text()
    for block in re.findall(r"^```python\n(# (\S+\.py)\n.*?)^```$", text, re.M | re.S):
        (tmp_path / block[1]).write_text(block[0])
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, command in {
        "pytest": f"{sys.executable} -m pytest -p assay_pytest -p no:randomly -p no:cacheprovider",
        "assay": f"{sys.executable} -m assay_command",
    }.items():
        (shims / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
        (shims / name).chmod(0o755)
    shell = session.Shell(shims, shims / "assay")
    sessions = session.sessions(text)
    if not sessions:
        pytest.skip(f"{page.name} has none")
    for commands in sessions:
        for command, expected in commands:
            printed = shell.run(command, tmp_path).stdout
            assert session.shows(expected, printed), f"$ {command}\n--- shown\n{expected}--- printed\n{printed}"
