#!/usr/bin/env python3
"""What becomes of a job of mpirun when one of its ranks gets into trouble: it ends, and says why once.

    MPIRUN="mpirun --oversubscribe -n" TROUBLE=build/dev/tests/align/mpi_trouble python3 tests/align/mpi_trouble_test.py
"""
import concurrent.futures
import os
import signal
import subprocess
import unittest

WAITING = "assay: rank [023] has waited {} ms in second for others: rank 0 waits in second; rank 1 {}; rank 2 waits in second; rank 3 waits in second"
LOST = "assay: rank [023] waits in {}, and rank 1 does not answer: rank 0 {}; rank 1 does not answer; rank 2 {}; rank 3 {}"
TEN_MINUTES = "600000"  # patience, far above the timeout
VERSION = "assay: rank 1 runs another version of assay; expected the same program on every machine"

# What happens, the words of mpi_trouble, the exit status and what is said, if anything.
CASES = [
    ("what a rank throws is said once", ["throws"], 2, "assay: rank 1: w is not finite"),
    ("a killed rank ends all", ["killed"], 128 + 9, None),
    ("a rank that exits ends all", ["exits"], 1, None),
    ("a stopped rank is named and ends all", ["stopped"], 2, WAITING.format(500, "does not answer")),
    ("a stopped rank is named within seconds whatever the patience", ["stopped", TEN_MINUTES], 2,
     LOST.format("second", *3 * ["waits in second"])),
    ("a stopped rank for which nobody waits is named, too", ["stopped-alone", TEN_MINUTES], 2, LOST.format("the end of all", *3 * ["is done"])),
    ("a rank that is stopped when it is done is named, too", ["stopped-when-done", TEN_MINUTES], 2, LOST.format("the end of all", *3 * ["is done"])),
    ("a rank that computes without end is named and ends all", ["computes"], 2, WAITING.format(500, "computes behind first")),
    ("questions do not prolong the patience: one is asked after 3 s", ["computes", "4000"], 2, WAITING.format(4000, "computes behind first")),
    ("a rank that computes for long is waited for", ["computes-for-long", TEN_MINUTES], 0, None),
    ("another program is no rank", ["stranger"], 2, VERSION),
    ("a letter that cannot be read while the rank computes ends all", ["garbled", TEN_MINUTES], 2, "assay: rank 0: Failed to read 1 bytes .+"),
]
AT_ONCE = 4  # most jobs only wait
RUNS = 5  # of a job that its mpirun does not end


def launch(words):
    # When a job aborts, Open MPI's mpirun (4.1.4) itself ends by a segmentation fault at times, or leaves the processes alone, so that
    # another rank aborts 10 s later and says the same again (time_to_end_all in mpi_rank.cpp). Neither says anything of the job.
    for _ in range(RUNS):
        done = subprocess.run([*os.environ["MPIRUN"].split(), "4", os.environ["TROUBLE"], *words], capture_output=True, text=True, timeout=60)
        said = [line for line in done.stderr.splitlines() if line.startswith("assay: ")]
        if done.returncode != -signal.SIGSEGV and len(said) == len(set(said)):
            break
    return done.returncode, said


class Trouble(unittest.TestCase):
    def test_every_job_ends_and_says_why_once(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ends = list(pool.map(launch, [words for _, words, _, _ in CASES]))
        for (what, _, status, pattern), (found, said) in zip(CASES, ends):
            with self.subTest(what):
                self.assertEqual(found, status, said)
                self.assertEqual(len(said), 0 if pattern is None else 1, said)
                if pattern is not None:
                    self.assertRegex(said[0], f"^{pattern}$")


if __name__ == "__main__":
    unittest.main()
