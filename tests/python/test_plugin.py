"""The plugin in runs of its own."""

import json
import sys

import pytest

SUITE = """
    import numpy as np
    import pytest
    from assay.testing import assert_matches_golden, cases

    def softmax(x, axis=-1):
        e = np.exp(x - x.max(axis, keepdims=True))
        return (e / e.sum(axis, keepdims=True)).astype(np.float32)

    @pytest.mark.parametrize("case", cases("softmax", [{"A": [4], "C": [8], "B": []}, {"A": [3], "C": [5], "B": [2]}]))
    def test_right(case):
        x = case.inputs["x"].astype(np.float32)
        axis = -1 if x.ndim == 2 else 1
        assert_matches_golden("softmax", x, softmax(x, axis), dim=axis)

    def test_wrong():
        x = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
        assert_matches_golden("softmax", x, softmax(x, 0), msg="my kernel")
"""


@pytest.fixture
def run(pytester):
    pytester.makepyfile(SUITE)

    def run(*options):
        return pytester.runpytest_subprocess("-p", "assay_pytest", *options)

    return run


def test_a_failure_shows_the_report(run):
    result = run("-p", "no:randomly")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *AssertionError: my kernel",
            "E *because*it is softmax with dim = -2*",
            "E *1 compared: 0 passed, 1 failed*",
        ]
    )
    assert "testing.py:" not in result.stdout.str(), "the traceback ends in the test"
    result.stdout.fnmatch_lines(["OPERATOR*ERROR/ALLOWED", "softmax *float32 * 3 * 1 *"])


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_all_of_it_is_written(run, pytester, workers):
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    result = run(*workers, "--assay-html", "golden.html", "--assay-json", "golden.json", "--assay-save", "cases")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["softmax *float32 * 3 * 1 *"])
    report = json.loads((pytester.path / "golden.json").read_text())
    assert len(report["findings"]) == 3
    assert sum(f["verdict"] == "failed" for f in report["findings"]) == 1
    assert any("test_wrong" in f["name"] for f in report["findings"])
    assert "<html" in (pytester.path / "golden.html").read_text()
    (case,) = (pytester.path / "cases").iterdir()
    assert json.loads((case / "case.json").read_text())["op"] == "softmax"
    result.stdout.fnmatch_lines([f"E *assay check {pytester.path}/cases/{case.name}*"])


def test_assertions_are_proved_able_to_fail(run):
    result = run("--assay-prove")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.re_match_lines([r"(\d+) of \1 injected faults were rejected"])


def test_numbers_go_into_junit(run, pytester):
    run("--junit-xml", "junit.xml")
    text = (pytester.path / "junit.xml").read_text()
    assert 'name="assay softmax y float32" value="passed, error/allowed' in text


def test_options_can_stand_in_the_configuration(run, pytester):
    pytester.makeini("[pytest]\nassay_json = all.json\nassay_prove = true\n")
    result = run()
    assert (pytester.path / "all.json").exists()
    result.stdout.re_match_lines([r"(\d+) of \1 injected faults were rejected"])


def test_a_run_without_golden_assertions_imports_nothing(pytester):
    pytester.makepyfile("import sys\ndef test_it(): assert 'assay' not in sys.modules")
    result = pytester.runpytest_subprocess("-p", "assay_pytest", "-p", "no:assay")
    result.assert_outcomes(passed=1)
    assert "golden assertions" not in result.stdout.str()


def test_the_package_alone_asserts_too(pytester):
    pytester.makepyfile(SUITE)
    result = pytester.run(
        sys.executable, "-m", "pytest", "-p", "no:assay_pytest", "-p", "no:assay", "-p", "no:randomly"
    )
    result.assert_outcomes(passed=2, failed=1)


def test_what_a_worker_found_before_it_crashed_is_there(pytester):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    pytester.makepyfile(
        """
        import os
        from assay.testing import assert_matches_golden

        def test_first(): assert_matches_golden("relu", [1.0, -1.0], [1.0, 0.0])
        def test_crash(): os._exit(3)
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "assay_pytest", "-p", "no:randomly", "-n", "1", "--max-worker-restart", "0", "--assay-json", "golden.json"
    )
    result.stdout.fnmatch_lines(["*relu *float64 * 1 * 0 *"])
    report = json.loads((pytester.path / "golden.json").read_text())
    assert [f["verdict"] for f in report["findings"]] == ["passed"]
