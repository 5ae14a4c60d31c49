"""`assay convert`."""
import hashlib
import json
import resource
import signal
import struct
import subprocess
import unittest

from program import ASSAY, DATA, Test, environment, write_safetensors


class Convert(Test):
    def listing(self, path, hint=None):
        tensors = json.loads(self.expect(0, "inspect", path, "--json", "--hash", *(["--dtype-hint", hint] if hint else [])).out)["tensors"]
        return {t["name"]: (t["dtype"], t["shape"], t["sha256"]) for t in tensors if t["has_values"]}

    def test_round_trip_is_bitwise(self):
        for source in ("every.safetensors", "every.h5", "npz_deflated.npz", "checkpoint.pt", "assay_dump", "folder", "msprobe"):
            path = DATA / "samples" / source
            out = self.expect(0, "convert", path, source + ".dump").out
            self.assertIn("wrote ", out)
            before, after = self.listing(path), self.listing(source + ".dump")
            self.assertTrue(before)
            self.assertEqual(before, after, source)
            if source == "msprobe":
                continue
            # What convert could not take along (links, strings) is not compared, unless a rule says why.
            leaves_out = source == "every.h5"
            self.expect(int(leaves_out), "diff", source + ".dump", path, "--tolerance", "bitwise")
            (self.dir / "rules.toml").write_text("[[ignore]]\nmatch = 'reference: *'\nreason = 'no tensors'\n")
            self.expect(0, "diff", source + ".dump", path, "--tolerance", "bitwise", "--rules", "rules.toml")

    def test_payloads_of_nan_survive(self):
        header = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}).encode()
        bits = struct.pack("<3I", 0x7FC12345, 0xFF800001, 0x80000000)
        (self.dir / "x").write_bytes(struct.pack("<Q", len(header)) + header + bits)
        self.expect(0, "convert", "x", "run")
        self.assertEqual(self.listing("run")["x"][2], hashlib.sha256(bits).hexdigest())
        self.expect(0, "diff", "run", "x", "--tolerance", "bitwise")

    def test_tensors_without_values(self):
        self.assertIn("only its statistics were recorded", self.expect(0, "convert", DATA / "samples" / "msprobe", "run").out)
        self.trouble("convert", DATA / "msprobe_samples" / "L1_xor", "none", says="nothing to convert")
        self.assertFalse((self.dir / "none").exists())

    def test_ranks_of_msprobe_round_trip(self):
        source = DATA / "msprobe_samples" / "mindspore"
        self.expect(0, "convert", source, "run")
        self.assertEqual(self.listing(source), self.listing("run"))
        self.expect(0, "diff", "run", source, "--tolerance", "bitwise")
    def test_plain_formats_keep_bits_and_names(self):
        for source in ("checkpoint.pt", "folder", "assay_dump", "msprobe"):
            path = DATA / "samples" / source
            before = self.listing(path)
            for out, to in (("x.safetensors", []), ("x.h5", []), ("x.hdf5", []), ("npys", ["--to", "npy"]), ("dump", [])):
                said = self.expect(0, "convert", path, f"{source}.{out}", *to).out
                after = self.listing(f"{source}.{out}", hint="bfloat16")
                self.assertEqual(sorted(before), sorted(after), said)
                self.assertEqual(before, after, said)
                if any(dtype == "bfloat16" for dtype, _, _ in before.values()) and out not in ("x.safetensors", "dump"):
                    self.assertIn("of bfloat16 cannot say so", said)
            self.assertIn(": safetensors, ", self.expect(0, "inspect", f"{source}.x.safetensors").out)
            self.assertEqual(list((self.dir / f"{source}.npys").rglob("*.unfinished*")), [])
            if source != "msprobe":  # has what was recorded as statistics only
                self.expect(0, "diff", f"{source}.x.safetensors", path, "--tolerance", "bitwise")
            self.assertEqual(list(self.listing(f"{source}.x.safetensors")), list(before))  # in the order of execution
        every = DATA / "samples" / "every.pt"
        for out in ("every.safetensors", "every.h5"):
            said = self.expect(0, "convert", every, out).out
            for name, (dtype, shape, sha256) in self.listing(every).items():
                found = self.listing(out)[name]
                self.assertEqual((shape, sha256), found[1:], name)
                if dtype != found[0]:
                    self.assertIn(f"of {dtype} cannot say so in hdf5: read with --dtype-hint {dtype}", said)

    def test_rules_put_ranks_together(self):
        (self.dir / "ranks").mkdir()
        for rank in (0, 1):
            tensors = {"w": ("float32", [2, 2], [4 * rank + i for i in range(4)]), "x": ("float32", [2], [rank, 1 - rank])}
            write_safetensors(self.dir / "ranks" / f"rank{rank}.safetensors", tensors | {"order": ("int64", [2], [3 - rank, rank])})
        mesh = "[[mesh]]\ndims = ['tp']\nshape = [2]\nrank = '^rank(\\d+)/'\n[[layout]]\nmatch = 'w'\ndims = "
        (self.dir / "cut.toml").write_text(mesh + "'out[tp] in'\n[[layout]]\nmatch = 'x'\ndims = 'h [tp:partial]'\n[[layout]]\nmatch = 'order'\ndims = 'n[tp]'\n")
        self.assertIn("[4, 2]", self.expect(0, "inspect", "ranks", "--rules", "cut.toml").out)
        self.expect(0, "convert", "ranks", "run", "--rules", "cut.toml")
        write_safetensors(self.dir / "whole.safetensors", {"order": ("int64", [4], [3, 0, 2, 1]), "w": ("float32", [4, 2], list(range(8))), "x": ("float32", [2], [1, 1])})
        self.expect(0, "diff", "run", "whole.safetensors", "--tolerance", "bitwise")
        self.expect(0, "diff", "ranks", "whole.safetensors", "--rules", "cut.toml", "--tolerance", "bitwise")
        self.expect(2, "diff", "ranks", "whole.safetensors", "--tolerance", "bitwise")  # nothing has a partner
        (self.dir / "rows.toml").write_text(mesh + "'n[tp:rows] h'\nrows = 'order'\n")
        self.trouble("convert", "ranks", "rows", "--rules", "rows.toml", says="in an order of their own")
        self.assertFalse((self.dir / "rows").exists())
        (self.dir / "ignore.toml").write_text("[[ignore]]\nmatch = 'x'\nreason = 'not now'\n")
        self.assertNotIn("x ", self.expect(0, "inspect", "run", "--rules", "ignore.toml").out)
        self.assertIn("left out: x: ignore.toml, [[ignore]] 1: not now", self.expect(0, "convert", "run", "less", "--rules", "ignore.toml").out)
        self.assertNotIn("x ", self.expect(0, "inspect", "less").out)

    def test_one_npy_holds_one_tensor(self):
        self.expect(0, "convert", DATA / "samples" / "single.pt", "x.npy")
        self.assertIn("float16", self.expect(0, "inspect", "x.npy").out)
        self.trouble("convert", DATA / "samples" / "every.pt", "y.npy", says="--to npy")

    def test_plain_formats_hold_whole_tensors_only(self):
        lines = [{"seq": 0, "step": 0, "module": "m", "slot": "grad", "dtype": "float32", "shape": [1], "global_shape": [1],
                  "placements": ["Partial(sum)"], "mesh_coordinate": [r], "data": {"file": f"rank0000{r}.safetensors", "name": "t"}} for r in (0, 1)]
        for placement, values, says in (("Partial(sum)", (1, 1), "partial sums"), ("Replicate()", (1, 2), "different bits")):
            run = self.dir / says
            run.mkdir()
            (run / "manifest.json").write_text(json.dumps({"format": "assay-dump", "version": 1, "world_size": 2, "mesh": {"dims": ["tp"], "shape": [2]}}))
            for rank in (0, 1):
                line = lines[rank] | {"placements": [placement]}
                (run / f"rank0000{rank}.jsonl").write_text(json.dumps(line) + "\n")
                write_safetensors(run / f"rank0000{rank}.safetensors", {"t": ("float32", [1], [values[rank]])})
            for out in ("x.safetensors", "x.h5", "x.npy"):
                self.trouble("convert", says, out, says=says)
                self.assertFalse((self.dir / out).exists())
            self.expect(0, "convert", says, says + ".dump")

    def test_names_that_do_not_fit_are_trouble(self):
        for number, name in enumerate(("../up", "/up", "a//b", "a/.", "n" * 300)):
            write_safetensors(self.dir / f"{number}.safetensors", {name: ("float32", [1], [1])})
            for out, to in ((f"{number}.h5", "hdf5"), (f"{number}.folder", "npy")):
                self.trouble("convert", f"{number}.safetensors", out, "--to", to, says="cannot name a file or a group")
                self.assertFalse((self.dir / out).exists())
        self.assertFalse((self.dir.parent / "up.npy").exists())
        write_safetensors(self.dir / "both.safetensors", {"a": ("float32", [1], [1]), "a/b": ("float32", [1], [2])})
        self.trouble("convert", "both.safetensors", "both.h5", says="which is a tensor")
        self.expect(0, "convert", "both.safetensors", "both", "--to", "npy")
        self.assertEqual(self.listing("both"), self.listing("both.safetensors"))

    def test_a_full_disk_is_trouble_and_leaves_nothing(self):
        write_safetensors(self.dir / "in.safetensors", {"x": ("float64", [4000], [1.5] * 4000)})
        for out, to in (("x.safetensors", []), ("x.h5", []), ("x.npy", []), ("x", ["--to", "npy"]), ("run", [])):
            done = subprocess.run([ASSAY, "convert", "in.safetensors", out, *to], cwd=self.dir, capture_output=True, env=environment(),
                                  restore_signals=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)))
            self.assertEqual((done.returncode, done.stdout), (2, b""), out)
            self.assertIn(f"assay: {out}".encode(), done.stderr)
            self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["in.safetensors"])

    def test_what_a_killed_convert_leaves_has_no_name_of_a_dump(self):
        write_safetensors(self.dir / "in.safetensors", {"x": ("float64", [4000], [1.5] * 4000)})
        for out, to in (("x.safetensors", []), ("x.h5", []), ("x.npy", []), ("x", ["--to", "npy"])):
            # Without a handler for it, the kernel ends the process in the middle of its write.
            done = subprocess.run([ASSAY, "convert", "in.safetensors", out, *to], cwd=self.dir, capture_output=True, env=environment(),
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)))
            self.assertEqual(done.returncode, -signal.SIGXFSZ)
            self.assertFalse((self.dir / out).exists())
            self.expect(0, "convert", "in.safetensors", out, *to)

    def test_what_cannot_be_read_is_trouble_and_the_rest_is_written(self):
        a, _ = self.pair()
        (self.dir / "in").mkdir()
        for name, size in (("a", None), ("b", -1)):
            (self.dir / "in" / f"{name}.safetensors").write_bytes((self.dir / a).read_bytes()[:size])
        done = self.expect(2, "convert", "in", "out.h5")
        self.assertIn("not converted: in/b.safetensors: ", done.err)
        self.assertEqual(self.expect(0, "inspect", "out.h5").out.count("a/"), 2)
        self.assertIn("unreadable: in/b.safetensors: ", self.expect(2, "inspect", "in").out)
        self.assertIn("2 passed", self.expect(2, "diff", "in", "in").out)

    def test_an_output_has_a_place_of_its_own(self):
        a, _ = self.pair()
        (self.dir / "in").mkdir()
        (self.dir / "in" / "a.safetensors").write_bytes((self.dir / a).read_bytes())
        before = (self.dir / "in" / "a.safetensors").read_bytes()
        self.trouble("convert", "in", "in/out.h5", says="lies in the input in")
        self.trouble("diff", "in", "in", "--json", "in/a.safetensors", says="lies in the input in")
        self.assertEqual((self.dir / "in" / "a.safetensors").read_bytes(), before)
        self.trouble("convert", a, "x.npz", says="x.npz: assay does not write .npz files")

    def test_never_writes_over_something(self):
        a, _ = self.pair()
        self.expect(0, "convert", a, "run")
        self.trouble("convert", a, "run", says="run")
        self.trouble("convert", a, a, says=a)
        for out in ("x.safetensors", "x.npy", "x.h5"):
            (self.dir / out).write_text("mine")
            self.trouble("convert", DATA / "samples" / "single.pt", out, says=f"{out}: is there already")
            self.assertEqual((self.dir / out).read_text(), "mine")
        self.trouble("convert", "run", "run", "--to", "npy", says="is there already")
        self.trouble("convert", "none", "other", says="none")
        self.assertFalse((self.dir / "other").exists())


if __name__ == "__main__":
    unittest.main()
