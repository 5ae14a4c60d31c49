"""`assay ops`."""
import json
import unittest

from program import Test, some


class Ops(Test):
    def test_lists_and_describes(self):
        names = [line.split()[0] for line in self.expect(0, "ops").out.splitlines()]
        listed = json.loads(self.expect(0, "ops", "--json").out)
        self.assertEqual([o["name"] for o in listed], names)
        markdown = self.expect(0, "ops", "--markdown").out
        for op in some(listed):
            out = self.expect(0, "ops", op["name"]).out
            self.assertTrue(out.startswith(f"{op['name']}: {op['math']}\n"))
            self.assertIn(f"\n## {op['name']}\n", markdown)
            for alias in op["aliases"][:1]:  # a process each
                self.assertEqual(self.expect(0, "ops", alias).out, out)

    def test_one_operator_as_json(self):
        self.assertEqual([o["name"] for o in json.loads(self.expect(0, "ops", "rms_norm", "--json").out)], ["rms_norm"])
        markdown = self.expect(0, "ops", "rms_norm", "--markdown").out
        self.assertIn("## rms_norm", markdown)
        self.assertNotIn("## matmul", markdown)

    def test_counts_are_read_off(self):
        listed = {o["name"]: o for o in json.loads(self.expect(0, "ops", "--json").out)}
        count = {a["name"]: a.get("accumulation_count") for a in listed["rms_norm"]["args"]}
        self.assertEqual(count["y"], "C")


if __name__ == "__main__":
    unittest.main()
