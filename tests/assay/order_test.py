"""`assay order`."""
import json
import subprocess
import sys
import unittest
from pathlib import Path

from program import CaseTest

LANES = Path(__file__).resolve().parents[2] / "examples" / "order" / "lanes.py"


class Order(CaseTest):
    def kernel(self, text):
        """A program that is the example but for a change."""
        file = self.dir / "kernel.py"
        file.write_text(text)
        return sys.executable, file

    def sum_of(self, *command, **options):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        return ("order", "--of", "sum", "--terms", "12", *words, "--", *command)

    def test_an_order_is_found_and_judges_every_bit(self):
        out = self.expect(0, "order", "--of", "sum", "--terms", "40", "-o", "lanes.json", "--", sys.executable, LANES).out
        self.assertIn("40 terms of float32: 4 lanes (term i in lane i mod 4), each one after the other, joined pairwise\n", out)
        self.assertIn("order        (0..36:4)+(1..37:4)+((2..38:4)+(3..39:4))\n", out)
        self.assertIn("accumulator  24 bits: float32\n", out)
        self.assertIn("bits         those of IEEE 754 additions in this order\n", out)
        found = json.loads((self.dir / "lanes.json").read_text())
        self.assertEqual(found["accumulator"], "float32,bitwise")
        self.expect(0, "generate", "reduce_sum", "S=40", "-o", "case")
        subprocess.run([sys.executable, LANES, "case"], cwd=self.dir, check=True)
        out = self.expect(0, "check", "case", "--only", "* y", "--accumulator", "lanes.json", "--all").out
        self.assertIn("every bit of reduce_sum", " ".join(out.split()))
        output = self.dir / "case" / "output_0.npy"
        data = bytearray(output.read_bytes())
        data[-4] ^= 1
        output.write_bytes(data)
        self.expect(0, "check", "case", "--only", "* y")
        out = self.expect(1, "check", "case", "--only", "* y", "--accumulator", "lanes.json").out
        self.assertIn("the kernel adds in another order than the stated one", " ".join(out.split()))
        self.assertIn("--accumulator lanes.json", out)

    def test_json_is_the_file(self):
        found = self.expect(0, "order", "--of", "sum", "--terms", "12", "--json", "-o", "f.json", "--", sys.executable, LANES).out
        self.assertEqual(found, (self.dir / "f.json").read_text())
        self.assertEqual(json.loads(found)["terms"], 12)

    def test_questions_go_in_one_run(self):
        log = self.dir / "runs"
        text = LANES.read_text() + f"\nopen({str(log)!r}, 'a').write('x')\n"
        self.expect(0, "order", "--of", "sum", "--terms", 5, "--at-once", 1000, "--", *self.kernel(text))
        few = len(log.read_text())
        log.unlink()
        self.expect(0, "order", "--of", "sum", "--terms", 5, "--at-once", 8, "--", *self.kernel(text))
        self.assertGreater(len(log.read_text()), few)

    def test_what_has_no_order(self):
        text = LANES.read_text()
        for change, says in ((("lanes_sum(read(", "3 + 0 * lanes_sum(read("), "makes 3; expected the term itself"),
                             (("in enumerate(x)", "in enumerate(x[:-1])"), "terms 0 to 11 of 1, the others 0, make 11; expected 12"),
                             (("lanes_sum(read(", "__import__('math').fsum(read("), "exact or compensated")):
            changed = text.replace(*change)
            self.assertNotEqual(changed, text)
            self.trouble(*self.sum_of(*self.kernel(changed)), says=says)

    def test_programs_that_fail(self):
        self.trouble(*self.sum_of("false"), says="false: ended with exit status 1; expected 0")
        self.trouble(*self.sum_of("true"), says="output_0.npy")
        self.trouble(*self.sum_of("./no-such-program"), says="./no-such-program: cannot be run (No such file or directory)")
        self.trouble(*self.sum_of("sh", "-c", "kill -9 $$"), says="sh: was ended by signal 9")
        self.trouble(*self.sum_of("true", dtype="int32"), says="terms of int32; expected a floating dtype")
        self.trouble(*self.sum_of("true", output="x.txt"), says="expected a name that ends with .json")
        self.trouble("order", "--of", "sum", says="command is required")

    def test_files_that_are_no_order(self):
        (self.dir / "o.json").write_text('{"order": "0+0", "accumulator": "float32"}')
        self.trouble("check", self.case, "--accumulator", "o.json", says="expected each term and each partial sum once")
        (self.dir / "o.json").write_text("{}")
        self.trouble("check", self.case, "--accumulator", "o.json", says="o.json")
        self.trouble("check", self.case, "--accumulator", "no.json", says="no.json")
        self.trouble("check", self.case, "--accumulator", "float32,fma", says="expected order=TERMS with them")


if __name__ == "__main__":
    unittest.main()
