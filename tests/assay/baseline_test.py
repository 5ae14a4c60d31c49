"""A run's numbers in a small file, and later runs held against it.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/baseline_test.py
"""
import hashlib
import json
import math
import re
import struct
import unittest
import xml.etree.ElementTree as ElementTree

from program import Test, large, write_safetensors

TENSORS = {"loss": ("float32", [], [0.1]), "w": ("float32", [2, 2], [1, -2, 3, -4]), "n": ("int64", [2], [7, 8])}


class Baseline(Test):
    def setUp(self):
        super().setUp()
        self.write("run", {})

    def write(self, name, changes):
        tensors = {**TENSORS, **changes}
        write_safetensors(self.dir / name, {k: v for k, v in tensors.items() if v})

    def accept(self, *words, status=0, run="run"):
        return self.expect(status, "baseline", "accept", run, "-o", "b.json", *words)

    def refused(self, *words, says, run="run"):
        before = (self.dir / "b.json").read_bytes() if (self.dir / "b.json").exists() else None
        self.trouble("baseline", "accept", run, "-o", "b.json", *words, says=says)
        self.assertEqual((self.dir / "b.json").read_bytes() if (self.dir / "b.json").exists() else None, before)

    def baseline(self):
        return json.loads((self.dir / "b.json").read_text())

    def check(self, status, *words, run="run"):
        return self.expect(status, "baseline", "check", run, "b.json", *words).out


