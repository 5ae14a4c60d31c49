"""The command that repeats a finding has every option that decides its verdict: here is what --help has, and what may be left out."""
import json
import re
import struct
import subprocess
import unittest

from program import CaseTest, Test, environment, write_safetensors

# Where reports go and who does the work; --only is set to the finding's name, --actual stands before.
NOT_REPEATED = {"--help", "--json", "--jsonl", "--csv", "--html", "--junit", "--markdown", "--github", "--no-github", "--color", "--all",
                "--threads", "--alone", "--cases", "--only", "--actual", "--log-level", "--log-file"}
# An option that is not here is given without a value.
VALUES = {"--tolerance": "torch", "--rules": "rules.toml", "--dtype-hint": "bfloat16", "--raw": "float32:4", "--rerun": "r.safetensors", "--level": "report",
          "--accumulator": "hopper", "--intermediate": "bfloat16"}


class Repeat(Test):
    def setUp(self):
        super().setUp()
        (self.dir / "rules.toml").write_text("[[rename]]\nfrom = 'none'\nto = 'other'\n")

    def options(self, *verb):
        return re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", self.expect(0, *verb, "--help").out)

    def deciding(self, *verb):
        """As words: ["--tolerance", "torch"]."""
        return [[o, VALUES[o]] if o in VALUES else [o] for o in self.options(*verb) if o not in NOT_REPEATED]

    def findings(self, *words):
        done = self.expect(1, *words, "--json", "-")
        return [f for f in json.loads(done.out)["findings"] if f["repeat"]]

    def again(self, finding):
        done = subprocess.run(["sh", "-c", finding["repeat"] + " --json -"], cwd=self.dir, env=environment(), capture_output=True)
        return json.loads(done.stdout)["findings"]

    def check_each_is_repeated(self, verb, words, repeated):
        """`repeated`: the command of a finding, whose options are `{}`."""
        deciding = self.deciding(*verb)
        self.assertGreater(len(deciding), 3)
        for given in [[], *deciding, sum(deciding, [])]:
            findings = self.findings(*verb, *words, *given)
            self.assertTrue(findings)
            for f in findings:
                self.assertEqual(f["repeat"].split(" --only")[0], repeated(given), given)


class Diff(Repeat):
    def setUp(self):
        super().setUp()
        self.words = self.pair()

    def test_every_option_that_decides_a_verdict(self):
        self.check_each_is_repeated(["diff"], self.words, lambda given: " ".join(["assay diff", *self.words, *given]))

    def test_options_that_decide_none_are_left_out(self):
        shown = ["--jsonl", "r.jsonl", "--html=r.html", "--no-github", "--color", "never", "-v", "--threads", "2", "--alone", "--only", "*",
                 "--log-level", "off", "--log-file", "log"]
        for f in self.findings("diff", *shown, *self.words):
            self.assertEqual(f["repeat"], "assay diff a.safetensors r.safetensors --only " + f["name"])

    def test_an_option_given_twice_is_repeated_twice_and_one_turned_off_is_off(self):
        for f in self.findings("diff", *self.words, "--tolerance", "torch", "--isolate=false", "--tolerance", "bitwise"):
            self.assertTrue(f["repeat"].startswith("assay diff a.safetensors r.safetensors --tolerance torch --tolerance bitwise --isolate=false "),
                            f["repeat"])

    def test_words_are_quoted_for_a_shell(self):
        (self.dir / "-it's $x.toml").write_text("[[ignore]]\nmatch = 'z'\nreason = 'gone'\n")
        finding = next(f for f in self.findings("diff", *self.words, "--rules=-it's $x.toml") if f["verdict"] == "failed")
        self.assertEqual(self.again(finding), [finding])


class Check(Repeat, CaseTest):
    def test_every_option_that_decides_a_verdict(self):
        path = self.dir / self.case / self.json["outputs"][0]["file"]
        data = bytearray(path.read_bytes())
        data[-8:] = struct.pack("<d", 9.5)
        path.write_bytes(data)
        folder = f"'{self.case}'"
        self.check_each_is_repeated(["check"], [self.case], lambda given: " ".join(["assay check", folder, *given]))


class Baseline(Repeat):
    def setUp(self):
        super().setUp()
        write_safetensors(self.dir / "run.safetensors", {"w": ("float32", [2], [1, 2])})
        self.expect(0, "baseline", "accept", "run.safetensors", "-o", "b.json")
        write_safetensors(self.dir / "run.safetensors", {"w": ("float32", [2], [1, 3])})

    def test_every_option_that_decides_a_verdict(self):
        """By diff, which has another tolerance by default."""
        def repeated(given):
            return " ".join(["assay diff run.safetensors b.json", *given, *([] if "--tolerance" in given else ["--tolerance bitwise"])])
        self.check_each_is_repeated(["baseline", "check"], ["run.safetensors", "b.json"], repeated)

    def test_diff_has_them_all(self):
        self.assertLessEqual(set(self.options("baseline", "check")), set(self.options("diff")))

    def test_the_command_does_just_that(self):
        for given in ([], ["--tolerance", "torch", "--dtype-hint", "bfloat16"]):
            finding, = self.findings("baseline", "check", "run.safetensors", "b.json", *given)
            again, = self.again(finding)
            del finding["repeat"], again["repeat"]  # in the order of diff's options
            self.assertEqual(again, finding)


if __name__ == "__main__":
    unittest.main()
