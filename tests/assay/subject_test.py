#!/usr/bin/env python3
"""Drives `assay align` with subjects that are not ours and get into trouble.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/subject_test.py
"""
import json
import os
import signal
import sys
import time
import unittest
from pathlib import Path

from program import Test, write_safetensors
from trainer import write_manifest, write_rank

TRAINER = f"{sys.executable} {Path(__file__).with_name('trainer.py')}"
STAGES = ('name = "single"', 'parallel = "tp=2"', 'parallel = "dp=2"')


class Subject(Test):
    def plan(self, trouble="", command=TRAINER, stages=STAGES, file="plan.toml", **settings):
        lines = ["[subject]", f"command = \"{command} '{trouble}' {{dump}} {{tp}}\""]
        lines += [f"{key} = {value}" for key, value in ({"timeout": 20} | settings).items()]
        lines += ["[reference]", f"command = \"{TRAINER} '' {{dump}} {{tp}}\""]
        lines += [line for stage in stages for line in ("[[stage]]", stage)]
        (self.dir / file).write_text("\n".join(lines) + "\n")
        return file

    def align(self, status, *words):
        return self.expect(status, "align", *words, "--work", "work").out

    def has_trouble(self, trouble, says, **settings):
        """The stage with the trouble says so in one line, and those behind it run all the same."""
        with self.subTest(trouble):
            out = self.align(2, self.plan(trouble, **settings))
            self.assertIn("\nTROUBLE  3 stages: 2 passed, 0 failed, 1 trouble; ", out)
            line = next(line for line in out.splitlines() if line.startswith("  tp "))
            self.assertRegex(line, f"^  tp +2  trouble: {says}")

    def test_one_that_works(self):
        out = self.align(0, self.plan())
        self.assertIn("the subject's model to dp=2: 3 stages, exact; subject ", out)
        self.assertIn("\nPASS  3 stages: 3 passed, 0 failed; ", out)

    def test_a_folder_with_a_space(self):
        command = f"'''{TRAINER} '' %s {{tp}}'''"
        right = command % '"{dump}"'
        for subject, status in ((command % "{dump}", 2), (right, 0)):
            plan = f"[subject]\ncommand = {subject}\n[reference]\ncommand = {right}\n[[stage]]\nparallel = 'tp=2'\n"
            (self.dir / "plan.toml").write_text(plan)
            out = self.expect(status, "align", "plan.toml", "--work", "my work").out
            self.assertEqual("the shell would take " in out, status == 2, out)

    def test_one_that_ends_badly(self):
        self.has_trouble("exits", "crashed: exited with status 1; its first error: RuntimeError: no data; all of it: work/tp/output.txt$")
        self.has_trouble("status", "crashed: exited with status 3; its last line: no data; all of it: work/tp/output.txt$")
        self.has_trouble("killed", r"crashed: exited with status 137 \(signal 9, Killed\); its last line: ")
        self.has_trouble("nothing", "no dump: ended well, but wrote no dump to work/tp/dump; its last line: none; ")

    def test_one_that_hangs(self):
        self.has_trouble("hangs", "timed out: did not end within 2 s and was ended; its last line: step 0; all of it: ", timeout=2)

    def test_one_that_hangs_leaves_no_rank_behind(self):
        launcher = self.dir / "launcher.py"
        launcher.write_text("import pathlib, signal, subprocess, sys, time\n"
                            "rank = subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
                            f"pathlib.Path({str(self.dir / 'rank')!r}).write_text(str(rank.pid))\n"
                            "def end(*_):\n    time.sleep(0.5)\n    rank.kill()\n    sys.exit(1)\n"
                            "signal.signal(signal.SIGTERM, end)\ntime.sleep(100)\n")
        self.align(2, self.plan(command=f"{sys.executable} {launcher}", stages=['parallel = "tp=2"'], timeout=2))
        rank = int((self.dir / "rank").read_text())
        time.sleep(0.5)
        try:
            state = Path(f"/proc/{rank}/stat").read_text().split()[2]
        except FileNotFoundError:
            state = "gone"
        if state not in ("gone", "Z"):
            os.kill(rank, signal.SIGKILL)
        self.assertIn(state, ("gone", "Z"))

    def test_half_a_dump(self):
        self.has_trouble("no rank", "work/tp/dump: rank 1 of 2 has no file: the dump is incomplete, expected ")
        self.has_trouble("no tensors", "work/tp/dump/rank00001.safetensors: cannot be opened: No such file")
        self.has_trouble("cut tensors", "work/tp/dump/rank00001.safetensors: the tensors end at byte [0-9]+, but the file has [0-9]+: it is truncated")
        self.has_trouble("cut index", "work/tp/dump/rank00001.jsonl: the last line is cut off: the file is truncated$")
        self.has_trouble("cut at a line", "its dump is not whole: work/tp/dump/rank00001.safetensors: tensor 't1' has no line in an index$")
        self.has_trouble("unfinished", "its dump is not whole: work/tp/dump: the recording did not finish: rank 0 of 2 has 2 tensors, ")

    def test_other_names_in_one_stage(self):
        self.has_trouble("names", r"its tensors have other names: 2 of them the reference lacks, first 'block.1 input x \(step 0, micro-batch 0, forward\)', "
                                  "and 2 of the reference's it lacks, first 'layers.1 input x ")

    def test_nan_is_a_failure(self):
        out = self.align(1, self.plan("nan"))
        self.assertIn("\n  tensor     layers.1 output y (step 0, micro-batch 0, forward)\n"
                      "  because    1 of 4 elements are NaN: nothing recorded before it is, in this micro-batch\n"
                      "  origin     created here: 1 of 4 elements are not 2 times layers.1 input x (step 0, micro-batch 0, forward), "
                      "as they are in the reference\n"
                      "  smallest   tp fails; these pass: a single device\n", out)
        self.assertIn("\nFAIL  3 stages: 2 passed, 1 failed; ", out)

    def test_stages_without_a_target_are_taken_back_one_strategy_at_a_time(self):
        out = self.align(1, self.plan("wrong", stages=['name = "single"', 'parallel = "tp=2,dp=2"']))
        self.assertIn("\ntp: first wrong in forward, step 0, micro-batch 0\n", out)
        self.assertIn("\n  smallest   tp fails; these pass: a single device\n", out)

    def test_stages_that_no_program_can_run_are_not_built(self):
        out = self.align(0, self.plan(stages=[]), "--parallel", "dp=2,ep=2", "--plan-only")
        names = [line[2:27].strip() for line in out.splitlines()[4:-1]]
        self.assertEqual(names, ["single device", "dp", "dp + ep", "full, more ranks"])

    def test_a_command_in_a_folder_of_its_own(self):
        (self.dir / "mine").mkdir()
        self.align(0, self.plan(file="mine/plan.toml", directory='"."'))
        self.assertEqual([p.name for p in (self.dir / "mine").iterdir()], ["plan.toml"])
        self.trouble("align", self.plan(directory='"nowhere"'), "--work", "work", says="is to run in nowhere, which is no folder")

    def test_a_gradient_is_not_blamed_for_ranks_that_disagree_before_it(self):
        """Each rank hands another grad_output back; what linear makes of it is cut over both."""
        one = {"module": "down", "op": "linear", "placements": ["Replicate()"]}
        cut = one | {"placements": ["Shard(dim=1)"], "phase": "backward", "micro_batch": -1, "slot": "grad", "global_shape": [1, 2]}

        def write(dump, parts):
            write_manifest(dump, len(parts))
            for rank, (w, handed_back) in enumerate(parts):
                n = len(w)
                grad = [x * handed_back for x in w]
                fields = {"global_shape": [1, 2], "placements": ["Shard(dim=1)"]}
                write_rank(dump, rank, [
                    (one | fields | {"micro_batch": -1, "slot": "param", "arg": "weight"}, [1, n], [1] * n),
                    (one | fields | {"slot": "input", "arg": "x"}, [1, n], w),
                    (one | {"slot": "output", "arg": "y"}, [1, 1], [3]),
                    (one | {"phase": "backward", "slot": "grad_output", "arg": "y"}, [1, 1], [handed_back]),
                    (cut | {"arg": "weight.unreduced"}, [1, n], grad), (cut | {"arg": "weight"}, [1, n], grad)])

        write(self.dir / "reference", [([1, 2], 1)])
        write(self.dir / "actual", [([1], 3), ([2], 5)])
        out = self.expect(1, "diff", "actual", "reference", "--all").out
        self.assertIn("\n6 compared: 3 passed, 1 failed, 2 inherited; 0 not compared\n", out)

    def test_the_loss_of_pytorch_is_replayed(self):
        for dump, loss in (("reference", 1.0986123), ("actual", 2.1972246)):
            write_manifest(self.dir / dump, 1)
            tensors = [("input", "input", "float32", [1, 3], [1, 1, 1]), ("input", "target", "int64", [1], [2]), ("output", "y", "float32", [], [loss])]
            write_safetensors(self.dir / dump / "rank00000.safetensors", {arg: (dtype, shape, values) for _, arg, dtype, shape, values in tensors})
            lines = [{"seq": i, "step": 0, "micro_batch": 0, "phase": "forward", "module": "loss", "op": "CrossEntropyLoss", "slot": slot, "arg": arg,
                      "dtype": dtype, "shape": shape, "data": {"file": "rank00000.safetensors", "name": arg}}
                     for i, (slot, arg, dtype, shape, _) in enumerate(tensors)]
            (self.dir / dump / "rank00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = self.expect(1, "diff", "actual", "reference").out
        self.assertIn("origin    created here: cross_entropy on its own recorded inputs", out)


if __name__ == "__main__":
    unittest.main()
