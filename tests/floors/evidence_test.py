"""compare/ has no standards of proof of its own: how many deviations or bits are enough stands in golden/evidence.h.

usage: evidence_test.py SOURCE_FOLDER
What a choice costs (bits_of_a_factor) is no standard.
"""
import pathlib
import re
import sys
import tempfile
import unittest

STANDARD = re.compile(r"""
    \b(sigmas?|deviations|doubt)\s*=\s*[1-9]           # constexpr double sigmas = 6
  | [<>]=?\s*[\d.]+\s*\*\s*[\w.>-]*\bsigma\b           # > 6 * e.sigma
  | \b[\d.]+\s*\*\s*[\w.>-]*\bsigma\b                  # 6 * e.sigma
  | \benough\s*=\s*[\d.]+;\s*//.*\bbits\b              # enough = 10;  // bits
  | \b(proof|enough|least|hint)_bits\s*=\s*[\d.]       # enough_bits = 24
  | \b(evidence|gained)\s*[<>]=?\s*[\d.]               # evidence >= 24
  """, re.VERBOSE)


def standards(folder):
    """FILE:LINE: the line, of every standard of proof below a folder."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if STANDARD.search(line):
                found.append(f"{file}:{number}: {line.strip()}")
    return found


class Evidence(unittest.TestCase):
    def test_compare_has_no_standard_of_its_own(self):
        self.assertEqual(standards(pathlib.Path(SOURCE, "compare")), [])

    def test_there_is_one(self):
        (bits,) = [line for line in standards(pathlib.Path(SOURCE, "golden")) if "evidence.h" in line]
        self.assertIn("hint_bits", bits)

    def test_those_that_stood_there_are_seen(self):
        for line in ("constexpr double sigmas = 6;", "constexpr double deviations = 6;", "constexpr double doubt = 24;    // bits",
                     "constexpr double enough = 10;  // bits", "return evidence < 24 + 1.5 * parameters;",
                     "return std::abs(e.value) <= 6 * e.sigma;"):
            with self.subTest(line), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "x.cpp").write_text(line + "\n")
                self.assertEqual(len(standards(pathlib.Path(folder))), 1)

    def test_costs_of_a_choice_are_none(self):
        for line in ("constexpr double bits_of_a_factor = 20;", "const double parameters = 12 + bits_of_delta * turned;",
                     "constexpr std::int64_t enough = 4;", "const double sigma = std::max(e.sigma, epsilon);"):
            with self.subTest(line), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "x.cpp").write_text(line + "\n")
                self.assertEqual(standards(pathlib.Path(folder)), [])


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
