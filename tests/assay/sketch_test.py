"""Sketches: `convert --to sketch`, and `diff` of what it makes."""
import json
import random
import unittest

from program import Test, run, write_safetensors

MODEL = ["--model", "telechat3-105b-tiny", "--length", "16", "--micro-batches", "2"]


class Sketch(Test):
    def replay(self, out, *words):
        self.expect(0, "replay", *MODEL, *words, "--dump", out)

    def sketched(self, run):
        self.expect(0, "convert", run, f"{run}.sketch", "--to", "sketch")
        return f"{run}.sketch"

    def run_of(self, *words):
        return run(*words, cwd=self.dir).returncode

    def findings(self, status, *words):
        self.assertEqual(self.run_of("diff", *words, "--json", "r.json"), status)
        return {f["name"]: f for f in json.loads((self.dir / "r.json").read_text())["findings"]}

    def test_small_tensors_are_kept_and_large_ones_sketched(self):
        rows = [[random.Random(i).gauss(0, 1) for _ in range(40)] for i in range(50)]
        write_safetensors(self.dir / "x", {"large": ("float32", [50, 40], [v for row in rows for v in row]),
                                           "small": ("float32", [16, 16], [float(i) for i in range(256)])})
        self.assertIn("wrote 2 tensors", self.expect(0, "convert", "x", "s", "--to", "sketch").out)
        listed = {t["name"]: t for t in json.loads(self.expect(0, "inspect", "s", "--json").out)["tensors"]}
        self.assertTrue(listed["small"]["has_values"])
        self.assertFalse(listed["large"]["has_values"])
        recorded = listed["large"]["recorded"][0]
        self.assertEqual(recorded["sketch"], {"grid": [4, 4], "signs": 16, "seed": 0})
        self.assertRegex(recorded["fingerprint"], "^[0-9a-f]{16}$")
        self.assertAlmostEqual(recorded["l2"] ** 2, sum(v * v for row in rows for v in row), delta=1e-3)
        self.assertRegex(self.expect(0, "inspect", "s").out, r"recorded a sketch of 256 values l2 \S+ nan 0 inf 0 fingerprint")
        self.assertIn("only its sketch was recorded", self.expect(0, "convert", "s", "t").out)
        found = self.findings(0, "s", "x")
        self.assertEqual(found["large"]["rule"], "every bit equal, by fingerprints of 64 bits")
        self.assertLess((self.dir / "s" / "rank00000.h5").stat().st_size, 20_000)

    def test_a_run_against_its_sketches_and_another_layout(self):
        self.replay("one", "--precision", "exact")
        self.replay("many", "--precision", "exact", "--parallel", "tp=2,sp=1,dp=2,zero=1")
        one, many = self.sketched("one"), self.sketched("many")
        for sides in ((one, "one"), (one, one), (many, "one"), (many, one)):
            found = self.findings(0, *sides, "--tolerance", "bitwise")
            self.assertTrue(all(f["verdict"] == "passed" for f in found.values()))
            self.assertGreater(sum("fingerprints" in f["rule"] for f in found.values()), 50)
        size = {run: sum(p.stat().st_size for p in (self.dir / run).iterdir()) for run in ("one", one)}
        self.assertLess(size[one], size["one"])

    def test_rounding_agrees_and_is_accepted(self):
        self.replay("one", "--precision", "fp32")
        self.replay("many", "--precision", "fp32", "--parallel", "tp=2")
        one, many = self.sketched("one"), self.sketched("many")
        out = self.expect(1, "diff", many, one).out
        self.assertRegex(out, r"\d+ of them agree by sketch")
        found = self.findings(0, many, one, "--accept-sketches")
        accepted = [f for f in found.values() if f["rule"].startswith("a sketch only, as accepted: ")]
        self.assertGreater(len(accepted), 10)
        for f in accepted:
            s = f["sketch"]
            self.assertLessEqual(s["low"], s["distance"])
            self.assertLessEqual(s["distance"], s["high"])
            self.assertLessEqual(s["high"], s["allowed"])

    def test_faults_are_found_and_named(self):
        self.replay("clean", "--precision", "fp32")
        clean = self.sketched("clean")
        for fault, says in (("F002", "the all-reduce over tp is missing"), ("F012", "actual = 0.5 x reference (0.5 = 1/tp")):
            with self.subTest(fault=fault):
                self.replay(fault, "--precision", "fp32", "--parallel", "tp=2,sp=1", "--fault", fault)
                run = self.run_of("diff", self.sketched(fault), clean, "--accept-sketches", "--json", "r.json")
                self.assertEqual(run, 1)
                found = json.loads((self.dir / "r.json").read_text())["findings"]
                said = [d["text"] for f in found for d in f["diagnoses"]]
                self.assertTrue(said and all(says in text for text in said), said[:3])

    def test_bad_options(self):
        write_safetensors(self.dir / "x", {"large": ("float32", [300], [1.0] * 300)})
        self.expect(0, "convert", "x", "s", "--to", "sketch")
        self.trouble("convert", "s", "t", says="there is nothing to convert")


if __name__ == "__main__":
    unittest.main()