def mixed(x):
    """The finalizer of splitmix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def fingerprint(rows):
    """Of a matrix of float64 values, as golden/sketch.h defines it."""
    def key(index, axis):
        return mixed((mixed((0x5072696E74 ^ axis) * 0x9E3779B97F4A7C15 % 2**64) + 0x9E3779B97F4A7C15 * (index + 1)) % 2**64)
    total = 0
    for i, row in enumerate(rows):
        for c, value in enumerate(row):
            bits, = struct.unpack("<Q", struct.pack("<d", value))
            total += mixed(bits ^ (key(i, 0x526F77) + key(c, 0x436F6C)) % 2**64)
    return f"{total % 2**64:016x}"


class Accept(Baseline):
    def test_the_file_has_a_line_for_each_tensor_and_sorted_keys(self):
        out = self.accept("--reason", "first").out
        self.assertEqual(out, "loss  0.1\nwrote b.json: 3 tensors, 1 losses and gradient norms\n")
        text = (self.dir / "b.json").read_text()
        b = self.baseline()
        self.assertEqual(list(b), sorted(b))
        self.assertEqual((b["assay_baseline"], b["reason"], b["only"], b["producer"]), (2, "first", "", None))
        self.assertEqual(b["losses"], [{"dtype": "float32", "name": "loss", "value": 0.1}])
        w = next(t for t in b["tensors"] if t["module"] == "w")
        self.assertEqual(list(w), sorted(w))
        self.assertEqual(w, {"abs_sum": 10, "dtype": "float32", "fingerprint": fingerprint([[1, -2], [3, -4]]),
                             "l2": math.sqrt(30), "module": "w", "shape": [2, 2]})
        for tensor in b["tensors"]:
            self.assertEqual(sum(tensor["fingerprint"] in line for line in text.splitlines()), 1)

    def test_the_same_run_gives_the_same_bytes(self):
        self.accept()
        first = (self.dir / "b.json").read_bytes()
        (self.dir / "b.json").unlink()
        self.accept()
        self.assertEqual((self.dir / "b.json").read_bytes(), first)

    def test_numbers_that_are_none_are_refused(self):
        self.write("bad", {"w": ("float32", [2], [math.nan, math.inf])})
        self.refused(run="bad", says="w: holds 1 NaN and 1 Inf; expected finite numbers")
        self.write("bad", {"loss": ("float32", [], [math.inf])})
        self.refused(run="bad", says="loss: holds 0 NaN and 1 Inf")
        self.accept("--only", "w", run="bad")

    def test_other_numbers_need_a_reason(self):
        self.accept("--reason", "first")
        before = (self.dir / "b.json").read_bytes()
        self.assertIn("unchanged", self.accept().out)
        self.assertEqual((self.dir / "b.json").read_bytes(), before)
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 3, -5])})
        self.refused(says="b.json: holds other numbers (1 lines differ); expected --reason TEXT")
        self.accept("--reason", "a fifth")
        self.assertEqual(self.baseline()["reason"], "a fifth")

    def test_what_is_no_baseline_is_not_replaced(self):
        (self.dir / "b.json").write_text("{}")
        self.refused("--reason", "why not", says="b.json: is no baseline")
        (self.dir / "d").mkdir()
        self.write("d/run", {})
        self.trouble("baseline", "accept", "d", "-o", "d/b.json", says="lies in the dump d")
        self.trouble("baseline", "accept", "d", "-o", "-", says="-o -: a baseline is a file")

    def test_part_of_a_run(self):
        self.accept("--only", "w")
        self.assertEqual([t["module"] for t in self.baseline()["tensors"]], ["w"])
        self.assertEqual(self.baseline()["losses"], [])
        self.assertIn("1 compared: 1 passed", self.check(0))
        self.trouble("baseline", "accept", "run", "-o", "c.json", "--only", "x", says="no tensor 'x' to accept")

    def test_statistics_alone_are_no_baseline(self):
        self.accept()
        self.trouble("baseline", "accept", "b.json", "-o", "c.json", says="no values of it were recorded")


class Check(Baseline):
    def setUp(self):
        super().setUp()
        self.accept("--reason", "first")

    def test_the_same_bits_pass(self):
        out = self.check(0)
        self.assertTrue(out.startswith("losses and gradient norms: all 1 equal\nPASS"), out)
        self.assertIn("accepted because: first", out)
        self.assertIn("3 compared: 3 passed", out)

    def test_losses_come_first(self):
        self.write("run", {"loss": ("float32", [], [0.2])})
        out = self.check(1)
        self.assertTrue(out.startswith("losses and gradient norms: 1 of 1 differ\n  loss  accepted 0.1, now 0.2\nFAIL"), out)
        self.assertIn("sum 0.2", out)

    def test_one_bit_fails(self):
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 4, -3])})
        out = self.check(1)  # the norms are the same
        self.assertIn("fingerprint differs", out)
        self.assertIn("3 compared: 2 passed, 1 failed", out)

    def test_missing_and_additional_tensors_are_findings(self):
        self.write("run", {"n": None})
        self.assertIn("1 missing actual", self.check(1))
        self.write("run", {"more": ("float32", [1], [1])})
        self.assertIn("1 missing reference", self.check(1))

    def test_a_tolerance_says_what_norms_can(self):
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 3, -4.00001])})
        self.check(1)
        self.assertIn("1 statistics agree", self.check(1, "--tolerance", "telechat3"))
        self.assertIn("3 compared: 3 passed", self.check(0, "--tolerance", "telechat3", "--accept-statistics"))
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 3, -4.1])})
        self.assertIn("1 failed", self.check(1, "--tolerance", "telechat3", "--accept-statistics"))
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 3, math.nan])})
        self.check(1, "--tolerance", "telechat3", "--accept-statistics")

    def test_a_nan_that_sums_leave_out_fails(self):
        self.write("run", {"w": ("float32", [2], [1, 0])})
        self.accept("--reason", "a zero")
        self.write("run", {"w": ("float32", [2], [1, math.nan])})
        self.assertIn("NaN 1 against 0", self.check(1, "--tolerance", "telechat3", "--accept-statistics"))

    def test_diff_takes_it_for_a_side(self):
        self.assertIn("3 compared: 3 passed", self.expect(0, "diff", "run", "b.json").out)

    def test_the_first_version_has_sha256(self):
        text = (self.dir / "b.json").read_text().replace('"assay_baseline":2', '"assay_baseline":1')
        for module, bits in (("loss", struct.pack("<f", 0.1)), ("w", struct.pack("<4f", 1, -2, 3, -4))):
            lines = text.splitlines(keepends=True)
            at = next(i for i, line in enumerate(lines) if f'"module":"{module}"' in line)
            lines[at] = re.sub('"fingerprint":"[0-9a-f]*"', f'"sha256":"{hashlib.sha256(bits).hexdigest()}"', lines[at])
            text = "".join(lines)
        (self.dir / "b.json").write_text(text)
        self.assertIn("every bit equal, by sha256", json.loads(self.check(0, "--json", "-"))["findings"][1]["rule"])
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 4, -3])})
        self.assertIn("sha256 differs", self.check(1))

    def test_a_run_of_sketches(self):
        self.write("run", {"w": ("float32", [20, 30], [float(i) for i in range(600)])})
        self.expect(0, "convert", "run", "sketched", "--to", "sketch")
        self.expect(0, "baseline", "accept", "sketched", "-o", "b.json", "--reason", "larger")
        w = next(t for t in self.baseline()["tensors"] if t["module"] == "w")
        self.assertEqual(w["fingerprint"], fingerprint([[float(30 * i + c) for c in range(30)] for i in range(20)]))
        self.assertNotIn("abs_sum", w)
        for run in ("run", "sketched"):
            self.assertIn("3 compared: 3 passed", self.check(0, run=run))
        self.write("run", {"w": ("float32", [20, 30], [float(i ^ 1) for i in range(600)])})
        self.assertIn("fingerprint differs", self.check(1))

    def test_reports(self):
        self.write("run", {"w": ("float32", [2, 2], [1, -2, 4, -3])})
        out = self.check(1, "--json", "r.json", "--junit", "r.xml", "--html", "r.html", "--github")
        self.assertIn("::error title=assay baseline%3A failed%3A w::", out)
        self.assertEqual(json.loads((self.dir / "r.json").read_text())["verb"], "baseline")
        self.assertEqual(len(list(ElementTree.parse(self.dir / "r.xml").iter("failure"))), 1)
        self.trouble("baseline", "check", "run", "b.json", "--json", "b.json", says="--json b.json: is an input")

    def test_what_is_damaged_is_trouble(self):
        good = (self.dir / "b.json").read_text()
        for old, new, says in (("\"assay_baseline\":2", "\"assay_baseline\":3", "is a baseline of version 3, expected 1 to 2"),
                               ("\"fingerprint\":\"", "\"fingerprint\":\"z", "expected 16 hexadecimal digits"),
                               ("\"float32\"", "\"float31\"", "float31"), ("\"abs_sum\":10", "\"abs_sum\":\"10\"", "abs_sum"),
                               ("]}", "]", "b.json")):
            (self.dir / "b.json").write_text(good.replace(old, new))
            self.trouble("baseline", "check", "run", "b.json", says=says)
        self.trouble("baseline", "check", "run", "run", says="is no baseline")


class Replay(Test):
    @large
    def test_steps_of_a_replay(self):
        replay = ["replay", "--model", "qwen3-moe-tiny,layers=2", "--steps", "2", "--length", "8", "--precision", "exact"]
        self.expect(0, *replay, "--dump", "one")
        self.expect(0, *replay, "--parallel", "tp=2", "--dump", "two")
        self.expect(0, "baseline", "accept", "one", "-o", "b.json")
        b = json.loads((self.dir / "b.json").read_text())
        names = [loss["name"] for loss in b["losses"]]
        for step in (0, 1):
            self.assertIn(f"step loss loss (step {step}, forward)", names)
            self.assertIn(f"step loss grad_norm (step {step}, backward)", names)
        self.assertEqual(b["producer"]["precision"], "exact")
        out = self.expect(0, "baseline", "check", "two", "b.json").out  # merged, bit for bit
        self.assertRegex(out, r"losses and gradient norms: all \d+ equal\nPASS")


if __name__ == "__main__":
    unittest.main()
