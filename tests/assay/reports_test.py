"""The reports of the built program as files, and what they are to the machines that read them: GitHub, GitLab, Jenkins.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/reports_test.py
"""
import csv
import io
import json
import os
import re
import resource
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from program import ASSAY, CASES, Test, environment, large, run, write_safetensors

COMMAND = re.compile(r"::(error|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def unescaped(text):
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


class Github(Test):
    def commands(self, text):
        lines = [line for line in text.splitlines() if line.startswith("::")]
        self.assertTrue(all(COMMAND.fullmatch(line) for line in lines), lines)
        return [tuple(map(unescaped, COMMAND.fullmatch(line).groups())) for line in lines]

    def test_an_error_for_the_first_failure_and_a_notice_with_the_counts(self):
        a, r = self.pair()
        error, notice = self.commands(self.expect(1, "diff", a, r, "--github").out)
        self.assertEqual(error[:2], ("error", "assay diff: failed: y"))
        self.assertIn("\nassay diff a.safetensors r.safetensors --only y", error[2])
        self.assertEqual(notice, ("notice", "assay diff", "2 compared: 1 passed, 1 failed, 0 inherited; 1 not compared"))

    def test_a_pass_is_a_notice(self):
        a, _ = self.pair()
        self.assertEqual([c[0] for c in self.commands(self.expect(0, "diff", a, a, "--github").out)], ["notice"])

    def test_a_workflow_turns_it_on(self):
        a, r = self.pair()
        self.assertEqual(len(self.commands(self.expect(1, "diff", a, r, GITHUB_ACTIONS="true").out)), 2)
        self.assertEqual(self.commands(self.expect(1, "diff", a, r, "--no-github", GITHUB_ACTIONS="true").out), [])
        self.assertEqual(self.commands(self.expect(1, "diff", a, r).out), [])
        self.expect(2, "diff", a, r, "--github", "--no-github")

    def test_the_log_is_standard_error_where_a_report_takes_standard_output(self):
        a, r = self.pair()
        done = self.expect(1, "diff", a, r, "--github", "--json", "-")
        self.assertTrue(done.out.startswith("{"))
        self.assertEqual(len(self.commands(done.err)), 2)

    def test_the_step_summary_grows(self):
        a, r = self.pair()
        summary = self.dir / "summary.md"
        summary.write_text("before\n")
        for _ in range(2):
            self.expect(1, "diff", a, r, "--github", GITHUB_STEP_SUMMARY=str(summary))
        self.assertTrue(summary.read_text().startswith("before\n## assay diff: FAIL\n"))
        self.assertEqual(summary.read_text().count("## assay diff: FAIL\n"), 2)
        nowhere = str(self.dir / "no" / "folder")
        done = self.expect(2, "diff", a, a, "--github", GITHUB_STEP_SUMMARY=nowhere)
        self.assertIn("GITHUB_STEP_SUMMARY", done.err)
        # Nobody asked for it: the verdict stands.
        done = self.expect(0, "diff", a, a, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=nowhere)
        self.assertRegex(done.err, r"^\S+ warn diff - - GITHUB_STEP_SUMMARY \S+: cannot be written")

    def test_names_cannot_give_commands(self):
        names = ["::error::forged", "x ::set-output name=a::b", "100%", "two\n::error::lines", "a,b:c", "::stop-commands::x " * 9]
        for side, value in (("a", 1), ("r", 9)):
            write_safetensors(self.dir / side, {name: ("float32", [1], [value]) for name in names})
        for options in (["--github"], ["--github", "--all"]):
            commands = self.commands(self.expect(1, "diff", "a", "r", *options).out)
            self.assertEqual([c[0] for c in commands], ["error", "notice"])


def formats(*verb):
    """As --help names them."""
    return [name for name in re.findall(r"(?m)^  --(\w+) F ", run(*verb, "--help").out) if name != "rules"]


class Files(Test):
    def test_every_format_is_one_of_every_verb_that_compares(self):
        a, r = self.pair()
        known = formats("diff")
        self.assertEqual(formats("check"), known)
        self.assertEqual(formats("baseline", "check"), known)
        out = self.expect(1, "diff", a, r, *(f"--{name}=r.{name}" for name in known)).out
        self.assertTrue(out.endswith("; wrote " + ", ".join(f"r.{name}" for name in known) + "\n"), out)
        self.assertEqual(len({(self.dir / f"r.{name}").read_text() for name in known}), len(known))

    def test_the_last_line_names_the_files(self):
        a, r = self.pair()
        out = self.expect(1, "diff", a, r, "--json", "r.json", "--csv", "r.csv", "--html", "r.html").out
        self.assertTrue(out.endswith("; 1 not compared; wrote r.json, r.csv, r.html\n"), out)

    def test_the_verdict_is_shown_even_if_a_file_cannot_be_written(self):
        """The limit on a file's size is met while it is written: no other trouble is so late."""
        a, r = self.pair()
        before = set(self.dir.iterdir())
        done = subprocess.run([ASSAY, "diff", a, r, "--html", "r.html", "--csv", "r.csv"], cwd=self.dir, capture_output=True,
                              env=environment(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual((done.returncode, done.stderr), (2, b"assay: r.html: cannot be written (File too large)\n"))
        self.assertTrue(done.stdout.startswith(b"FAIL"))
        self.assertTrue(done.stdout.endswith(b"; wrote r.csv\n"))
        self.assertEqual(set(self.dir.iterdir()) - before, {self.dir / "r.csv"})

    def test_reports_say_how_they_were_made(self):
        a, r = self.pair()
        self.expect(1, "diff", a, r, *(f"--{kind}=r.{kind}" for kind in ("json", "jsonl", "html", "junit", "markdown")))
        command = "assay diff a.safetensors r.safetensors --json=r.json"
        for kind in ("json", "jsonl", "html", "junit"):
            text = (self.dir / f"r.{kind}").read_text()
            self.assertIn(command, text)
            self.assertIn("0.1.0", text)
            self.assertRegex(text, r"6755ba667cc4")  # sha256sum tolerance_tables/telechat3.toml
            self.assertIn("safetensors", text.replace(command, "").replace("r.safetensors", ""))
        self.assertIn(command.replace("_", "\\_"), (self.dir / "r.markdown").read_text())
        self.assertIn(command, self.expect(1, "diff", a, r, "--json=r.json", "--all").out)

    def test_reports_to_files(self):
        a, r = self.pair()
        text = self.expect(1, "diff", a, r, "--json", "r.json", "--csv", "r.csv", "--junit", "r.xml", "--markdown", "r.md",
                           "--html", "r.html").out
        self.assertTrue(text.startswith("FAIL"))
        report = json.loads((self.dir / "r.json").read_text())
        self.assertEqual(report["counts"]["failed"], 1)
        self.assertEqual(report["counts"]["missing_actual"], 1)
        self.assertEqual(report["exit_status"], 1)
        y = next(f for f in report["findings"] if f["name"] == "y")
        self.assertEqual((y["worst_index"], y["actual_value"], y["reference_value"]), ([2], 3.5, 3.0))
        rows = list(csv.DictReader(io.StringIO((self.dir / "r.csv").read_bytes().decode(), newline="")))
        self.assertEqual([row["verdict"] for row in rows], ["passed", "failed", "missing actual"])
        suite = ElementTree.parse(self.dir / "r.xml").getroot()
        self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("errors")), ("3", "2", "0"))
        self.assertTrue((self.dir / "r.md").read_text().startswith("## assay diff: FAIL\n"))
        page = (self.dir / "r.html").read_text()
        self.assertTrue(page.startswith("<!doctype html>") and "Worst elements" in page and 'class="map"' in page)
        self.assertFalse(list(self.dir.glob("*.part")))

    def test_reports_to_standard_output_are_alone_there(self):
        a, r = self.pair()
        self.assertEqual(json.loads(self.expect(1, "diff", a, r, "--json", "-").out)["verb"], "diff")
        ElementTree.fromstring(self.expect(1, "diff", a, r, "--junit", "-").out)
        self.assertTrue(self.expect(1, "diff", a, r, "--csv", "-").out.startswith("name,verdict,"))
        self.assertTrue(self.expect(1, "diff", a, r, "--markdown", "-").out.startswith("## "))
        self.assertTrue(self.expect(1, "diff", a, r, "--html", "-").out.startswith("<!doctype html>"))
        self.trouble("diff", a, r, "--json", "-", "--csv", "-", says="--json and --csv both write to '-'")

    def test_a_report_that_cannot_be_written_is_refused_before_the_comparison(self):
        a, _ = self.pair()
        (self.dir / "folder").mkdir()
        os.mkfifo(self.dir / "pipe")
        before = set(self.dir.iterdir())
        for option in (f"--{name}" for name in formats("diff")):
            self.trouble("diff", a, a, option, "no/such/folder/report",
                         says=f"{option} no/such/folder/report: cannot be written (No such file or directory)")
            for special in ("folder", "pipe", "/dev/full", "/dev/tty0/x", "n" * 300):
                self.trouble("diff", a, a, option, special, says=f"{option} {special}: ")
            self.trouble("check", CASES / "matmul", option, "pipe", says=f"{option} pipe: is no regular file")
        self.trouble("diff", a, a, "--json", "r.json", "--csv", "folder", says="--csv folder: is no regular file")
        self.assertEqual(set(self.dir.iterdir()), before)

    def test_standard_output_that_cannot_be_written_is_trouble(self):
        a, _ = self.pair()
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ASSAY, "diff", a, a], cwd=self.dir, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr.decode()[:37]), (2, "assay: standard output: cannot be wri"))

    def test_a_report_lies_in_no_input(self):
        a, _ = self.pair()
        for side in ("actual", "reference"):
            (self.dir / side).mkdir()
            shutil.copy(self.dir / a, self.dir / side)
        inside = self.dir / "actual"
        for _ in range(2):  # as a new file, and as one that is there
            done = run("diff", ".", "../reference", "--html", "report.html", cwd=inside)
            self.assertEqual((done.returncode, done.out), (2, ""))
            self.assertIn("--html report.html: lies in the input ., and would be read as part of it the next time", done.err)
            self.assertEqual(sorted(f.name for f in inside.iterdir() if f.name != "report.html"), [a])
            (inside / "report.html").touch()
        self.assertEqual((inside / "report.html").read_text(), "")
        self.assertEqual(run("diff", ".", "../reference", "--html", "../report.html", cwd=inside).returncode, 0)

    def test_one_place_has_one_report_however_it_is_spelt(self):
        a, _ = self.pair()
        self.trouble("diff", a, a, "--json", "report", "--csv", self.dir / "report", says="--json and --csv both write to")

    def test_reports_go_into_what_the_caller_has_open(self):
        a, _ = self.pair()
        shown = self.expect(0, "diff", a, a).out
        self.assertEqual(json.loads(self.expect(0, "diff", a, a, "--json", "/dev/stdout").out)["exit_status"], 0)
        self.assertEqual(self.expect(0, "diff", a, a, "--json", "/dev/null").out, shown.rstrip() + "; wrote /dev/null\n")
        with open(self.dir / "both", "wb") as both:  # a file, too, keeps what else goes into it
            subprocess.run([ASSAY, "diff", a, a, "--csv", "/dev/stderr"], cwd=self.dir, stdout=both, stderr=both, check=True)
        text = (self.dir / "both").read_text()
        self.assertTrue(text.startswith("name,verdict,") and text.endswith(shown), text)
        reader, writer = os.pipe()  # as a shell's >(command) has it
        subprocess.run([ASSAY, "diff", a, a, "--json", f"/dev/fd/{writer}"], cwd=self.dir, pass_fds=[writer], check=True,
                       stdout=subprocess.DEVNULL)
        os.close(writer)
        with open(reader, encoding="utf-8") as report:
            self.assertEqual(json.load(report)["exit_status"], 0)

    def test_a_link_stays_a_link(self):
        a, _ = self.pair()
        (self.dir / "target").write_text("old")
        (self.dir / "link").symlink_to("target")
        self.expect(0, "diff", a, a, "--json", "link")
        self.assertTrue((self.dir / "link").is_symlink())
        self.assertEqual(json.loads((self.dir / "target").read_text())["exit_status"], 0)


