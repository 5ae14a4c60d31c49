"""`assay plan`."""
import re
import unittest

from program import Test

LARGE = ["--model", "telechat3-438b", "--devices", "4096", "--memory-per-device", "60"]


class Plan(Test):
    def test_the_stages_of_4096_devices_are_few_and_small_and_align_takes_them(self):
        plan = self.dir / "plan.toml"
        out = self.expect(0, "plan", *LARGE, "-o", plan).out
        self.assertRegex(out, r"(?m)^\d+ valid strategies, \d+ of them fit into 60 GiB; the fastest 8:$")
        self.assertRegex(out, r"they have (\d+) of \1 paths of these strategies, and no fewer stages do\n$")
        listed = self.expect(0, "align", plan, "--plan-only").out
        stages = re.findall(r"(?m)^  \S.{25} +(\d+) +\d+ +\d+ +\d+ +[\d.]+", listed)
        self.assertLessEqual(len(stages), 40)
        self.assertGreaterEqual(len(stages), 10)
        self.assertLessEqual(max(map(int, stages)), 16)
        # The parts of memory and of time are the whole.
        for whole, *parts in re.findall(r"(?m)^ +([\d.]+)" + r" +([\d.]+)" * 5 + r"  +[\d.]+", out):
            self.assertAlmostEqual(float(whole), sum(map(float, parts)), delta=0.3)

    def test_a_change_yields_the_stages_that_it_touches(self):
        words = ["--model", "telechat3-438b", "--parallel", "tp=8,sp=1,dp=2,zero=1,pp=4,recompute=full", "--sequences", "16"]
        plan = self.dir / "plan.toml"
        self.expect(0, "plan", *words, "--changed", "pp=2:pp=4", "-o", plan)
        strategies = re.findall(r"(?m)^parallel = '(.*)'$", plan.read_text())
        self.assertTrue(strategies)
        for strategy in strategies:
            self.assertIn("pp=", strategy)

    def test_what_runs_passes(self):
        plan = self.dir / "plan.toml"
        self.expect(0, "plan", "--model", "qwen3-moe-tiny,layers=1", "--parallel", "tp=2,sp=1", "--length", "4", "-o", plan)
        out = self.expect(0, "align", plan, "--work", self.dir / "work").out
        self.assertRegex(out, r"PASS  (\d+) stages: \1 passed, 0 failed")

    def test_stages_are_balanced(self):
        words = ["--model", "telechat3-438b", "--parallel", "tp=4,sp=1,dp=16,zero=1,pp=8,ep=16", "--sequences", "1024"]
        out = self.expect(0, "plan", *words, "--memory-per-device", "45", "--balance").out
        layers = re.search(r"layers of the stages: (.*)", out).group(1).split("; ")
        self.assertEqual(len(layers), 8)
        self.assertEqual(sum(int(stage.split()[0]) for stage in layers), 54)
        self.trouble("plan", *words, "--memory-per-device", "20", "--balance", says="no cut of 'tp=4,sp=1,dp=16,zero=1,pp=8,ep=16' that fits into 20 GiB")

    def test_what_is_wrong_is_trouble(self):
        model = ["plan", "--model", "telechat3-438b"]
        self.trouble(*model, says="expected --devices and --memory-per-device")
        self.trouble(*model, "--devices", "8", "--memory-per-device", "10", says="valid strategies fits into 10 GiB of a device: the smallest needs 942.3; expected more --devices")
        self.trouble(*model, "--devices", "61", "--memory-per-device", "10", "--sequences", "3", says="no strategy of 61 devices is valid")
        self.trouble(*model, "--parallel", "tp=3", says="--parallel 'tp=3': 128 attention heads do not divide over tp = 3")
        self.trouble(*model, "--parallel", "tp=8", "--devices", "16", says="--parallel 'tp=8': has 8 ranks; expected 16")
        self.trouble(*model, "--parallel", "tp=8", "--balance", says="--balance needs --memory-per-device")
        self.trouble(*model, "--parallel", "tp=8", "--changed", "cp=1:cp=2", says="none of the 1 strategies uses cp")
        self.trouble(*model, "--parallel", "tp=8", "--changed", "tp=4", says="has no ':'")
        self.trouble("plan", "--model", "none", "--devices", "8", "--memory-per-device", "10", says="'none' is no model")


if __name__ == "__main__":
    unittest.main()
