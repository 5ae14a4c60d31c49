"""The log of the built program: levels, places, format; and what an alignment keeps of itself.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/log_test.py
"""
import os
import pty
import re
import shutil
import subprocess
import unittest

from program import ASSAY, CASES, DATA, Test, environment, write_safetensors

LINE = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d) (?P<level>trace|debug|info|warn|error) "
                  r"(?P<verb>[a-z-]+) (?P<rank>-|\d+) (?P<stage>-|[a-z0-9./+-]+) (?P<message>.+)")
LEVELS = ["trace", "debug", "info", "warn", "error", "off"]
REPLAY = ["replay", "--model", "telechat3-105b-tiny", "--length", "4", "--parallel", "tp=2,dp=2", "--micro-batches", "2"]
PLAN = """model = "telechat3-105b-tiny"
steps = 1
length = 4
micro_batches = 1
reruns = 0
[[stage]]
name = "tp"
parallel = "tp=2"
"""


class LogTest(Test):
    def lines(self, text):
        """All of it must be lines of the log."""
        found = [LINE.fullmatch(line) for line in text.splitlines()]
        self.assertTrue(all(found), text)
        return found

    def levels(self, text):
        return {line["level"] for line in self.lines(text)}


class Levels(LogTest):
    def test_it_is_silent_by_default(self):
        a, r = self.pair()
        self.assertEqual(self.expect(1, "diff", a, r).err, "")

    def test_a_level_takes_itself_and_what_is_above(self):
        a, r = self.pair()
        expected = {"trace": {"trace", "debug", "info"}, "debug": {"debug", "info"}, "info": {"info"}}
        for level in LEVELS:
            err = self.expect(1, "diff", a, r, "--log-level", level).err
            self.assertEqual(self.levels(err), expected.get(level, set()), level)

    def test_the_log_changes_no_result(self):
        a, r = self.pair()
        plain, traced = (self.expect(1, "diff", a, r, *words).out for words in ([], ["--log-level", "trace"]))
        cut = lambda text: re.sub(r"[\d.]+ m?s", "", text)
        self.assertEqual(cut(plain), cut(traced))

    def test_the_option_beats_the_environment(self):
        a, r = self.pair()
        self.assertEqual(self.levels(self.expect(1, "diff", a, r, ASSAY_LOG="debug").err), {"debug", "info"})
        self.assertEqual(self.levels(self.expect(1, "diff", a, r, "--log-level", "info", ASSAY_LOG="debug").err), {"info"})
        self.assertEqual(self.expect(1, "diff", a, r, "--log-level", "off", ASSAY_LOG="debug").err, "")
        self.assertEqual(self.expect(1, "diff", a, r, "--log-level", "info", ASSAY_LOG="loud").returncode, 1)
        self.assertEqual(self.expect(1, "diff", a, r, ASSAY_LOG="").err, "")

    def test_another_word_is_trouble(self):
        a, r = self.pair()
        done = self.trouble("diff", a, r, "--log-level", "loud")
        self.assertEqual(done.err, "assay: --log-level loud: is no level of the log; "
                                   "expected off, error, warn, info, debug or trace\n")
        done = self.expect(2, "ops", "rms_norm", ASSAY_LOG="warning")
        self.assertEqual(done.err, "assay: ASSAY_LOG warning: is no level of the log; "
                                   "expected off, error, warn, info, debug or trace\n")

    def test_a_line_names_the_verb_and_the_command(self):
        a, r = self.pair()
        lines = self.lines(self.expect(1, "diff", a, r, "--log-level", "info").err)
        self.assertEqual({(line["verb"], line["rank"], line["stage"]) for line in lines}, {("diff", "-", "-")})
        self.assertRegex(lines[0]["message"], r"^assay \d+\.\d+\.\d+: assay diff a\.safetensors r\.safetensors --log-level info$")
        self.assertRegex(lines[-1]["message"], r"^exit status 1 after \d+\.\d{3} s$")
        opened = [line["message"] for line in lines if line["message"].startswith("opened")]
        self.assertEqual(len(opened), 2)
        self.assertTrue(any(re.match(r"opened a\.safetensors: safetensors, world size 1, 2 records, in [\d.]+ s$", m) for m in opened), opened)

    def test_every_verb_has_a_log(self):
        case = str(CASES / "rms_norm" / "rows_6x33")
        for words, verb in [(["ops", "rms_norm"], "ops"), (["check", case], "check"), (["inspect", case], "inspect"),
                            (["faults"], "faults")]:
            err = self.expect(0, *words, "--log-level", "info").err
            self.assertEqual({line["verb"] for line in self.lines(err)}, {verb})
        write_safetensors(self.dir / "x.safetensors", {"x": ("float32", [1], [1])})
        err = self.expect(0, "baseline", "accept", "x.safetensors", "-o", "x.json", "--reason", "new", "--log-level", "info").err
        self.assertEqual({line["verb"] for line in self.lines(err)}, {"baseline-accept"})

    def test_trouble_is_in_the_log_too(self):
        done = self.expect(2, "inspect", "nowhere", "--log-level", "info")
        lines = done.err.splitlines()
        self.assertEqual(lines[-1], "assay: nowhere: no such file or folder")
        self.assertIn("exit status 2 after", self.lines("\n".join(lines[:-1]))[-1]["message"])

    def test_names_in_files_cannot_forge_lines(self):
        for side in "ar":
            write_safetensors(self.dir / f"{side}.safetensors", {"x\n2026 error\x1b[2J": ("float32", [1], [1])})
        err = self.expect(0, "diff", "a.safetensors", "r.safetensors", "--log-level", "trace").err
        self.assertNotIn("\x1b", err)
        self.assertTrue(any("\\x0a2026" in line["message"] for line in self.lines(err)), err)


