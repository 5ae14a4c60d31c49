"""`assay tolerance`."""
import unittest

from program import Test


class Tolerance(Test):
    def test_tables(self):
        out = self.expect(0, "tolerance").out
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["telechat3", "torch", "bitwise", "ascend-l0", "ascend-l1", "ascend-l2", "flash", "derived"])
        table = self.expect(0, "tolerance", "telechat3").out
        self.assertRegex(table, r"(?m)^float32 +200000 +0.008 +0.008  Table 2, as printed$")
        self.assertRegex(table, r"(?m)^float16 +2000 +0.07 +0.07  Table 2, as printed$")
        for policy in ("torch", "bitwise", "derived"):
            self.expect(0, "tolerance", policy)

    def test_lookup(self):
        out = self.expect(0, "tolerance", "--op", "matmul", "--dtype", "float32", "--count", "4096").out
        self.assertIn("matmul in float32, accumulation count 4096:", out)
        self.assertIn("telechat3 float32, count >= 2000: |a-g| <= 0.0002 (1+|g|)", out)
        self.assertIn("source: Table 2, as printed", out)
        self.assertIn("accumulation count unknown (strictest row)", self.expect(0, "tolerance", "--dtype", "bf16").out)
        self.assertIn("every bit equal", self.expect(0, "tolerance", "bitwise", "--dtype", "bf16").out)


if __name__ == "__main__":
    unittest.main()
