"""`assay generate`."""
import json
import unittest
from pathlib import Path

from program import Test, run, some


class Generate(Test):
    def test_the_same_seed_makes_the_same_case(self):
        for folder in ("a", "b"):
            self.expect(0, "generate", "softmax", "C=7", "--dtype", "bfloat16", "--seed", "3", "-o", folder)
        self.expect(0, "generate", "softmax", "C=7", "--dtype", "bfloat16", "--seed", "4", "-o", "c")
        bits = [(self.dir / f / "input_0.npy").read_bytes() for f in "abc"]
        self.assertEqual(bits[0], bits[1])
        self.assertNotEqual(bits[0], bits[2])
        case = json.loads((self.dir / "a" / "case.json").read_text())
        self.assertEqual(case["inputs"][0]["dtype"], "bfloat16")
        self.assertEqual(case["inputs"][0]["shape"][-1], 7)
        self.assertFalse((self.dir / "a" / "output_0.npy").exists(), "outputs are the kernel's to write")
        self.expect(2, "check", "a")

    def test_every_operator_checks_its_own_golden_outputs(self):
        operators = some(json.loads(self.expect(0, "ops", "--json").out))
        for op in operators:
            for fill in ("random", "integer"):
                self.expect(0, "generate", op["name"], "--golden", "--fill", fill, "-o", Path(fill) / op["name"])
        for fill in ("random", "integer"):
            out = self.expect(0, "check", fill).out
            self.assertRegex(out, rf"\d+ compared: (\d+) passed, 0 failed, 0 inherited; 0 not compared\n$")

    def test_special_values_are_judged_by_their_pattern(self):
        for op in ("add", "softmax", "matmul", "rms_norm", "silu"):
            self.expect(0, "generate", op, "--golden", "--fill", "special", "-o", op)
            out = run("check", op, cwd=self.dir).out
            self.assertNotIn("outside of its domain", out)

    def test_sizes_and_attributes(self):
        self.expect(0, "generate", "matmul", "M=4", "K=6", "N=2", "--attr", "transpose_b=true", "-o", "case")
        case = json.loads((self.dir / "case" / "case.json").read_text())
        self.assertEqual([t["shape"] for t in case["inputs"]], [[4, 6], [2, 6], [4, 2]])
        self.assertEqual(case["attributes"], {"transpose_b": True})

    def test_trouble(self):
        self.trouble("generate", "matmul", "Q=4", "-o", "case", says="it has A, B, K, M, N")
        self.trouble("generate", "matmul", "M", "-o", "case", says="expected an extent like K=4096")
        self.trouble("generate", "matmul", "M=x", "-o", "case", says="is no extent")
        self.trouble("generate", "matmul", "--attr", "speed=9", "-o", "case", says="matmul has no attribute 'speed'")
        self.trouble("generate", "matmul", "--dtype", "int8", "-o", "case", says="--dtype int8: is no floating dtype")
        self.trouble("generate", "matmul", "--fill", "ones", "-o", "case", says="expected random, integer or special")
        self.trouble("generate", "matmull", "-o", "case", says="did you mean 'matmul'?")
        self.trouble("generate", "matmul", "M=3x", "-o", "case", says="is no extent")
        self.trouble("generate", "matmul", "--leave-out", "a", "-o", "case", says="matmul needs it")
        self.trouble("generate", "exp", f"N={2**60}", "-o", "case", says="do not fit into memory")
        self.trouble("generate", "adam", "T=0", "-o", "case", says="makes no outputs")
        self.assertFalse((self.dir / "case").exists())
        self.expect(0, "generate", "matmul", "-o", "case")
        self.trouble("generate", "matmul", "-o", "case", says="is there already and not empty")


if __name__ == "__main__":
    unittest.main()
