"""The command line: help, version, and what it refuses."""
import re
import unittest

from program import CASES, Test

VERBS = ["ops", "hypotheses", "golden", "check", "generate", "order", "inspect", "diff", "config", "replay", "plan", "align", "baseline", "faults", "tolerance", "convert"]


class Usage(Test):
    def test_help_of_the_program_names_every_verb_and_the_exit_status(self):
        out = self.expect(0, "--help").out
        self.assertEqual(re.findall(r"(?m)^  (\w+) ", out.split("Subcommands:")[1].split("examples:")[0]), VERBS)
        self.assertIn("exit status: 0 all compared and passed, 1 a finding, 2 trouble", out)

    def test_help_of_every_verb_shows_an_example(self):
        for verb in VERBS:
            out = self.expect(0, verb, "--help").out
            self.assertRegex(out, rf"example:  assay {verb}")
            for line in out.splitlines():
                if "Excludes:" in line:  # CLI11 lists them all
                    continue
                self.assertLessEqual(len(line), 110, line)

    def test_version(self):
        self.assertRegex(self.expect(0, "--version").out, r"^\d+\.\d+\.\d+\n$")

    def test_usage_errors_are_trouble(self):
        for words in ([], ["no_such_verb"], ["check"], ["diff", "a"], ["diff", "a", "b", "--no-such-option"], ["golden"], ["inspect"],
                      ["convert", "a"], ["diff", "a", "b", "c"], ["diff", "a", "b", "--color", "blue"],
                      ["diff", "a", "b", "--threads", "many"], ["ops", "--json", "--markdown"], ["tolerance", "--count", "x"], ["hypotheses"]):
            self.expect(2, *words)

    def test_verbs_of_the_python_package_are_said_to_be(self):
        self.trouble("record", "-o", "dump", "--", "python", says="record: is a verb of the Python package's command")
        self.trouble("audit", says="audit: is a verb of the Python package's command")

    def test_an_option_is_no_value(self):
        a, r = self.pair()
        before = set(self.dir.iterdir())
        self.trouble("diff", a, r, "--json", "--csv", says="--json: is followed by --csv, which looks like an option; expected a value")
        self.trouble("diff", "--only", "-v", a, r, says="--only: is followed by -v")
        self.trouble("convert", a, "out", "--to", "--no-such-option", says="--to: is followed by")
        self.trouble("golden", "case", "-o", "--level", "fp64", says="-o: is followed by --level")
        self.assertEqual(set(self.dir.iterdir()), before)
        self.expect(1, "diff", a, r, "--json=./--csv", "--csv=--json", "--markdown", "-")
        self.assertEqual({p.name for p in set(self.dir.iterdir()) - before}, {"--csv", "--json"})

    def test_option_values_that_are_wrong_are_trouble(self):
        a, r = self.pair()
        self.trouble("diff", a, r, "--tolerance", "telechat4", says="there is no tolerance policy 'telechat4'")
        self.trouble("diff", a, r, "--threads", "-1", says="--threads -1: expected a number >= 0")
        self.trouble("diff", a, r, "--dtype-hint", "bf17", says="--dtype-hint bf17")
        self.trouble("diff", a, r, "--rules", "none.toml", says="none.toml")
        self.trouble("diff", "none", r, says="none")
        self.trouble("diff", a, "none", says="none")
        self.trouble("check", "none", says="no case.json here or below")
        self.trouble("check", CASES / "matmul", "--level", "best", says="best")
        self.trouble("golden", CASES / "matmul", "--level", "best", says="best")
        self.trouble("inspect", "none", says="none")
        self.trouble("ops", "matmull", says="matmull")
        self.trouble("tolerance", "--op", "matmul", says="--dtype is missing")
        self.trouble("tolerance", "torch", "--dtype", "float8_e5m2", "--count", "3", says="has no row for float8_e5m2")
        self.trouble("tolerance", "--dtype", "float32", "--count", "-3", says="--count -3")
        self.trouble("tolerance", "--dtype", "float31", says="float31")


if __name__ == "__main__":
    unittest.main()
