"""`assay hypotheses`."""
import json
import unittest

from program import Test


class Hypotheses(Test):
    def rows(self, op):
        return json.loads(self.expect(0, "hypotheses", op, "--json").out)["hypotheses"]

    def test_every_operator_has_rows_with_a_source(self):
        for op in json.loads(self.expect(0, "ops", "--json").out):
            rows = self.rows(op["name"])
            self.assertEqual([r["admissible"] for r in rows], sorted((r["admissible"] for r in rows), reverse=True))
            out = self.expect(0, "hypotheses", op["name"]).out
            self.assertTrue(out.startswith(f"{op['name']}: {op['math']}\n"))
            for row in rows:
                self.assertTrue(row["source"], row)
                self.assertIn(row["what"], out)

    def test_a_value_that_was_seen_is_a_row_of_both_verbs(self):
        seen = 0
        for op in json.loads(self.expect(0, "ops", "--json").out):
            for attribute in op["attributes"]:
                rows = [r for r in self.rows(op["name"]) if r["what"].startswith(f"{attribute['name']} = ")]
                for row in attribute.get("seen", []):
                    seen += 1
                    named = [r for r in rows if r["source"].endswith(row["who"])]
                    self.assertIn(row["value"], [json.loads(r["what"].split(" = ")[1]) for r in named])
        self.assertGreater(seen, 30)

    def test_the_default_comes_first_and_every_value_once(self):
        eps = [r for r in self.rows("rms_norm") if r["what"].startswith("eps = ")]
        self.assertEqual(eps[0], {"admissible": True, "kind": "attribute", "what": "eps = 1e-5",
                                  "source": "the default; TeleChat3, Llama"})
        self.assertEqual(len({r["what"] for r in eps}), len(eps))

    def test_an_alias_is_the_operator(self):
        self.assertEqual(self.expect(0, "hypotheses", "torch.nn.RMSNorm").out, self.expect(0, "hypotheses", "rms_norm").out)

    def test_an_unknown_operator_is_trouble(self):
        self.trouble("hypotheses", "rms_nrom", says="there is no operator 'rms_nrom'; did you mean 'rms_norm'?")


if __name__ == "__main__":
    unittest.main()
