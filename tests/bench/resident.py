"""Memory that a running process holds by itself: mapped pages of files apart."""
import pathlib
import time


def peak_of(process):
    """The largest RssAnon while the process runs, in bytes."""
    largest = 0
    while process.poll() is None:
        try:
            for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    largest = max(largest, 1024 * int(line.split()[1]))
        except OSError:
            pass
        time.sleep(0.005)
    return largest
