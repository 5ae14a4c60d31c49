#!/usr/bin/env python3
"""Drives `assay diff` and `assay replay` under mpirun.

    ASSAY=build/dev/tools/assay/assay ASSAY_TEST_DATA=tests/data python3 tests/assay/mpi_test.py
"""
import re
import shutil
import subprocess
import unittest

from program import ASSAY, DATA, Test, environment, large, run, write_safetensors

# CI runs as root in a container, and has fewer cores than processes.
# Open MPI leaves memory behind: no matter of ours in a build with sanitizers.
# On one machine it needs no network, of whose interfaces version 5 may complain.
QUIET = {"ASAN_OPTIONS": "detect_leaks=0", "OMPI_MCA_btl": "^tcp"}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]


def launch(processes, *words, cwd, **env):
    done = subprocess.run([*MPIRUN, str(processes), ASSAY, *words], capture_output=True, text=True, cwd=cwd,
                          env=environment(**QUIET, **env), timeout=300)
    # What mpirun itself says of an exit status stands between rules.
    return done.returncode, re.sub(r"^-{60,}\n.*?^-{60,}\n", "", done.stdout + done.stderr, flags=re.M | re.S)


@unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
class Mpi(Test):
    def setUp(self):
        super().setUp()
        tensors = {f"layers.{i}.mlp": ("float32", [i + 1], [float(k) for k in range(i + 1)]) for i in range(40)}
        write_safetensors(self.dir / "r.safetensors", tensors)
        tensors["layers.3.mlp"] = ("float32", [4], [0.0, 2.0, 4.0, 6.0])
        tensors["layers.30.mlp"] = ("float32", [31], [float("nan")] * 31)
        del tensors["layers.20.mlp"]
        write_safetensors(self.dir / "a.safetensors", tensors)

    def test_the_report_is_that_of_one_process(self):
        reports = ["r.json", "r.jsonl", "r.csv", "r.xml", "r.md", "r.html"]
        words = ["diff", "../a.safetensors", "../r.safetensors", "--color", "never", "--json", "r.json", "--jsonl", "r.jsonl",
                 "--csv", "r.csv", "--junit", "r.xml", "--markdown", "r.md", "--html", "r.html"]
        for processes in (1, 2, 3):
            folder = self.dir / str(processes)
            folder.mkdir()
            if processes == 1:
                alone = run(*words, cwd=folder)
                self.assertEqual(alone.returncode, 1)
                continue
            self.assertEqual(launch(processes, *words, cwd=folder), (1, alone.out))
            for name in reports:
                one, many = (re.sub(r'("seconds":|time=")[-+.e0-9]+|[-+.e0-9]+ s, exit', r"\1", (self.dir / n / name).read_text()) for n in ("1", str(processes)))
                self.assertEqual(many, one, name)
        self.assertEqual(launch(2, "diff", "r.safetensors", "r.safetensors", cwd=self.dir)[0], 0)

    def test_trouble_is_said_once(self):
        status, text = launch(2, "diff", "nowhere", "r.safetensors", cwd=self.dir)
        self.assertEqual((status, text), (2, "assay: nowhere: no such file or folder\n"))
        status, text = launch(2, "diff", "a.safetensors", "r.safetensors", "--json", "/nowhere/r.json", cwd=self.dir)
        self.assertEqual((status, text), (2, "assay: --json /nowhere/r.json: cannot be written (No such file or directory)\n"))

    def test_trouble_on_the_way_is_said_before_all_end(self):
        status, text = launch(2, "diff", "a.safetensors", "r.safetensors", "--github", cwd=self.dir, GITHUB_STEP_SUMMARY="/nowhere/summary")
        self.assertEqual(status, 2)
        self.assertIn("assay: GITHUB_STEP_SUMMARY /nowhere/summary: ", text)

    @large
    def test_a_replay_has_the_bits_of_its_ranks_as_threads(self):
        words = ["replay", "--model", str(DATA / "models" / "latent.toml"), "--precision", "exact", "--micro-batches", "4", "--sequences", "2",
                 "--length", "8", "--steps", "2"]
        single = run(*words, cwd=self.dir).out
        self.assertEqual(len(single.splitlines()), 2)
        for processes, strategy in ((2, "tp=2,sp=1"), (2, "pp=2,schedule=zero-bubble"), (4, "cp=2,context=ulysses,dp=2,zero=3"),
                                    (4, "dp=4,ep=4,dispatch=hierarchical,node=2"), (8, "tp=2,pp=2,dp=2,ep=4")):
            self.assertEqual(launch(processes, *words, "--parallel", strategy, cwd=self.dir), (0, single), strategy)
        words += ["--parallel", "tp=2,dp=2,ep=2", "--dump"]
        self.assertEqual(run(*words, "threads", cwd=self.dir).out, single)
        self.assertEqual(launch(4, *words, "processes", cwd=self.dir), (0, single))
        same = run("diff", "processes", "threads", "--tolerance", "bitwise", cwd=self.dir)
        self.assertEqual(same.returncode, 0, same.out)

    def test_a_dump_that_cannot_be_written_ends_all_at_once(self):
        (self.dir / "full").mkdir()
        (self.dir / "full" / "x").write_text("")
        status, text = launch(2, "replay", "--model", "qwen3-moe-tiny", "--parallel", "tp=2", "--dump", "full", cwd=self.dir)
        self.assertEqual(status, 2)
        self.assertRegex(text, r"\Aassay: rank 0: full: .*not empty.*\n\Z")

    def test_a_replay_of_another_size_is_refused_once(self):
        status, text = launch(2, "replay", "--model", "qwen3-moe-tiny", "--parallel", "tp=2,dp=2", "--micro-batches", "2", cwd=self.dir)
        self.assertEqual((status, text), (2, "assay: mpirun has started 2 processes; --parallel 'tp=2,dp=2' has 4 ranks\n"))

    def test_a_launcher_of_another_mpi_is_no_single_process(self):
        done = run("diff", "r.safetensors", "r.safetensors", cwd=self.dir, PMI_SIZE="3", **QUIET)
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("the launcher started 3 processes, this assay's MPI sees 1", done.err)

    def test_alone_in_each_process(self):
        status, text = launch(2, "diff", "r.safetensors", "r.safetensors", "--alone", cwd=self.dir)
        self.assertEqual((status, text.count("40 compared: 40 passed")), (0, 2))


if __name__ == "__main__":
    unittest.main()
