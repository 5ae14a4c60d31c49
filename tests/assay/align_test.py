"""The reports of the staged alignment, from the built program.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data ASSAY_ALIGN_SCHEMA=tools/align/ladder/align.schema.json \\
        python3 tests/assay/align_test.py
"""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from program import Test, run, strict

SCHEMA = json.loads(Path(os.environ["ASSAY_ALIGN_SCHEMA"]).read_text())
WORK = ["align", "--model", "qwen3-moe-tiny,layers=2", "--steps", "1", "--length", "8"]
REPORTS = ["--json", "r.json", "--html", "r.html", "--junit", "r.xml", "--markdown", "r.md"]
VOID = {"meta", "link"}


class Reports(Test):
    """One alignment, whose reports the tests read."""
    status, words, env = None, [], {}

    @classmethod
    def setUpClass(cls):
        if cls.status is None:
            raise unittest.SkipTest("no alignment of its own")
        cls.folder = Path(tempfile.mkdtemp(prefix="assay_test_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.done = run(*WORK, *cls.words, *REPORTS, cwd=cls.folder, **cls.env)
        if cls.done.returncode != cls.status:
            raise AssertionError(cls.done.out + cls.done.err)
        cls.json = json.loads(cls.text("r.json"))
        cls.junit = ElementTree.fromstring(cls.text("r.xml"))

    @classmethod
    def text(cls, name):
        return (cls.folder / name).read_text()

    def says(self, name, *texts):
        for text in texts:
            self.assertTrue(text in self.text(name), f"{name} does not say: {text}")

    def never_says(self, name, *texts):
        for text in texts:
            self.assertFalse(text in self.text(name), f"{name} says: {text}")

    def cases(self):
        return {(case.get("classname"), case.get("name")): case for case in self.junit.iter("testcase")}

    def test_the_json_is_what_the_schema_says(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("no jsonschema")
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        jsonschema.Draft202012Validator(strict(SCHEMA)).validate(self.json)
        self.assertEqual(self.json["exit_status"], self.status)

    def test_junit_counts_what_it_has_and_names_are_unique(self):
        cases = list(self.junit.iter("testcase"))
        self.assertEqual(len(self.cases()), len(cases))
        for element in [self.junit, *self.junit.findall("testsuite")]:
            inside = list(element.iter("testcase"))
            self.assertEqual(int(element.get("tests")), len(inside))
            for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                self.assertEqual(int(element.get(key)), sum(c.find(tag) is not None for c in inside))
        phases = [c for c in cases if c.get("name") != "configuration"]
        self.assertEqual(len(phases), 3 * len(self.json["stages"]))

    def test_the_page_needs_nothing_else(self):
        page = self.text("r.html")
        self.says("r.html", "default-src 'none'")
        self.assertEqual(re.findall(r"<script|https?://|javascript:| style=|\{\{", page), [])
        ids = re.findall(r' id="([^"]*)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        open_tags = []
        for closing, tag, rest in re.findall(r"<(/?)([a-zA-Z0-9]+)((?:[^>\"]|\"[^\"]*\")*)>", page):
            if closing:
                self.assertEqual(open_tags.pop(), tag)
            elif tag not in VOID and not rest.endswith("/"):
                open_tags.append(tag)
        self.assertEqual(open_tags, [])

    def test_the_last_line_names_the_files(self):
        self.assertTrue(self.done.out.endswith("; wrote r.json, r.html, r.xml, r.md\n"), self.done.out)


class AFault(Reports):
    """F001: the gradient of the final norm stays a partial sum under sequence parallel."""
    status = 1
    words = ["--parallel", "tp=2,sp=1", "--precision", "fp32", "--fault", "F001", "--work", "work"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What passed is known: this is short.
        cls.again = run(*WORK, *cls.words, "--github", "--json", "-", cwd=cls.folder)

    def test_json(self):
        states = {s["name"]: s["state"] for s in self.json["stages"]}
        self.assertEqual(states, {"single device": "passed", "tp": "passed", "tp + sp": "failed",
                                  "full, more steps": "held", "full, more tokens": "held",
                                  "full, more layers": "held"})
        (divergence,) = self.json["divergences"]
        self.assertEqual(divergence["strategies"], ["sp", "tp"])
        self.assertEqual(divergence["smallest"], {"fails": "tp + sp", "passes": "tp, a single device"})
        self.assertEqual((divergence["stage"], divergence["phase"], divergence["step"]), ("tp + sp", "backward", 0))
        self.assertEqual(divergence["tensor"], "model.norm grad weight (step 0, backward)")
        self.assertIn("all-reduce over tp is missing", divergence["cause"])
        self.assertEqual((divergence["diagnosis"]["cause"], divergence["diagnosis"]["parameters"]), ("partial_sum", {"axis": "tp"}))
        self.assertEqual(divergence["collectives"], [{"what": "sum of the gradient", "axis": "tp", "module": "model.norm.weight",
                                                      "backward": True, "groups": [[0, 1]]}])
        phases = self.json["stages"][2]["phases"]
        self.assertEqual(phases["forward"]["failed"], 0)
        self.assertGreater(phases["forward"]["compared"], 0)
        self.assertGreater(phases["backward"]["failed"], 0)
        self.assertEqual({c["what"] for c in self.json["stages"][0]["configuration"]} & {"data", "vocabulary"}, {"data", "vocabulary"})

    def test_junit(self):
        cases = self.cases()
        self.assertIsNone(cases["align.tp + sp", "forward"].find("failure"))
        failure = cases["align.tp + sp", "backward"].find("failure")
        self.assertIn("all-reduce over tp is missing", failure.get("message"))
        self.assertIn("model.norm grad weight", failure.text)
        self.assertIn("ranks 0 1", failure.text)
        held = cases["align.full, more steps", "forward"].find("skipped")
        self.assertEqual(held.get("message"), "held: tp + sp fails already")
        self.assertEqual(len(list(cases["align.single device", "configuration"])), 0)

    def test_markdown_and_github(self):
        summary = self.text("r.md")
        self.assertTrue(summary.startswith("## assay align: FAIL\n"))
        self.assertRegex(summary, r"\| tp \\\+ sp \| 2 \| \*\*failed\*\* \| [0-9,]+ \| [0-9,]+ fail \|")
        self.assertNotIn("::error", self.done.out)
        commands = [line for line in self.again.err.splitlines() if line.startswith("::")]
        self.assertEqual([c.split(" ")[0] for c in commands], ["::error", "::notice"])
        self.assertIn("title=assay align%3A tp + sp%3A first wrong in backward%2C step 0::", commands[0])
        self.assertIn("all-reduce over tp is missing", commands[0])
        self.assertIn("FAIL  6 stages: 2 passed, 1 failed, 3 held", commands[1])

    def test_a_report_has_standard_output_for_itself(self):
        report = json.loads(self.again.out)
        self.assertEqual([s["from_cache"] for s in report["stages"]], [True, True, False, False, False, False])
        self.assertIn("  tp + sp ", self.again.err)

    def test_the_page_of_the_stage_is_named(self):
        page = "work/tp-sp/report.html"
        self.says(page, "all-reduce over tp is missing")
        self.assertIn(f"  page       {page}\n", self.done.out)
        self.says("r.html", page)
        self.assertEqual(self.json["stages"][2]["page"], page)

    def test_html(self):
        page = self.text("r.html")
        self.says("r.html", ">FAIL</span>", '<tr class="wrong"><td>tp</td><td>sum of the gradient</td>', 'id="divergence-1-chart"')
        self.assertEqual(page.count("smallest that fails</text>"), 1)
        self.assertEqual(page.count('class="node wrong"'), 2)


class Passes(Reports):
    status = 0
    words = ["--parallel", "dp=2"]

    def test_everything_says_so(self):
        self.assertEqual((self.json["verdict"], self.json["divergences"]), ("PASS", []))
        self.assertEqual({s["state"] for s in self.json["stages"]}, {"passed"})
        self.assertEqual({self.junit.get(k) for k in ("failures", "errors", "skipped")}, {"0"})
        self.says("r.html", "Who talks to whom")
        self.never_says("r.html", 'class="node wrong"', '<tr class="wrong">')
        self.assertTrue(self.text("r.md").startswith("## assay align: PASS\n"))


class Crashes(Reports):
    """A command that ends without a dump: trouble, not a failure. Its output would forge a command and markup."""
    status = 2
    words = ["--parallel", "dp=2", "--command", "echo '::error::forged <b>' >&2; exit 3 # {dump}"]
    env = {"GITHUB_ACTIONS": "true"}

    def test_trouble_is_an_error(self):
        self.assertEqual((self.json["verdict"], self.json["stages"][0]["state"]), ("TROUBLE", "trouble"))
        cases = self.cases()
        self.assertEqual(cases["align.single device", "forward"].find("error").get("type"), "trouble")
        self.assertIsNotNone(cases["align.single device", "backward"].find("skipped"))
        self.says("r.html", "trouble: nothing could be judged", "::error::forged &lt;b&gt;")
        self.never_says("r.html", "forged <b>")
        commands = [line for line in self.done.out.splitlines() if line.startswith("::")]
        self.assertEqual([c.split(" title=")[0] for c in commands], ["::error", "::notice"])

    def test_the_last_line_names_the_files(self):
        self.assertIn("; wrote r.json, r.html, r.xml, r.md\n::error", self.done.out)


class Outputs(Test):
    def test_where_reports_may_go_is_checked_before_any_work(self):
        self.trouble(*WORK, "--json", "x", "--junit", "x", says="--json and --junit both write to 'x'")
        self.trouble(*WORK, "--html", "no/such/x", says="--html no/such/x")
        (self.dir / "plan.toml").write_text('model = "telechat3-105b-tiny"\n')
        self.trouble("align", "plan.toml", "--json", "plan.toml", says="is an input")
        self.trouble(*WORK, "--json", "work", "--work", "work", says="work: is the folder of the stages (--work)")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["plan.toml"])


class Refused(Test):
    def test_what_a_plan_with_stages_says_itself(self):
        (self.dir / "plan.toml").write_text('model = "telechat3-105b-tiny"\n[[stage]]\nparallel = "tp=2"\n')
        for words in (["--steps", "3"], ["--precision", "bf16"], ["--parallel", "dp=2"]):
            self.trouble("align", "plan.toml", *words, says=f"{words[0]}: the plan plan.toml states its own [[stage]]s")

    def test_a_fault_that_no_stage_shows(self):
        self.trouble(*WORK, "--parallel", "tp=2", "--fault", "F010", says="fault F010 does not show under 'tp=2', which lacks dp > 1")

    def test_a_folder_in_which_another_alignment_works(self):
        (self.dir / "work").mkdir()
        with open(self.dir / "work" / "work.lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.trouble(*WORK, "--parallel", "tp=2", "--work", "work", says="work: another alignment works in it")

    def test_a_command_ends_with_its_alignment(self):
        align = subprocess.Popen([os.environ["ASSAY"], *WORK, "--command", "echo $$ > pid; exec sleep 99 # {dump}"], cwd=self.dir,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pid = self.dir / "pid"
        for _ in range(600):
            if pid.exists() and pid.read_text().endswith("\n"):
                break
            time.sleep(0.1)
        align.send_signal(signal.SIGTERM)
        self.assertEqual(align.wait(), -signal.SIGTERM)
        for _ in range(100):
            if not Path("/proc", pid.read_text().strip()).exists():
                return
            time.sleep(0.1)
        self.fail("the command still runs")


if __name__ == "__main__":
    unittest.main()
