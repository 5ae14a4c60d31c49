#!/usr/bin/env python3
"""What becomes of a job of mpirun when one of its ranks gets into trouble: it ends, and says why once.

    MPIRUN="mpirun --oversubscribe -n" TROUBLE=build/dev/tests/align/mpi_trouble python3 tests/align/mpi_trouble_test.py
"""
import os
import subprocess
import unittest

WAITING = "assay: rank [023] has waited 500 ms in second for others: rank 0 waits in second; rank 1 {}; rank 2 waits in second; rank 3 waits in second"


def launch(trouble):
    done = subprocess.run([*os.environ["MPIRUN"].split(), "4", os.environ["TROUBLE"], trouble], capture_output=True, text=True, timeout=60)
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("assay: ")]


class Trouble(unittest.TestCase):
    def expect_said(self, trouble, pattern):
        status, said = launch(trouble)
        self.assertEqual((status, len(said)), (2, 1), said)
        self.assertRegex(said[0], f"^{pattern}$")

    def test_what_a_rank_throws_is_said_once(self):
        self.assertEqual(launch("throws"), (2, ["assay: rank 1: w is not finite"]))

    def test_a_killed_rank_ends_all(self):
        self.assertEqual(launch("killed"), (128 + 9, []))

    def test_a_rank_that_exits_ends_all(self):
        self.assertEqual(launch("exits"), (1, []))

    def test_a_stopped_rank_is_named_and_ends_all(self):
        self.expect_said("stopped", WAITING.format("does not answer"))

    def test_a_stopped_rank_for_which_nobody_waits_is_named_too(self):
        self.expect_said("stopped-alone", "assay: rank [023] has waited 500 ms in the end of all for others: rank 0 is done; rank 1 does not answer; rank 2 is done; rank 3 is done")

    def test_a_rank_that_computes_without_end_is_named_and_ends_all(self):
        self.expect_said("computes", WAITING.format("computes behind first"))

    def test_another_program_is_no_rank(self):
        self.assertEqual(launch("stranger"), (2, ["assay: rank 1 runs another version of assay; expected the same program on every machine"]))

    def test_a_letter_that_cannot_be_read_while_the_rank_computes_ends_all(self):
        self.expect_said("garbled", "assay: rank 0: Failed to read 1 bytes .+")


if __name__ == "__main__":
    unittest.main()
