"""What is known of an operator stands in its own file: compare/ and tools/align/placement/ hold no operator's name.

usage: operator_names_test.py SOURCE_FOLDER
A name is a string literal of that text alone, or a word of a literal if it has an underscore ("moe_permute: .."): "add" and
"linear" are English as well. Code that calls one operator names the object: ops::rope.
"""
import pathlib
import re
import sys
import tempfile
import unittest

FOLDERS = ["compare", "tools/align/placement"]
# What has such a name but is no operator. A row that exempts nothing is an error.
EXEMPT = {
    ("compare/causes/values/explain_permuted.cpp", "slice"): "a word of a sentence",
    ("compare/result/cause.cpp", "clip"): "the name of a cause",
    ("tools/align/placement/movement.cpp", "split"): "a movement between ranks",
}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?P<raw>.*?)\)\1"|"(?P<text>(?:[^"\\\n]|\\.)*)"', re.S)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.M)


def operators(source):
    listed = (source / "operators/CMakeLists.txt").read_text()
    return set(re.search(r"set\(operators\s(.*?)\)", listed, re.S).group(1).split())


def literals(text):
    """(line, content) of every string literal outside of comments and includes."""
    text = INCLUDE.sub("", text)
    for token in TOKEN.finditer(text):
        content = token.group("raw") if token.group("raw") is not None else token.group("text")
        if content is not None:
            yield text[: token.start()].count("\n") + 1, content


def names_in(literal, names):
    return {literal} & names or {word for word in re.findall(r"\w+", literal) if "_" in word} & names


def complaints(source, exempt):
    """Lines that hold a name, and what each row of `exempt` has let pass."""
    found, used = [], {row: 0 for row in exempt}
    names = operators(source)
    for folder in FOLDERS:
        for file in sorted((source / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp"):
                continue
            path = file.relative_to(source)
            for line, literal in literals(file.read_text()):
                for name in sorted(names_in(literal, names)):
                    row = next((r for r in exempt if path.is_relative_to(r[0]) and r[1] in (None, name)), None)
                    if row:
                        used[row] += 1
                    else:
                        found.append(f'{path}:{line}: "{literal}" names the operator {name}')
    return found, used


class Detection(unittest.TestCase):
    """The rule itself, on a tree that breaks it."""

    def complaints(self, text, exempt=()):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            for path, content in {"operators/CMakeLists.txt": "set(operators\n  add\n  moe_permute rope)\n",
                                  "compare/a.cpp": text}.items():
                (source / path).parent.mkdir(exist_ok=True)
                (source / path).write_text(content)
            return complaints(source, exempt)[0]

    def test_what_is_right_is_right(self):
        self.assertEqual(self.complaints('// "rope"\n#include "add"\n/* "add"\n*/ f(ops::rope, "ropes", "to add moe_", R"(a rope)");'), [])

    def test_a_name(self):
        self.assertEqual(self.complaints('f("x",\n  "rope");'), ['compare/a.cpp:2: "rope" names the operator rope'])
        self.assertEqual(self.complaints('f("\\"", R"(add)");'), ['compare/a.cpp:1: "add" names the operator add'])

    def test_a_name_in_a_sentence(self):
        self.assertEqual(len(self.complaints('f("moe_permute: {} rows");')), 1)
        self.assertEqual(self.complaints('f("moe_permute: {} rows");', {("compare/a.cpp", "moe_permute"): "why"}), [])


class House(unittest.TestCase):
    source = None

    def test_no_operator_is_named(self):
        self.assertGreater(len(operators(self.source)), 90)
        found, used = complaints(self.source, EXEMPT)
        for row, count in used.items():
            print(f"{row[0]}{': ' + row[1] if row[1] else ''}: {count} exempt: {EXEMPT[row]}")
        self.assertEqual(found, [])

    def test_no_exemption_is_left_over(self):
        unused = [row for row, count in complaints(self.source, EXEMPT)[1].items() if count == 0]
        self.assertEqual(unused, [])


if __name__ == "__main__":
    House.source = pathlib.Path(sys.argv.pop(1))
    unittest.main()