class Junit(Test):
    def test_nothing_compared_is_an_error(self):
        a = {"x": ("float32", [1], [1])}
        write_safetensors(self.dir / "a", a)
        (self.dir / "rules.toml").write_text("[[ignore]]\nmatch = '*'\nreason = 'none of it'\n")
        root = ElementTree.fromstring(self.expect(2, "diff", "a", "a", "--rules", "rules.toml", "--junit", "-").out)
        self.assertEqual((root.get("tests"), root.get("errors"), root.get("skipped")), ("2", "1", "1"))
        self.assertEqual(len(list(root.iter("error"))), 1)

    @large
    def test_a_hundred_thousand_failures_are_short_and_well_formed(self):
        names = [f"model.layers.{i // 1000}.mlp.experts.{i // 10 % 100}.w{i % 10}@step={i % 2},phase=backward,slot=grad,arg=weight"
                 for i in range(100_000)]
        for side, held in (("a", names[:50_000]), ("r", names[:1] + names[50_000:])):  # but one, each lacks the other's
            write_safetensors(self.dir / side, {name: ("float32", [1], [1]) for name in held})
        self.expect(1, "diff", "a", "r", "--junit", "r.xml")
        self.assertLess((self.dir / "r.xml").stat().st_size, 12_000_000)
        cases = [(case.get("classname"), case.get("name")) for case in ElementTree.parse(self.dir / "r.xml").iter("testcase")]
        self.assertEqual(len(cases), 20_000)  # of the modules above, for each step
        self.assertEqual(len(set(cases)), len(cases))


if __name__ == "__main__":
    unittest.main()
