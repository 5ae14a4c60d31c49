"""`assay golden`."""
import json
import shutil
import unittest

from program import CASES, CaseTest


class Golden(CaseTest):
    def test_golden_then_check_passes(self):
        for level in ("fp64", "report"):
            target = self.dir / level
            out = self.expect(0, "golden", self.case, "-o", target, "--level", level).out
            self.assertIn("written to", out)
            written = json.loads((target / "case.json").read_text())
            self.assertEqual({o["dtype"] for o in written["outputs"]}, {"float64" if level == "fp64" else "float32"})
            self.assertEqual([o["name"] for o in written["outputs"]], [o["name"] for o in self.json["outputs"]])
            self.expect(0, "check", target)
            self.expect(0, "check", self.case, "--actual", target)
        # Of float32 against float64 only rounding may be left.
        self.expect(1, "diff", self.dir / "report" / "output_0.npy", self.dir / "fp64" / "output_0.npy", "--tolerance", "bitwise")

    def test_certified_golden_counts_its_proofs(self):
        out = self.expect(0, "golden", self.case, "-o", "certified", "--level", "certified").out
        self.assertRegex(out, r"  y +float32 \[6, 33\]: \d+ exact, \d+ certified, \d+ repaired\n")
        self.expect(0, "check", self.case, "--actual", "certified")
        self.expect(0, "check", "certified", "--level", "certified")

    def test_bounds_are_errors_of_a_device(self):
        self.expect(0, "golden", self.case, "-o", "plain", "--level", "bound")
        self.expect(0, "golden", self.case, "-o", "narrow", "--level", "bound", "--accumulator", "bfloat16")
        plain, narrow = (json.loads(self.expect(0, "inspect", d / "output_0.npy", "--stats", "--json").out)["tensors"][0]["max"]
                         for d in (self.dir / "plain", self.dir / "narrow"))
        self.assertGreater(narrow, 100 * plain)
        self.trouble("golden", self.case, "--accumulator", "bfloat16", says="expected them with --level bound")
        self.trouble("golden", self.case, "--level", "bound", "--accumulator", "vax", says="there is no accumulator 'vax'")
        self.trouble("check", self.case, "--level", "bound", says="--level bound: is of errors")
        self.trouble("check", self.case, "--intermediate", "vax", says="--intermediate vax: is no dtype")
        self.trouble("check", self.case, "--accumulator", "hopper,tree", says="expected promote=N")

    def test_golden_files_never_share_a_name(self):
        second = self.json["outputs"][1]
        for file, says in ((self.json["outputs"][0]["file"], "which is another's"), ("case.json", "which is another's")):
            second["file"] = file
            self.save_case()
            self.trouble("golden", self.case, "-o", "out", says=says)
        self.json["outputs"] = [dict(self.json["outputs"][0], file="golden_1.npy")]
        self.save_case()
        self.expect(0, "golden", self.case, "-o", "out")
        files = [o["file"] for o in json.loads((self.dir / "out" / "case.json").read_text())["outputs"]]
        self.assertEqual(len(files), 4)
        self.assertEqual(len(set(files)), 4)
        self.expect(0, "check", "out")

    def test_golden_of_many_cases(self):
        self.expect(0, "golden", CASES / "softmax", "-o", "out")
        self.expect(0, "check", "out")
        self.assertTrue((self.dir / "out" / "softmax" / "strided" / "case.json").exists())
        self.expect(0, "golden", CASES / "softmax")

    def test_golden_writes_only_into_its_folder(self):
        taken = self.dir / "taken"
        shutil.copytree(self.dir / self.case, taken)
        text = json.loads((taken / "case.json").read_text())
        text["outputs"][0]["file"] = text["inputs"][0]["file"]
        (taken / "case.json").write_text(json.dumps(text))
        self.trouble("golden", taken, "-o", "new", says="which is an input's file")
        self.trouble("golden", self.case, "-o", self.case, says="is there already and not empty")
        for file in ("../evil.npy", str(self.dir / "evil.npy")):
            self.json["outputs"][0]["file"] = file
            self.save_case()
            self.trouble("golden", self.case, "-o", "out", says="is no plain name")
        self.assertFalse((self.dir / "evil.npy").exists())


if __name__ == "__main__":
    unittest.main()
