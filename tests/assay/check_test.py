"""`assay check`."""
import json
import math
import shutil
import struct
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from program import CASES, DATA, CaseTest, environment


class Check(CaseTest):
    def break_output(self, index, element, value):
        path = self.dir / self.case / self.json["outputs"][index]["file"]
        data = bytearray(path.read_bytes())
        start = 10 + struct.unpack_from("<H", data, 8)[0]
        struct.pack_into("<d", data, start + 8 * element, value)
        path.write_bytes(data)

    def test_passes_and_fails(self):
        out = self.expect(0, "check", self.case).out
        self.assertTrue(out.startswith("PASS  4 tensors"))
        self.break_output(0, 40, 9.5)
        out = self.expect(1, "check", self.case).out
        self.assertIn("first in execution order: rms_norm/rows_6x33 y\n", out)
        self.assertRegex(out, r"worst     \[1, 7\] of \[6, 33\]: actual 9.5, reference [-0-9.]+\n")
        self.assertIn("rule      derived: error bound of rms_norm in float64 arithmetic (count 33)\n", out)
        self.assertEqual(out.splitlines()[-1], "4 compared: 3 passed, 1 failed, 0 inherited; 0 not compared")

    def test_raw_bits_are_of_the_declared_dtype(self):
        eager = DATA / "eager_cases"
        out = self.expect(0, "check", eager, "--actual", eager, "--intermediate", "bfloat16").out
        self.assertTrue(out.startswith("PASS  74 tensors"))
        self.assertIn("in float32 arithmetic, intermediate results in bfloat16, stored as bfloat16 ", " ".join(out.split()))

    def test_commands_to_repeat_do_just_that(self):
        self.break_output(0, 0, 9.5)
        self.break_output(2, 0, math.nan)
        shutil.copytree(self.dir / self.case, self.dir / "out put" / self.case)
        other = CASES / "matmul" / "trans_both"
        shutil.copytree(other, self.dir / "out put" / "trans_both")
        options = ["--actual", "out put", "--tolerance", "torch", "--tolerance", "derived", "--level", "report"]
        report = json.loads(self.expect(1, "check", self.case, other, *options, "--json", "-").out)
        self.assertEqual(len(report["findings"]), 7)
        for finding in report["findings"]:
            done = subprocess.run(["sh", "-c", finding["repeat"] + " --json -"], cwd=self.dir, env=environment(), capture_output=True)
            again = json.loads(done.stdout)
            self.assertEqual(again["findings"], [finding])
            self.assertEqual(done.returncode, 0 if finding["verdict"] == "passed" else 1)

    def test_all_cases_in_one_run(self):
        out = self.expect(0, "check", CASES, "--junit", "r.xml", "--html", "r.html").out
        self.assertIn("Operators and dtypes", (self.dir / "r.html").read_text())
        root = ElementTree.parse(self.dir / "r.xml").getroot()
        self.assertEqual(root.get("tests"), str(len(list(CASES.rglob("case.json")))))
        self.assertEqual(root.get("failures"), "0")
        self.assertRegex(out, r"\n(\d+) compared: \1 passed, 0 failed, 0 inherited; 0 not compared; wrote r.html, r.xml\n$")

    def test_trouble_is_one_clear_sentence(self):
        self.json["op"] = "rms_nrom"
        self.save_case()
        out = self.expect(2, "check", self.case).out
        self.assertTrue(out.startswith("TROUBLE  1 unreadable"))
        self.assertIn("rms_nrom", out)

    def test_prove_rejects_faults_and_says_which_it_cannot(self):
        report = json.loads(self.expect(0, "check", self.case, "--prove", "--json", "-").out)
        verdicts = {f["name"]: f["verdict"] for f in report["findings"]}
        self.assertEqual(verdicts["rms_norm/rows_6x33 y, one term of each sum skipped"], "passed")
        self.assertEqual(verdicts["rms_norm/rows_6x33 grad_weight, one row zero"], "passed")
        self.assertEqual(verdicts["rms_norm/rows_6x33 y, tf32 inputs"], "ignored")  # its inputs are exact in tf32
        (self.dir / "lax.toml").write_text("name='lax'\nsource='a guess'\nrule='atol_rtol'\n"
                                           "[float64]\nsource='a guess'\ncount=[0]\ntolerance=[1e-2]\n")
        out = self.expect(1, "check", self.case, "--prove", "--tolerance", "lax.toml").out
        self.assertIn("the gate does not see this fault", " ".join(out.split()))

    def test_outputs_that_are_not_judged_are_said(self):
        self.json["outputs"] = self.json["outputs"][:1]
        self.save_case()
        self.assertIn("case.json does not list rstd, grad_x, grad_weight: not judged", self.expect(0, "check", self.case).out)


if __name__ == "__main__":
    unittest.main()
