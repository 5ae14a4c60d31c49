"""Runs program.py, each rank in a process of its own, and plants a fault of faults.py.

    python3 launch.py --family qwen3-moe --ranks 2 --dump dump [--fault NAME]

With --serve it reads options from standard input, a JSON object a line, and answers "ok" or "failed" to each: what is
slow to import is imported once. What the ranks print goes to DUMP.log.
"""
import argparse
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator

import torch
import torch.distributed as dist
import transformers

from faults import FAULTS
from program import Options, Trainer


def run_rank(options: Options, rank: int, meeting: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=60))
    trainer = Trainer(options)
    if options.fault:
        with torch.no_grad():
            FAULTS[options.fault].plant(trainer)
    trainer.train()
    dist.destroy_process_group()


def run(options: Options) -> bool:
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(options.ranks):
            sys.stdout.flush()
            if pid := os.fork():
                ranks.append(pid)
                continue
            status = 1
            try:
                log = os.open(f"{options.dump}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1), os.dup2(log, 2)
                run_rank(options, rank, f"{folder}/meeting")
                status = 0
            except BaseException:  # a rank never goes on with what its parent does
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        return all([os.waitpid(pid, 0)[1] == 0 for pid in ranks])


def requests() -> Iterator[Options]:
    for line in sys.stdin:
        yield Options(**json.loads(line))


def main() -> int:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if sys.argv[1:] == ["--serve"]:
        for options in requests():
            print("ok" if run(options) else "failed", flush=True)
        return 0
    parser = argparse.ArgumentParser()
    for field in dataclasses.fields(Options):
        if field.type is bool:
            parser.add_argument(f"--{field.name}", action="store_true")
        else:
            required = field.default is dataclasses.MISSING
            parser.add_argument(f"--{field.name}", type=field.type, required=required, default=None if required else field.default)
    return 0 if run(Options(**vars(parser.parse_args()))) else 1


if __name__ == "__main__":
    sys.exit(main())
