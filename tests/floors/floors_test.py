"""The floors of the house: no file includes one of a higher floor, and folders include each other in no circle.

usage: floors_test.py SOURCE_FOLDER
The compiler enforces the same where a folder is a target of its own (cmake/assay_library.cmake); this sees every folder,
generated headers and tests aside, and says which include is the way up.
"""
import pathlib
import re
import sys
import tempfile
import unittest

# Lowest first: a folder includes only folders of its own line and of the lines above.
FLOORS = [
    ["golden"],
    ["operators", "dumps"],
    ["compare/result"],
    ["compare/rules"],
    ["compare/measure"],
    ["compare/pairs"],
    ["compare/calls"],
    ["compare/flow"],
    ["compare/causes"],
    ["compare/origin"],
    ["compare/report"],
    ["compare"],
    ["tools/align", "tools/config"],
    ["tools/assay"],
    ["tools/python"],
]
# "assay/LIBRARY/.." is this folder.
LIBRARIES = {name: name for name in ("golden", "operators", "dumps", "compare")} | {"align": "tools/align", "config": "tools/config", "assay": "tools/assay"}


def included(line, file, source):
    """The file of this project that a line includes, relative to its root; None for others."""
    match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
    if not match:
        return None
    library = re.match(r"assay/(\w+)/(.+)", match.group(1))
    if library:
        return pathlib.Path(LIBRARIES[library.group(1)], library.group(2))
    return (file.parent / match.group(1)).resolve().relative_to(source.resolve())


def includes(source):
    """(file, line number, included file), both relative to the root."""
    for folder in sorted({folder.split("/")[0] for line in FLOORS for folder in line}):
        for file in sorted((source / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp"):
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                target = included(line, file, source)
                if target is not None:
                    yield file.relative_to(source), number, target


def floor_of(file):
    """The number of the line in FLOORS with the longest folder that the file is in."""
    def depth(floor):
        return max((len(f) for f in FLOORS[floor] if file.is_relative_to(f)), default=0)
    return max(range(len(FLOORS)), key=depth)


def ways_up(source):
    return [f"{file}:{line}: includes {target}, which is on a higher floor"
            for file, line, target in includes(source) if floor_of(target) > floor_of(file)]


def circles(source):
    """Of the folders that include each other in a circle, the shortest circle, with an include for each arrow."""
    arrows = {}
    for file, line, target in includes(source):
        if file.parent != target.parent:
            arrows.setdefault(file.parent, {}).setdefault(target.parent, f"{file}:{line} includes {target}")

    def way_back(start):
        paths = [[start]]
        seen = set()
        for path in paths:  # grows: breadth first
            for target in sorted(arrows.get(path[-1], {})):
                if target == start:
                    return path + [start]
                if target not in seen:
                    seen.add(target)
                    paths.append(path + [target])
        return None

    ways = [way for folder in sorted(arrows) if (way := way_back(folder))]
    if not ways:
        return []
    shortest = min(ways, key=len)
    return ["a circle of folders: " + "; ".join(arrows[a][b] for a, b in zip(shortest, shortest[1:]))]


class Detection(unittest.TestCase):
    """The rules themselves, on trees that break them."""

    def complaints(self, files):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            for name, text in files.items():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_text(text)
            return ways_up(source) + circles(source)

    def test_what_is_right_is_right(self):
        self.assertEqual(self.complaints({"golden/a.h": "", "compare/rules/b.cpp": '#include "assay/golden/a.h"\n',
                                          "compare/c.cpp": '#include "assay/compare/rules/b.h"\n#include "c.h"\n'}), [])

    def test_an_include_upwards(self):
        found = self.complaints({"golden/a.h": '#include <map>\n#include "assay/dumps/b.h"\n'})
        self.assertEqual(found, ["golden/a.h:2: includes dumps/b.h, which is on a higher floor"])
        found = self.complaints({"compare/rules/a.h": '#include "assay/compare/diff.h"\n'})
        self.assertEqual(found, ["compare/rules/a.h:1: includes compare/diff.h, which is on a higher floor"])

    def test_a_circle_on_one_floor(self):
        found = self.complaints({"dumps/torch/a.h": '#include "assay/dumps/io/b.h"\n',
                                 "dumps/io/b.h": '#include "../layout/c.h"\n',
                                 "dumps/layout/c.h": '#include "assay/dumps/torch/a.h"\n'})
        self.assertEqual(len(found), 1)
        for part in ("dumps/io/b.h:1", "dumps/layout/c.h:1", "dumps/torch/a.h:1"):
            self.assertIn(part, found[0])


class House(unittest.TestCase):
    source = None

    def test_no_include_upwards(self):
        self.assertGreater(len(list(includes(self.source))), 1000)
        self.assertEqual(ways_up(self.source), [])

    def test_no_circles(self):
        self.assertEqual(circles(self.source), [])


if __name__ == "__main__":
    House.source = pathlib.Path(sys.argv.pop(1))
    unittest.main()