class File(LogTest):
    def test_it_has_the_lines_and_standard_error_only_warnings(self):
        a, r = self.pair()
        done = self.expect(1, "diff", a, r, "--log-level", "debug", "--log-file", "log")
        self.assertEqual(done.err, "")
        text = (self.dir / "log").read_text()
        self.assertEqual(self.levels(text), {"debug", "info"})
        nowhere = str(self.dir / "no" / "folder")
        done = self.expect(0, "diff", a, a, "--log-file", "log", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=nowhere)
        self.assertEqual(self.levels(done.err), {"warn"})
        self.assertEqual((self.dir / "log").read_text(), text + done.err)  # added

    def test_one_that_cannot_be_written_is_trouble(self):
        a, r = self.pair()
        (self.dir / "folder").mkdir()
        for file, why in [("folder", "is no regular file"), ("no/log", "cannot be written (No such file or directory)")]:
            done = self.trouble("diff", a, r, "--log-file", file)
            self.assertTrue(done.err.startswith(f"assay: --log-file {file}: {why}"), done.err)
            self.assertEqual(len(done.err.splitlines()), 1)
        self.assertFalse((self.dir / "no").exists())

    def test_what_is_no_log_stays_as_it_is(self):
        a, r = self.pair()
        before = (self.dir / a).read_bytes()
        self.trouble("diff", a, r, "--log-file", a, says="is there and is no log of assay")
        self.assertEqual((self.dir / a).read_bytes(), before)

    def test_a_full_disk_is_said_once_and_changes_no_verdict(self):
        a, r = self.pair()
        done = self.expect(1, "diff", a, r, "--log-level", "trace", "--log-file", "/dev/full")
        self.assertEqual(done.err.count("a line of the log is lost"), 1, done.err)
        self.assertEqual(len(done.err.splitlines()), 1, done.err)


class Ranks(LogTest):
    def ranks(self, lines, words):
        return {line["rank"] for line in lines if words in line["message"]}

    def test_lines_of_ranks_stay_whole_and_name_them(self):
        lines = self.lines(self.expect(0, *REPLAY, "--log-level", "trace").err)
        self.assertEqual(self.ranks(lines, "step 0: loss"), {"0", "1", "2", "3"})
        self.assertEqual(self.ranks(lines, "among ranks"), {"0", "1", "2", "3"})
        self.assertGreater(len(lines), 100)

    def test_none_is_lost_at_the_end(self):
        done = self.expect(0, *REPLAY, "--log-level", "trace", "--log-file", "log")
        self.assertEqual(done.err, "")
        lines = self.lines((self.dir / "log").read_text())
        self.assertRegex(lines[-1]["message"], "^exit status 0 after")

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
    def test_processes_share_a_file(self):
        done = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", ASSAY, *REPLAY, "--log-level", "trace", "--log-file", "log"],
            capture_output=True, text=True, cwd=self.dir, env=environment(ASAN_OPTIONS="detect_leaks=0", OMPI_MCA_btl="^tcp"), timeout=300)
        if "built without MPI" in done.stderr:
            self.skipTest("built without MPI")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = self.lines((self.dir / "log").read_text())
        self.assertEqual(self.ranks(lines, "step 0: loss"), {"0", "1", "2", "3"})


