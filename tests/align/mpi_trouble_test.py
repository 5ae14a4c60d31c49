#!/usr/bin/env python3
"""What becomes of a job of mpirun when one of its ranks gets into trouble: it ends, and says why once.

    MPIRUN="mpirun --oversubscribe -n" TROUBLE=build/dev/tests/align/mpi_trouble python3 tests/align/mpi_trouble_test.py
"""
import os
import subprocess
import unittest

WAITING = "assay: rank [023] has waited {} ms in second for others: rank 0 waits in second; rank 1 {}; rank 2 waits in second; rank 3 waits in second"
LOST = "assay: rank [023] waits in {}, and rank 1 does not answer: rank 0 {}; rank 1 does not answer; rank 2 {}; rank 3 {}"
TEN_MINUTES = "600000"  # patience, far above the timeout


def launch(*words):
    done = subprocess.run([*os.environ["MPIRUN"].split(), "4", os.environ["TROUBLE"], *words], capture_output=True, text=True, timeout=60)
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("assay: ")]


class Trouble(unittest.TestCase):
    def expect_said(self, pattern, *words):
        status, said = launch(*words)
        self.assertEqual((status, len(said)), (2, 1), said)
        self.assertRegex(said[0], f"^{pattern}$")

    def test_what_a_rank_throws_is_said_once(self):
        self.assertEqual(launch("throws"), (2, ["assay: rank 1: w is not finite"]))

    def test_a_killed_rank_ends_all(self):
        self.assertEqual(launch("killed"), (128 + 9, []))

    def test_a_rank_that_exits_ends_all(self):
        self.assertEqual(launch("exits"), (1, []))

    def test_a_stopped_rank_is_named_and_ends_all(self):
        self.expect_said(WAITING.format(500, "does not answer"), "stopped")

    def test_a_stopped_rank_is_named_within_seconds_whatever_the_patience(self):
        self.expect_said(LOST.format("second", *3 * ["waits in second"]), "stopped", TEN_MINUTES)

    def test_a_stopped_rank_for_which_nobody_waits_is_named_too(self):
        self.expect_said(LOST.format("the end of all", *3 * ["is done"]), "stopped-alone", TEN_MINUTES)

    def test_a_rank_that_is_stopped_when_it_is_done_is_named_too(self):
        self.expect_said(LOST.format("the end of all", *3 * ["is done"]), "stopped-when-done", TEN_MINUTES)

    def test_a_rank_that_computes_without_end_is_named_and_ends_all(self):
        self.expect_said(WAITING.format(500, "computes behind first"), "computes")

    def test_questions_do_not_prolong_the_patience(self):
        self.expect_said(WAITING.format(4000, "computes behind first"), "computes", "4000")  # one is asked after 3 s

    def test_a_rank_that_computes_for_long_is_waited_for(self):
        self.assertEqual(launch("computes-for-long", TEN_MINUTES), (0, []))

    def test_another_program_is_no_rank(self):
        self.assertEqual(launch("stranger"), (2, ["assay: rank 1 runs another version of assay; expected the same program on every machine"]))

    def test_a_letter_that_cannot_be_read_while_the_rank_computes_ends_all(self):
        self.expect_said("assay: rank 0: Failed to read 1 bytes .+", "garbled", TEN_MINUTES)


if __name__ == "__main__":
    unittest.main()
