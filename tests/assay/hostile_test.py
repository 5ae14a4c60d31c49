"""Names of tensors and files that mean something to a shell, a terminal, a spreadsheet, a browser or a parser."""
import csv
import io
import json
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from program import ASSAY, Test, environment, write_safetensors

HOSTILE = ["it's; touch pwned #", "$(touch pwned)", "`touch pwned`", "-rf", "--help", "=1+1", "a*b?[c]", "two\nlines", "tab\there",
           "esc\x1b[2J\x1b]0;t\x07", "<b>&amp;]]>", "\u202ebidi\u2066", "\u009b31m", "\ufffe\uffff", "caf\u00e9 \u4e2d", "\\x1b", '"q"',
           "a,b", "| c |", " "]


class Hostile(Test):
    def setUp(self):
        super().setUp()
        for side, value in (("a b'", 1), ("r;$x", 2)):
            write_safetensors(self.dir / side, {name: ("float32", [2], [1, value]) for name in HOSTILE})

    def check_text(self, text):
        for character in text:
            code = ord(character)
            self.assertFalse(code < 32 and character != "\n" or 127 <= code < 160, repr(text))
            self.assertNotIn(character, "\u202e\u2066\ufffe\uffff", repr(text))

    def test_text_and_listing(self):
        self.check_text(self.expect(1, "diff", "a b'", "r;$x", "--all").out)
        self.check_text(self.expect(0, "inspect", "a b'").out)
        self.check_text(self.expect(0, "inspect", "a b'", "--json").out)
        self.check_text(self.expect(1, "diff", "a b'", "r;$x", "--markdown", "-").out)

    def test_json(self):
        report = json.loads(self.expect(1, "diff", "a b'", "r;$x", "--json", "-").out)
        self.assertEqual([f["name"] for f in report["findings"]], HOSTILE)

    def test_junit_is_well_formed_and_names_are_unique(self):
        text = self.expect(1, "diff", "a b'", "r;$x", "--junit", "-").out
        root = ElementTree.fromstring(text)
        self.assertEqual(root.get("tests"), str(len(HOSTILE)))
        cases = [(c.get("classname"), c.get("name")) for c in root.iter("testcase")]
        self.assertEqual(len(cases), len(HOSTILE))
        self.assertEqual(len(set(cases)), len(HOSTILE))
        self.assertEqual(len(list(root.iter("failure"))), len(HOSTILE))
        self.assertIn("<b>&amp;]]>", [c.get("classname") for c in root.iter("testcase")])

    def test_csv(self):
        text = subprocess.run([ASSAY, "diff", "a b'", "r;$x", "--csv", "-"], capture_output=True, cwd=self.dir).stdout.decode()
        rows = list(csv.reader(io.StringIO(text, newline="")))
        self.assertEqual(len(rows), 1 + len(HOSTILE))
        for row in rows:
            self.assertEqual(len(row), len(rows[0]))
            self.assertFalse(row[0].startswith(("=", "+", "-", "@")), row[0])

    def test_commands_to_repeat_do_just_that(self):
        report = json.loads(self.expect(1, "diff", "a b'", "r;$x", "--tolerance", "torch", "--json", "-").out)
        for finding in report["findings"]:
            self.check_text(finding["repeat"])
            done = subprocess.run(["sh", "-c", finding["repeat"] + " --json -"], cwd=self.dir, env=environment(), capture_output=True)
            again = json.loads(done.stdout)
            self.assertEqual(done.returncode, 1, finding["repeat"])
            same = [f for f in again["findings"] if f["name"] == finding["name"]]
            self.assertEqual(same, [finding])
        self.assertFalse((self.dir / "pwned").exists())


if __name__ == "__main__":
    unittest.main()
