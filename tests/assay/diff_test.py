"""`assay diff`."""
import csv
import json
import math
import os
import pty
import resource
import subprocess
import unittest

from program import ASSAY, DATA, Test, environment, large, run, write_npy, write_safetensors


class Diff(Test):
    def test_exit_status_and_last_line(self):
        a, r = self.pair()
        self.assertEqual(self.expect(0, "diff", a, a).out.splitlines()[-1],
                         "2 compared: 2 passed, 0 failed, 0 inherited; 0 not compared")
        done = self.expect(1, "diff", a, r)
        self.assertEqual(done.out.splitlines()[-1], "2 compared: 1 passed, 1 failed, 0 inherited; 1 not compared")
        self.assertTrue(done.out.startswith("FAIL  1 failed, 1 missing actual: a.safetensors against r.safetensors\n"))
        self.assertEqual(done.err, "")
        self.expect(2, "diff", a, r, "--only", "nothing")

    def test_a_missing_tensor_alone_is_a_finding(self):
        write_safetensors(self.dir / "one", {"x": ("float32", [1], [1])})
        write_safetensors(self.dir / "two", {"x": ("float32", [1], [1]), "y": ("float32", [1], [1])})
        self.expect(1, "diff", "one", "two")
        self.expect(1, "diff", "two", "one")

    def test_statistics_alone_are_compared_as_far_as_they_go(self):
        samples = DATA / "statistics"
        full, half = samples / "tensor", samples / "statistics"
        done = self.expect(1, "diff", half, full)
        self.assertIn(f"FAIL  1 not comparable, 13 statistics agree: {half} against {full}", " ".join(done.out.split("\n      ")))
        self.assertEqual(done.out.splitlines()[-1],
                         "1 compared: 1 passed, 0 failed, 0 inherited; 14 not compared, 13 of them agree by statistics")
        self.assertIn("the elements were not compared", " ".join(done.out.split()))
        self.expect(0, "diff", half, full, "--accept-statistics", "--only", "float*")
        self.expect(1, "diff", half, full, "--only", "float*")
        self.expect(0, "diff", samples / "md5", full, "--tolerance", "bitwise")
        report = json.loads(self.expect(1, "diff", samples / "faulty", full, "--json", "-").out)
        first = report["findings"][0]
        self.assertEqual((first["name"], first["verdict"]), ("float32 state", "failed"))
        self.assertEqual([s["name"] for s in first["statistics"]], ["max", "min", "mean", "l2"])
        self.assertEqual(first["statistics"][0]["reference"], 3.3628077507019043)
        rows = list(csv.DictReader(self.expect(1, "diff", samples / "faulty", full, "--csv", "-").out.splitlines()))
        self.assertEqual(float(rows[0]["error_over_allowed"]), first["error_over_allowed"])
        self.assertEqual((rows[0]["shape"], rows[0]["max_abs"]), (str(first["shape"]), ""))
        page = self.expect(1, "diff", samples / "faulty", full, "--html", "-").out
        self.assertIn("<td>max</td><td><code>", page)
        for option in ("--csv", "--junit", "--markdown", "--html"):
            self.assertIn("statistics agree", self.expect(1, "diff", half, full, option, "-").out, option)
        # Nothing that both sides have: nothing was compared.
        self.expect(2, "diff", samples / "xor", half, "--only", "float*")

    @unittest.skipIf(b"__asan_init" in ASSAY.read_bytes(), "AddressSanitizer needs more address space than the limit of this test")
    def test_too_little_memory_to_open_a_side_is_said(self):
        # 512 MiB: under 256 MiB the libraries of Open MPI 5 (UCX) never finish to load.
        a, _ = self.pair()
        (self.dir / "listing.json").write_text('{"schema": "inspect/1", "x": [' + "1," * 8_000_000 + "1]}")
        done = subprocess.run([ASSAY, "diff", a, "listing.json"], cwd=self.dir, capture_output=True, env=environment(),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)))
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"do not fit into memory", done.stderr)

    def test_a_listing_stands_for_what_it_lists(self):
        a, r = self.pair()
        (self.dir / "r.json").write_text(self.expect(0, "inspect", r, "--json", "--stats", "--hash").out)
        self.assertEqual(self.expect(0, "diff", r, "r.json").out.splitlines()[-1],
                         "3 compared: 3 passed, 0 failed, 0 inherited; 0 not compared")
        done = self.expect(1, "diff", a, "r.json", "--json", "-")
        y = next(f for f in json.loads(done.out)["findings"] if f["name"] == "y")
        self.assertEqual(y["verdict"], "failed")
        self.assertIn("max 3.5 against 3, allowed 0.0004; sum 6.5 against 6, allowed 0.0009", y["reason"])
        self.assertIn("made without", self.expect(0, "inspect", self.listing(r)).out)
        (self.dir / "ranks.json").write_text(self.expect(0, "inspect", DATA / "samples" / "assay_dump", "--ranks", "--json").out)
        self.assertIn("--ranks", self.expect(0, "inspect", "ranks.json").out)

    def test_a_listing_that_contradicts_itself_is_trouble(self):
        _, r = self.pair()
        listing = json.loads(self.expect(0, "inspect", r, "--json", "--stats", "--hash").out)
        next(t for t in listing["tensors"] if t["name"] == "y")["min"] = 7
        (self.dir / "r.json").write_text(json.dumps(listing))
        done = self.expect(2, "diff", r, "r.json")
        self.assertIn("r.json: y: no tensor has these statistics: min 7 is above max 3", " ".join(done.out.split()))

    def listing(self, path):
        (self.dir / "listing.json").write_text(self.expect(0, "inspect", path, "--json").out)
        return "listing.json"

    def test_every_sample_equals_its_listing(self):
        for path in sorted([*(DATA / "samples").iterdir(), *(DATA / "msprobe_samples").iterdir()]):
            listed = run("inspect", path, "--json", "--stats", "--hash")
            if listed.returncode != 0:
                continue
            (self.dir / "listing.json").write_text(listed.out)
            counts = json.loads(run("diff", path, self.dir / "listing.json", "--tolerance", "bitwise", "--json", "-").out)["counts"]
            tensors = json.loads(listed.out)["tensors"]
            with_values = sum(t["has_values"] and "copies_differ" not in t for t in tensors)
            self.assertGreaterEqual(counts["passed"], with_values, path)
            self.assertEqual(counts["failed"] + counts["missing_actual"] + counts["missing_reference"] + counts["unreadable"], 0, path)

    def test_exact_sums_round_once(self):
        # 2^24 + 1 is no float32: sums of 16 terms lose every 1.
        large = [2.0**24] * 16
        write_safetensors(self.dir / "a", {"x": ("float32", [512], (large + [1.0] * 16) * 16)})
        write_safetensors(self.dir / "r", {"x": ("float32", [512], (large + [0.0] * 16) * 16)})
        side = {}
        for options in ([], ["--exact-sums"]):
            done = self.expect(1, "diff", "a", "r", "--json", "-", *options)
            side[bool(options)] = json.loads(done.out)["findings"][0]["metrics"]["actual"]
        self.assertEqual(side[True]["mean"], (2.0**24 + 1) / 2)
        self.assertNotEqual(side[False]["mean"], side[True]["mean"])

    def test_a_damaged_file_is_trouble(self):
        a, r = self.pair()
        whole = (self.dir / a).read_bytes()
        (self.dir / "cut").write_bytes(whole[:-1])
        self.trouble("diff", "cut", r, says="cut")

    def test_colour(self):
        a, r = self.pair()
        self.assertNotIn("\x1b", self.expect(1, "diff", a, r).out)
        self.assertNotIn("\x1b", self.expect(1, "diff", a, r, "--color", "never", FORCE_COLOR="1").out)
        self.assertIn("\x1b[1;31mFAIL", self.expect(1, "diff", a, r, "--color", "always", NO_COLOR="1").out)
        self.assertIn("\x1b", self.expect(1, "diff", a, r, FORCE_COLOR="1").out)
        self.assertIn("\x1b", self.expect(1, "diff", a, r, CLICOLOR_FORCE="1").out)
        self.assertNotIn("\x1b", self.expect(1, "diff", a, r, FORCE_COLOR="1", NO_COLOR="1").out)
        self.assertIn("\x1b", self.expect(1, "diff", a, r, FORCE_COLOR="1", NO_COLOR="").out)

    def on_terminal(self, *words, **env):
        leader, follower = pty.openpty()
        process = subprocess.Popen([ASSAY, *words], stdout=follower, stderr=follower, cwd=self.dir, env=environment(**env))
        os.close(follower)
        out = b""
        try:
            while part := os.read(leader, 4096):
                out += part
        except OSError:  # the other end is closed
            pass
        os.close(leader)
        self.assertEqual(process.wait(), 1)
        return out.decode()

    def test_colour_on_a_terminal(self):
        a, r = self.pair()
        self.assertIn("\x1b[1;31mFAIL", self.on_terminal("diff", a, r, TERM="xterm"))
        self.assertNotIn("\x1b", self.on_terminal("diff", a, r, TERM="xterm", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal("diff", a, r, TERM="dumb"))

    def test_rules_and_policies(self):
        a, r = self.pair()
        (self.dir / "rules.toml").write_text("[[ignore]]\nmatch = 'z'\nreason = 'gone'\n"
                                             "[[tolerance]]\nmatch = 'y'\npolicy = 'loose.toml'\n"
                                             "[[count]]\nmatch = 'typo'\ncount = 3\n")
        (self.dir / "loose.toml").write_text("name = 'loose'\nsource = 'test'\nrule = 'atol_rtol'\n[float32]\nsource = 'test'\n"
                                             "count = [0]\ntolerance = [0.25]\n")
        out = self.expect(0, "diff", a, r, "--rules", "rules.toml", "--tolerance", "bitwise", "--tolerance", "torch").out
        self.assertIn("ignored: 1 tensors by rules.toml, [[ignore]] 1: gone", out)
        self.assertIn("rule without a match: rules.toml, [[count]] 1 ('typo')", out)
        self.assertIn("loose float32", out)
        self.assertTrue(out.endswith("; 1 ignored by rule\n"))

    def test_reruns_of_the_reference_exempt_what_is_within_their_noise(self):
        values = {"r": [1, 2, 3, -4], "again": [1.0005, 1.999, 3.001, -4.001], "a": [0.999, 2.003, 2.997, -4.002], "wrong": [1, 2, 3, -4.1]}
        for name, elements in values.items():
            write_safetensors(self.dir / f"{name}.safetensors", {"x": ("float32", [4], elements)})
        (self.dir / "count.toml").write_text("[[count]]\nmatch = '*'\ncount = 1\n")
        self.expect(1, "diff", "a.safetensors", "r.safetensors", "--rules", "count.toml")
        by_rerun = ["r.safetensors", "--rules", "count.toml", "--rerun", "again.safetensors"]
        done = self.expect(0, "diff", "a.safetensors", *by_rerun)
        self.assertIn("exempt: 1 by noise of reruns", done.out)
        self.assertTrue(done.out.endswith("1 compared: 0 passed, 1 exempt, 0 failed, 0 inherited; 0 not compared\n"), done.out)
        self.expect(1, "diff", "wrong.safetensors", *by_rerun)
        self.expect(1, "diff", "a.safetensors", *by_rerun, "--tolerance", "bitwise")
        self.assertIn("none.safetensors", self.expect(2, "diff", "a.safetensors", "r.safetensors", "--rerun", "none.safetensors").err)

    def test_cases_need_isolation_and_a_new_folder(self):
        pair = self.pair()
        self.assertIn("expected none with --end-to-end", self.expect(2, "diff", *pair, "--end-to-end", "--cases", "cases").err)
        (self.dir / "cases").mkdir()
        (self.dir / "cases" / "mine").write_text("kept")
        self.assertIn("expected a new folder", self.expect(2, "diff", *pair, "--cases", "cases").err)
        self.assertEqual((self.dir / "cases" / "mine").read_text(), "kept")

    def test_threads_change_nothing(self):
        values = [math.sin(i) for i in range(200_000)]
        write_npy(self.dir / "a.npy", "float32", [len(values)], values)
        write_npy(self.dir / "r.npy", "float32", [len(values)], [v + 0.1 * math.cos(3 * v) for v in values])
        reports = []
        for threads in (1, 2, 5):
            report = json.loads(self.expect(1, "diff", "a.npy", "r.npy", "--json", "-", "--threads", threads).out)
            del report["seconds"], report["command"]
            reports.append(report)
        self.assertEqual(reports[0], reports[1])
        self.assertEqual(reports[0], reports[2])

    @large
    def test_threads_change_nothing_of_what_is_judged(self):
        for parallel in ("tp=1", "tp=2"):
            self.expect(0, "replay", "--model", "telechat3-105b-tiny", "--precision", "bf16", "--length", "8", "--parallel", parallel, "--dump", parallel)
        reports = []
        for threads in (1, 2, 5):
            report = json.loads(self.expect(0, "diff", "tp=2", "tp=1", "--json", "-", "--threads", threads).out)
            del report["seconds"], report["command"]
            reports.append(report)
        self.assertGreater(reports[0]["coverage"]["judged"], 100)
        self.assertEqual(reports[0], reports[1])
        self.assertEqual(reports[0], reports[2])

    def test_dtype_hint(self):
        write_npy(self.dir / "a.npy", "float16", [2], [1, 2])
        raw = (self.dir / "a.npy").read_bytes().replace(b"'<f2'", b"'<u2'")
        (self.dir / "a.npy").write_bytes(raw)
        out = self.expect(0, "inspect", "a.npy", "--dtype-hint", "float16", "--json", "--stats").out
        self.assertEqual(json.loads(out)["tensors"][0]["dtype"], "float16")
        self.assertEqual(json.loads(out)["tensors"][0]["sum"], 3)


if __name__ == "__main__":
    unittest.main()
