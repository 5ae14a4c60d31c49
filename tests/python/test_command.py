"""The `assay` command of the package: the program in Python's process behaves as it does in its own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "assay_command")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60)


def test_its_status_and_words_are_the_programs():
    assert run("ops").stdout.startswith("matmul ")
    wrong = run("diff", "nowhere", "nowhere")
    assert wrong.returncode == 2
    assert wrong.stdout == "" and wrong.stderr.startswith("assay: nowhere: ")
    assert run("--no-such-option").returncode == 2


def test_it_writes_dumps_and_reads_them(tmp_path: Path):
    written = run("replay", "--model", "qwen3-moe-tiny", "--steps", "1", "--dump", str(tmp_path / "dump"))
    assert written.returncode == 0, written.stderr
    same = run("diff", str(tmp_path / "dump"), str(tmp_path / "dump"))
    assert same.returncode == 0, same.stdout


def test_ctrl_c_ends_it_at_once(tmp_path: Path):
    # Far more work than a test has time for.
    dump = tmp_path / "dump"
    words = ("replay", "--model", "qwen3-moe-tiny", "--steps", "100000", "--dump", str(dump))
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(tmp_path.iterdir()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


def test_a_reader_that_has_gone_ends_it_in_silence():
    with subprocess.Popen([*COMMAND, "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == -signal.SIGPIPE