class Terminal(LogTest):
    def shown(self, *command):
        """What a terminal gets on standard error."""
        above, below = pty.openpty()
        process = subprocess.Popen([ASSAY, *command], stderr=below, stdout=subprocess.DEVNULL, cwd=self.dir, env=environment(TERM="xterm"))
        os.close(below)
        shown = b""
        while True:
            try:
                part = os.read(above, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(above)
        self.assertEqual(process.wait(), 0)
        return shown.decode()

    def test_a_line_of_the_log_clears_the_line_of_progress(self):
        count = 30000  # the first progress is shown after 0.2 s
        write_safetensors(self.dir / "x.safetensors", {f"x{i}": ("float32", [1], [1]) for i in range(count)})
        text = self.shown("diff", "x.safetensors", "x.safetensors", "--log-level", "trace")
        self.assertTrue("\r\x1b[Kcomparing " in text)
        # What stays on the screen: on each line what follows its last clearing.
        screen = [line.split("\r\x1b[K")[-1] for line in text.replace("\r\n", "\n").split("\n")]
        self.assertEqual(screen.pop(), "")
        self.assertGreater(len(self.lines("\n".join(screen))), count)

    def test_diff_says_how_many_tensors_are_judged(self):
        for parallel in ("tp=1", "tp=2"):
            self.expect(0, *REPLAY[:3], "--precision", "fp32", "--length", "16", "--parallel", parallel, "--dump", parallel)
        text = self.shown("diff", "tp=2", "tp=1")
        self.assertRegex(text, r"\x1b\[Kjudging \d+ of \d+, \d+ s left")
        self.assertEqual(text.split("\r\x1b[K")[-1], "", "nothing stays")


class Align(LogTest):
    def setUp(self):
        super().setUp()
        (self.dir / "plan.toml").write_text(PLAN)

    def log(self):
        return (self.dir / "assay-align" / "align.log").read_text()

    def test_the_work_folder_keeps_a_log_at_level_debug(self):
        done = self.expect(0, "align", "plan.toml")
        self.assertEqual(done.err, "")
        lines = self.lines(self.log())
        self.assertEqual({line["level"] for line in lines}, {"debug", "info"})
        of = lambda stage: [line["message"] for line in lines if line["stage"] == stage]
        self.assertRegex(lines[0]["message"], r"^assay \S+: assay align plan.toml$")
        self.assertTrue(any(m.startswith("replay of telechat3-105b-tiny: a single device, 1 ranks, exact,") for m in of("reference.1")), self.log())
        self.assertTrue(any(m.startswith("replay of") and ": tp=2, 2 ranks," in m for m in of("tp")), self.log())
        self.assertTrue(any(re.match(r"finished in \d+\.\d{3} s$", m) for m in of("tp")), self.log())
        self.assertIn("judged by bitwise: passed", of("tp"))
        self.assertEqual({line["rank"] for line in lines if line["stage"] == "tp" and "step 0: loss" in line["message"]}, {"0", "1"})
        self.assertRegex(lines[-1]["message"], r"^PASS: exit status 0 after")
        # A second run adds to it, and names what needs no run.
        first = self.log()
        self.expect(0, "align", "plan.toml", "--log-level", "off")
        self.assertTrue(self.log().startswith(first))
        again = self.lines(self.log()[len(first):])
        self.assertEqual([line["stage"] for line in again if "it passed before with the same content" in line["message"]], ["tp"])
        self.assertFalse(any("replay of" in line["message"] for line in again))

    def test_a_command_with_its_ending(self):
        status = 'test "$(cat count)" = no || exit 3'
        done = self.expect(2, "align", "--parallel", "tp=2", "--model", "telechat3-105b-tiny", "--steps", "1", "--length", "8",
                           "--reruns", "0", "--command", f"echo {{dump}} {{tp}}; {status}")
        self.assertEqual(done.err, "")
        messages = [line["message"] for line in self.lines(self.log()) if line["stage"] == "single-device"]
        command = next(m for m in messages if m.startswith("command: "))
        self.assertRegex(command, r"^command: echo /\S*/single-device/dump 1; test ")
        self.assertTrue(any(re.match(r"exit status 3 after \d+\.\d{3} s$", m) for m in messages), messages)
        self.assertTrue(any(re.match(r"trouble after .*crashed: exited with status 3", m) for m in messages), messages)

    def test_a_failure_with_what_was_decided(self):
        (self.dir / "plan.toml").write_text(PLAN.replace("tp=2", "tp=2,sp=1"))
        self.expect(1, "align", "plan.toml", "--fault", "F001")
        messages = [line["message"] for line in self.lines(self.log())]
        self.assertTrue(any(m.startswith("judged by bitwise: failed: ") for m in messages), messages)
        self.assertTrue(any(m.startswith("does it fail without ") for m in messages), messages)
        self.assertTrue(any(m.startswith("the smallest set that fails: ") for m in messages), messages)

    def test_one_that_cannot_be_written_is_trouble(self):
        (self.dir / "assay-align" / "align.log").mkdir(parents=True)
        self.trouble("align", "plan.toml", says="align.log: is no regular file")


if __name__ == "__main__":
    unittest.main()
