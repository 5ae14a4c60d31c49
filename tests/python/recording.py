"""Runs a program under assay record."""

import os
import subprocess
import sys


def run(out, command, *options):
    return subprocess.run(
        [sys.executable, "-m", "assay_command", "record", "-o", str(out), *options, "--", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )
