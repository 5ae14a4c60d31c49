"""`assay inspect`."""
import hashlib
import json
import math
import struct
import unittest

from program import CODES, DATA, Test, pack, run, write_safetensors


class Inspect(Test):
    def test_copies_that_differ_are_said_so(self):
        demo = DATA.parent.parent / "demo"
        self.assertNotIn("copies differ", self.expect(0, "inspect", demo / "clean", "--stats").out)
        listed = json.loads(self.expect(0, "inspect", demo / "faulty", "--stats", "--json").out)["tensors"]
        differing = [t["name"] for t in listed if "copies_differ" in t]
        self.assertIn("layers.0.attn_norm grad weight (step 0, backward)", differing)
        self.assertEqual(len(differing), 12)

    def test_hash_and_stats_are_pythons(self):
        big = 2**53 + 1
        tensors = {
            "f8": ("float64", [2, 3], [1e300, 1.0, -1e300, 0.1, 0.2, 0.3]),
            "f4": ("float32", [5], [1.5, -2.5, math.nan, math.inf, -math.inf]),
            "f2": ("float16", [2], [0.5, -0.25]),
            "i8": ("int64", [4], [big, big, big, -7]),
            "u1": ("uint8", [3], [0, 255, 1]),
            "none": ("float32", [0, 4], []),
            "scalar": ("float32", [], [3.0]),
        }
        write_safetensors(self.dir / "t.safetensors", tensors)
        listed = json.loads(self.expect(0, "inspect", "t.safetensors", "--json", "--stats", "--hash").out)
        self.assertEqual(listed["format"], "safetensors")
        self.assertEqual(len(listed["tensors"]), len(tensors))
        for t in listed["tensors"]:
            dtype, shape, values = tensors[t["name"]]
            self.assertEqual((t["dtype"], t["shape"]), (dtype, shape))
            self.assertEqual(t["sha256"], hashlib.sha256(pack(dtype, values)).hexdigest())
            stored = struct.unpack(f"<{len(values)}{CODES[dtype][1]}", pack(dtype, values))
            numbers = [v for v in stored if not math.isnan(v)]
            finite = [v for v in numbers if not math.isinf(v)]
            total = (lambda v: float(sum(v))) if dtype in ("int64", "uint8") else math.fsum
            self.assertEqual(t["sum"], total(finite), t["name"])
            self.assertEqual(t["abs_sum"], total([abs(v) for v in finite]), t["name"])
            self.assertEqual(float(t["min"]), float(min(numbers, default=0)))
            self.assertEqual(float(t["max"]), float(max(numbers, default=0)))
            self.assertEqual(t["nan"], len(stored) - len(numbers))
            self.assertEqual(t["inf"], len(numbers) - len(finite))

    def test_listing(self):
        a, _ = self.pair()
        out = self.expect(0, "inspect", a).out
        self.assertEqual(out.splitlines()[0], "a.safetensors: safetensors, 2 tensors")
        self.assertRegex(out, r"(?m)^y +float32 +\[3\]$")
        digest = hashlib.sha256(pack("float32", [1, 2, 3.5])).hexdigest()
        self.assertRegex(self.expect(0, "inspect", a, "--hash", "--stats").out, rf"(?m)^y .* sum 6.5 abs 6.5 min 1 max 3.5  sha256 {digest}$")

    def test_every_sample_lists_or_says_why_not(self):
        for path in sorted([*(DATA / "samples").iterdir(), *(DATA / "msprobe_samples").iterdir()]):
            done = run("inspect", path, "--json", "--stats", "--hash")
            self.assertIn(done.returncode, (0, 2), path)
            if done.returncode == 2 and not done.out:
                self.assertTrue(done.err.startswith("assay: "), path)
            else:
                json.loads(done.out)

    def test_recorded_statistics_and_checksums(self):
        dump = DATA / "msprobe_samples" / "mix_md5"
        out = self.expect(0, "inspect", dump, "--stats", "--hash").out
        self.assertRegex(out, r"(?m)^Functional.linear input 1 .* recorded min -\S+ max \S+ mean \S+ l2 \S+ crc32:[0-9a-f]{8}$")
        self.assertRegex(out, r"(?m)^Functional.linear input 0 .* recorded min nan max nan mean nan l2 nan crc32:")
        self.assertNotIn("unreadable", out)
        tensors = {t["name"]: t for t in json.loads(self.expect(0, "inspect", dump, "--json").out)["tensors"]}
        linear = tensors["Functional.linear input 0 (step 0, forward)"]
        self.assertFalse(linear["has_values"])
        self.assertEqual(linear["recorded"][0]["max"], "nan")
        self.assertRegex(linear["recorded"][0]["checksum"], "^crc32:[0-9a-f]{8}$")
        self.assertEqual((linear["recorded"][0]["rank"], linear["recorded"][0]["shape"]), (0, linear["shape"]))

    def test_groups_of_ranks(self):
        listing = json.loads(self.expect(0, "inspect", DATA / "msprobe_samples" / "ranks", "--json").out)
        self.assertEqual([g["ranks"] for g in listing["groups"]], [[0, 1]])
        self.assertEqual(listing["mesh"], {"dims": ["mesh_dim_0"], "shape": [2]})

    def test_ranks(self):
        dump = DATA / "samples" / "assay_dump"
        merged = json.loads(self.expect(0, "inspect", dump, "--json").out)
        ranks = json.loads(self.expect(0, "inspect", dump, "--json", "--ranks").out)
        self.assertEqual(merged["world_size"], 2)
        self.assertEqual(sum(t["parts"] for t in merged["tensors"]), len(ranks["tensors"]))


if __name__ == "__main__":
    unittest.main()
