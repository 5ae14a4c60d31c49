"""Files of bare numbers, of any verb: --raw."""
import unittest

from program import Test, pack, write_npy


class Raw(Test):
    def test_every_verb_takes_it(self):
        values = [1, 2, 3, 4, 5, 6]
        (self.dir / "x.bin").write_bytes(pack("float32", values))
        write_npy(self.dir / "x.npy", "float32", [2, 3], values)
        for spelling in ("float32:2,3", "float32:[2,3]", "fp32:[2, 3]"):
            self.assertIn("float32       [2, 3]", self.expect(0, "inspect", "x.bin", "--raw", spelling).out)
        out = self.expect(0, "diff", "x.bin", "x.npy", "--raw", "float32:2,3", "--tolerance", "bitwise").out
        self.assertIn("1 compared: 1 passed", out)
        self.expect(0, "convert", "x.bin", "y.npy", "--raw", "float32:2,3")
        self.expect(0, "diff", "y.npy", "x.npy", "--tolerance", "bitwise", "--rules", self.rename("y", "x"))

    def rename(self, old, new):
        (self.dir / "rules.toml").write_text(f"[[rename]]\nfrom = '^{old}$'\nto = '{new}'\n")
        return "rules.toml"

    def test_the_sides_may_differ(self):
        (self.dir / "a").mkdir()
        (self.dir / "r").mkdir()
        (self.dir / "a/x.raw").write_bytes(pack("float16", [1, 2]))
        (self.dir / "r/x.raw").write_bytes(pack("float32", [1, 2]))
        self.expect(1, "diff", "a", "r", "--raw", "float16:2", "--raw", "float32:2", "--tolerance", "bitwise")  # dtypes differ
        self.expect(0, "diff", "a", "r", "--raw", "float16:2", "--raw", "float32:2")
        self.trouble("diff", "a", "r", "--raw", "float16:2", says="r/x.raw: has 8 bytes, which is not float16 of shape [2]")
        self.trouble("diff", "a", "r", *["--raw", "float16:2"] * 3, says="3 times")

    def test_numbers_that_look_like_safetensors(self):
        (self.dir / "x.bin").write_bytes(pack("int64", [5, 123, 0, 0]))
        self.assertIn("int64", self.expect(0, "inspect", "x.bin", "--raw", "int64:4").out)

    def test_what_is_no_raw_array(self):
        (self.dir / "x.bin").write_bytes(b"1234")
        for raw in ("float32", "float33:1", "float32:-1", "float32:1,", "float32:,1", "float32:1x1", "float32:99999999999999999999", "float32:1 ",
                    "float32:[1"):
            self.trouble("inspect", "x.bin", "--raw", raw, says="expected DTYPE:N,N,..")
        for raw in ("float32:2", "float32:0", "float32:4611686018427387904,4611686018427387904,0", "float64:2305843009213693952"):
            self.trouble("inspect", "x.bin", "--raw", raw, says="x.bin" if "611" not in raw else "")
        self.assertIn("[]", self.expect(0, "inspect", "x.bin", "--raw", "float32:").out)
        self.trouble("inspect", "x.bin", says="--raw")


if __name__ == "__main__":
    unittest.main()
