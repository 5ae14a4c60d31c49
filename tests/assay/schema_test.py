"""What assay writes with --json and --jsonl is what compare/report/report.schema.json says, by a library that judges
JSON by its schema. Exit status 77 where that is not installed.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data ASSAY_SCHEMA=compare/report/report.schema.json \\
        python3 tests/assay/schema_test.py
"""
import json
import math
import os
import sys
import unittest
from pathlib import Path

try:
    import jsonschema
except ImportError:
    sys.exit(77)

from program import CASES, DATA, Test, strict, write_safetensors

SCHEMA = json.loads(Path(os.environ["ASSAY_SCHEMA"]).read_text())
DEMO = DATA.parent.parent / "demo"


class Schema(Test):
    def setUp(self):
        super().setUp()
        definitions = strict(SCHEMA["$defs"])
        self.line = {name: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
                     for name in ("header", "finding", "summary")}

    def reports(self, status, *words):
        """The findings of both reports of one run, which are judged, and must say the same."""
        self.expect(status, *words, "--json", "r.json", "--jsonl", "r.jsonl")
        report = json.loads((self.dir / "r.json").read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(report)
        lines = (self.dir / "r.jsonl").read_text().splitlines()
        header, *findings, summary = [json.loads(line) for line in lines]
        self.line["header"].validate(header)
        self.line["summary"].validate(summary)
        for finding in findings:
            self.line["finding"].validate(finding)
        self.assertEqual(header.pop("schema"), "finding/2")
        self.assertEqual(report, {"schema": "report/2", **header, **summary, "findings": findings})
        return findings

    def test_the_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_cases_are_what_their_schema_says(self):
        schema = json.loads((Path(os.environ["ASSAY_SCHEMA"]).parents[1] / "calls/case.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        judge = jsonschema.Draft202012Validator(schema)
        self.expect(0, "generate", "rope", "--attr", 'style="interleaved"', "--golden", "-o", "made")
        cases = [self.dir / "made/case.json", *CASES.rglob("case.json")]
        self.assertGreater(len(cases), 20)
        for case in cases:
            judge.validate(json.loads(case.read_text()))
        whole = json.loads(cases[0].read_text())
        for damage in ({"inputs": None}, {"op": 3}, {"case": "../x"}, {"attributes": {"eps": ["1"]}},
                       {"outputs": [{"name": "y", "file": "a/b.npy", "dtype": "float32", "shape": [1]}]},
                       {"outputs": [{"name": "y", "file": "y.npy", "dtype": "float32", "shape": [-1]}]}):
            with self.assertRaises(jsonschema.ValidationError):
                judge.validate({**whole, **damage})
            (self.dir / "made/case.json").write_text(json.dumps({**whole, **damage}))
            self.expect(2, "check", "made")

    def test_diff_with_causes_and_origins(self):
        findings = self.reports(1, "diff", DEMO / "faulty", DEMO / "reference", "--tolerance", "telechat3", "--tolerance", "torch")
        self.assertTrue(any(f["diagnoses"] for f in findings))
        self.assertEqual({f["origin"]["kind"] for f in findings if "origin" in f}, {"created here", "inherited"})
        self.assertEqual(findings[0]["other_policies"][0]["policy"], "torch")

    def test_diff_of_what_cannot_be_measured(self):
        a = {"nan": ("float32", [2], [math.nan, math.inf]), "shape": ("float32", [2], [1, 2]), "same": ("int64", [], [1])}
        r = {"nan": ("float32", [2], [1, 2]), "shape": ("float32", [1], [1]), "same": ("int64", [], [1]),
             "gone": ("float32", [1], [1])}
        write_safetensors(self.dir / "a", a)
        write_safetensors(self.dir / "r", r)
        findings = {f["name"]: f for f in self.reports(1, "diff", "a", "r")}
        self.assertEqual({f["verdict"] for f in findings.values()}, {"failed", "not comparable", "passed", "missing actual"})
        self.assertEqual(findings["nan"]["actual_value"], "nan")
        self.assertNotIn("metrics", findings["shape"])

    def test_diff_by_statistics(self):
        faulty = self.reports(1, "diff", DATA / "statistics" / "faulty", DATA / "statistics" / "tensor")[0]
        self.assertEqual((faulty["verdict"], faulty["actual_dtype"], faulty["shape"]), ("failed", "float32", [20, 50]))
        self.assertGreater(faulty["error_over_allowed"], 1)
        self.assertEqual(len(faulty["statistics"]), 4)
        self.assertNotIn("metrics", faulty)

    def test_check_with_proof(self):
        self.reports(0, "check", CASES / "matmul", CASES / "rms_norm", "--prove")

    def test_trouble(self):
        (self.dir / "case").mkdir()
        (self.dir / "case" / "case.json").write_text("{")
        self.assertEqual([f["verdict"] for f in self.reports(2, "check", "case")], ["unreadable"])

    def test_a_key_that_is_not_declared_is_seen(self):
        with self.assertRaises(jsonschema.ValidationError):
            self.line["summary"].validate({"exit_status": 0, "counts": {}, "first_failure": None, "seconds": 0, "notes": []})
        finding = self.reports(1, "diff", DEMO / "faulty", DEMO / "reference")[0]
        with self.assertRaises(jsonschema.ValidationError):
            self.line["finding"].validate({**finding, "new_key": 1})


if __name__ == "__main__":
    unittest.main()
