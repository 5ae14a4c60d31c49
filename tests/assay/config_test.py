"""`assay config`, and the files of a plan's [configuration]."""
import json
import sys
import unittest
from pathlib import Path

from program import DATA, Test

SAMPLES = DATA / "config"
TRAINER = f"{sys.executable} {Path(__file__).with_name('trainer.py')}"


class Config(Test):
    def test_keys_of_two_frameworks_are_compared(self):
        out = self.expect(1, "config", SAMPLES / "megatron.sh", SAMPLES / "mindformers.yaml").out
        self.assertRegex(out, r"(?m)^changes the numbers:\n  rms_norm_eps +1e-06 \(megatron.sh:34\) \| 1e-05 \(mindformers.yaml:63\)  each norm's output is scaled")
        self.assertRegex(out, r"(?m)^changes only the order of sums:\n(  .*\n)*  tensor_model_parallel_size +2 \(megatron.sh:65\) \| 8 ")
        self.assertRegex(out, r"\nDIFFERS  4 change the numbers, 0 are not known, ")

    def test_what_is_accepted_is_no_finding(self):
        words = ["config", SAMPLES / "megatron.sh", SAMPLES / "mindformers.yaml"]
        for key in ("rms_norm_eps", "hidden_*", "params_dtype", "data_seed"):
            words += ["--accept", key]
        out = self.expect(0, *words).out
        self.assertIn("accepted: each norm's output is scaled", out)
        self.assertIn("\nAGREES  0 change the numbers, 0 are not known, ", out)
        self.trouble(*words, "--accept", "lr", says="'lr' is accepted and does not differ")

    def test_json_is_one_object(self):
        report = json.loads(self.expect(1, "config", SAMPLES / "tokenizer", SAMPLES / "tokenizer_other", "--json").out)
        self.assertFalse(report["agrees"])
        self.assertEqual(report["rows"][0]["key"], "tokenizer.ids")
        self.assertEqual(report["rows"][0]["changes"], "numbers")

    def test_a_configuration_agrees_with_itself(self):
        for name in ("megatron.sh", "mindformers.yaml", "config.json", "torchtitan.toml", "tokenizer"):
            self.expect(0, "config", SAMPLES / name, SAMPLES / name)

    def test_what_is_wrong_is_trouble(self):
        (self.dir / "bad.yaml").write_text("runner_config:\n  a: 1\n  a: 2\n")
        (self.dir / "text.txt").write_text("hello\n")
        (self.dir / "empty").mkdir()
        right = SAMPLES / "config.json"
        self.trouble("config", "bad.yaml", right, says="bad.yaml:3: 'a' stands twice, first in line 2")
        self.trouble("config", "text.txt", right, says="text.txt: is of no known kind; expected a config.json")
        self.trouble("config", "empty", right, says="empty: has no file of a known kind")
        self.trouble("config", "none", right, says="none")
        self.trouble("config", SAMPLES / "tokenizer", right, says="have nothing to compare")

    def plan(self, subject, *accepted):
        accept = f"accept = {json.dumps(accepted)}\n" if accepted else ""
        side = f"command = \"{TRAINER} '' {{dump}} {{tp}}\"\n"
        files = f"[configuration]\nsubject = {subject}\nreference = [\"r.json\"]\n{accept}"
        (self.dir / "plan.toml").write_text(f"[subject]\n{side}[reference]\n{side}{files}[[stage]]\nname = 'single'\n")
        return ["align", "plan.toml", "--work", "work", "--json", "report.json", "--junit", "j.xml", "--html", "page.html"]

    def report(self):
        return json.loads((self.dir / "report.json").read_text())

    def test_where_a_key_of_a_plans_files_differs_nothing_runs(self):
        model = {"model_type": "llama", "num_hidden_layers": 2, "rms_norm_eps": 1e-5}
        (self.dir / "r.json").write_text(json.dumps(model))
        (self.dir / "s.json").write_text(json.dumps(model | {"rms_norm_eps": 1e-6}))
        out = self.expect(1, *self.plan("'s.json'")).out
        self.assertIn("rms_norm_eps: 1e-06 (s.json: rms_norm_eps) | 1e-05 (r.json: rms_norm_eps)  each norm's output is scaled", out)
        self.assertRegex(out, r"\nFAIL  0 stages: 0 passed, 0 failed; ")
        self.assertFalse((self.dir / "work" / "single").exists())
        self.assertEqual([(c["what"], c["passed"]) for c in self.report()["configuration"]], [("rms_norm_eps", False), ("configuration files", True)])
        self.assertIn('<testcase classname="align.configuration files" name="rms_norm_eps">', (self.dir / "j.xml").read_text())
        self.assertIn("each norm&#39;s output is scaled", (self.dir / "page.html").read_text())
        self.assertIn("rms_norm_eps: 1e-06 (s.json", self.expect(0, "align", "plan.toml", "--plan-only").out)
        out = self.expect(0, *self.plan("'s.json'", "rms_norm_eps")).out
        self.assertIn("rms_norm_eps: accepted: ", out)
        self.assertRegex(out, r"\nPASS  1 stages: 1 passed, 0 failed; ")
        self.assertTrue(self.report()["configuration"][0]["accepted"])

    def test_a_plans_files_are_checked(self):
        (self.dir / "r.json").write_text('{"model_type": "llama"}')
        self.trouble(*self.plan("[]"), says="plan.toml:5: has the configuration of one side; expected files of 'subject' and of 'reference'")
        self.trouble(*self.plan("3"), says="'subject' is something else; expected a list of texts")
        self.assertEqual(self.expect(2, *self.plan("'none.json'")).err.count("none.json"), 1)

    def test_other_bits_on_a_rerun_are_a_finding(self):
        # 1e-6 is within the tolerance, and not the same bits.
        (self.dir / "unsteady.py").write_text(
            "import sys, random\nsys.path.insert(0, %r)\nfrom trainer import write_manifest, write_rank\n"
            "dump = sys.argv[1]\nwrite_manifest(dump, 1)\n"
            "x = 1 + random.choice([1, 2, 3, 4]) * 2.0**-22 if dump.count('again') else 1.0\n"
            "write_rank(dump, 0, [({'module': 'm', 'slot': 'output', 'arg': 'y'}, [2], [x, 2.0])])\n" % str(Path(__file__).parent))
        command = f"command = \"{sys.executable} {self.dir}/unsteady.py {{dump}}\"\n"
        (self.dir / "plan.toml").write_text(f"precision = 'fp32'\n[subject]\n{command}[reference]\n{command}[[stage]]\nname = 'single'\n")
        words = ["align", "plan.toml", "--work", "work"]
        out = self.expect(1, *words).out
        self.assertRegex(out, r"\ndeterminism: other bits in 1 of 1 tensors on a rerun, first m output y")
        self.assertRegex(out, r"\nFAIL  1 stages: 1 passed, 0 failed; ")
        out = self.expect(0, *words, "--accept-nondeterminism").out
        self.assertIn("\ndeterminism: accepted: other bits in 1 of 1 tensors", out)
        self.expect(1, *words)  # and the next run does not take it for passed
        plan = (self.dir / "plan.toml").read_text()
        (self.dir / "plan.toml").write_text("accept_nondeterminism = true\n" + plan)
        self.expect(0, *words)


if __name__ == "__main__":
    unittest.main()
