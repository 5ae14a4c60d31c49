"""The table of docs/sharpness.md about programs that are not ours: records, compares, and counts.

    python3 board.py --work DIR --python VENV/bin/python --assay build/release/tools/assay/assay [--family F] [--dtype D]
                     [--part K/N] [--only PATTERN] [--seed N] [--lean] [--table]

Clean pairs are one run of program.py in two layouts; a faulty run is in another layout than its reference, too. DIR/results.jsonl
gets a line for each run, and a run that has one is not made again; DIR/reports has the reports. --lean deletes dumps that
are no longer needed; --table only prints. The python of --python needs requirements.txt, this one nothing.
"""
import argparse
import collections
import dataclasses
import fcntl
import fnmatch
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
DTYPES = ("float32", "bfloat16")
SECONDS = 600  # of one comparison
NEAR = 2e-3  # a number of a cause is the expected one


@dataclasses.dataclass(frozen=True)
class Layout:
    options: dict[str, object]
    reference: str = "plain"
    vector_unit: str = ""  # ATEN_CPU_CAPABILITY; empty: the best


REFERENCES: dict[str, dict[str, object]] = {"plain": {}, "average": {"average": True}, "padded": {"padded": True}}
LAYOUTS = {
    "vector": Layout({}, vector_unit="default"),
    "sdpa": Layout({"attention": "sdpa"}),
    "grouped": Layout({"attention": "sdpa", "experts": "grouped_mm"}),
    "dp2": Layout({"ranks": 2}),
    "dp2-average": Layout({"ranks": 2, "average": True}, "average"),
    "ddp": Layout({"ranks": 2, "ddp": True}, "average"),
    "padded": Layout({"padded": True}, "padded", "default"),
    "dp2-padded": Layout({"ranks": 2, "padded": True}, "padded"),
}
FAMILIES = ("mixtral", "qwen3-moe", "olmoe", "llama")


@dataclasses.dataclass(frozen=True)
class Run:
    family: str
    dtype: str
    layout: str
    fault: str = ""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.family, self.dtype, self.layout, self.fault)))

    @property
    def reference(self) -> str:
        return f"{self.family}-{self.dtype}-{LAYOUTS[self.layout].reference}.reference"


def clean_runs() -> Iterator[Run]:
    for layout, family, dtype in itertools.product(LAYOUTS, FAMILIES, DTYPES):
        if family == "llama" and layout == "grouped":
            continue  # it has no experts
        if "padded" in layout and family in ("olmoe", "llama"):
            continue  # no fault needs it
        yield Run(family, dtype, layout)


def fault_runs(faults: dict[str, dict]) -> list[Run]:
    """Every fault once in each dtype comes first; the next time it is in another family and another layout."""
    turns = []
    for place, (name, fault) in enumerate(faults.items()):
        families, layouts = fault["families"], fault["layouts"]
        for turn in range(len(families) * len(layouts)):
            family = families[(place // len(layouts) + turn) % len(families)]
            layout = layouts[(place + turn + turn // math.lcm(len(families), len(layouts))) % len(layouts)]
            turns += [(turn, place, Run(family, dtype, layout, name)) for dtype in fault["dtypes"]]
    return [run for _, _, run in sorted(turns, key=lambda t: t[:2])]


class Recorders:
    """Processes of launch.py, one for each vector unit, that record what they are asked for."""

    def __init__(self, python: str) -> None:
        self.python, self.running = python, {}

    def record(self, dump: Path, vector_unit: str, **options: object) -> bool:
        shutil.rmtree(dump, ignore_errors=True)
        Path(f"{dump}.log").unlink(missing_ok=True)
        if vector_unit not in self.running:
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            if vector_unit:
                environment["ATEN_CPU_CAPABILITY"] = vector_unit
            self.running[vector_unit] = subprocess.Popen([self.python, HERE / "launch.py", "--serve"], env=environment, text=True,
                                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self.running[vector_unit]
        print(json.dumps({"dump": str(dump), **options}), file=process.stdin, flush=True)
        return process.stdout.readline().strip() == "ok"

    def close(self) -> None:
        for process in self.running.values():
            process.stdin.close()
            process.wait()


def is_near(said: object, expected: object) -> bool:
    if isinstance(expected, list):
        return isinstance(said, list) and len(said) == len(expected) and all(map(is_near, said, expected))
    if isinstance(expected, str):
        return isinstance(said, str) and fnmatch.fnmatchcase(said, expected)
    return isinstance(said, (int, float)) and math.isclose(said, expected, rel_tol=NEAR, abs_tol=1e-12)


def is_named(diagnoses: list[dict], fault: dict) -> bool:
    """The first diagnosis is the expected one."""
    if not diagnoses or diagnoses[0]["cause"] != fault["cause"]:
        return False
    expected = dict(fault["parameters"])
    if expected.pop("text", "") not in diagnoses[0]["text"]:
        return False
    return all(is_near(diagnoses[0]["parameters"].get(key), value) for key, value in expected.items())


def place_of(name: str) -> str:
    return name.removeprefix("module.")  # DistributedDataParallel's


def summary(report: dict) -> dict[str, object]:
    """What a line of the results keeps of a report."""
    coverage, first = report["coverage"], report["first_failure"]
    known = coverage["judged"] + coverage["sources"]
    finding = next((f for f in report["findings"] if f["name"] == first), {"verdict": "", "diagnoses": []})
    return {"first": first, "verdict": finding["verdict"], "diagnoses": finding["diagnoses"],
            "counts": {verdict: n for verdict, n in report["counts"].items() if n},
            "judged": known / max(known + coverage["unjudged"], 1)}


def judge(row: dict, fault: dict) -> dict[str, bool]:
    """Whether the first wrong tensor is there, of the right module, the right one, and has the right cause. Where nothing failed and
    something is undecided, nothing was found; a fault without a cause is not in the last count."""
    found = row["exit"] == 1 and row["verdict"] != "undecided"
    first = place_of(row["first"]) if found else ""
    right = {"found": found, "tensor": fnmatch.fnmatchcase(first, fault["place"]),
             "module": found and fnmatch.fnmatchcase(first.split()[0], fault["place"].split()[0])}
    return right if fault["cause"] is None else right | {"named": found and is_named(row["diagnoses"], fault)}


class Board:
    def __init__(self, args: argparse.Namespace) -> None:
        self.work, self.assay, self.lean, self.seed = Path(args.work), args.assay, args.lean, args.seed
        self.recorders, self.results = Recorders(args.python), self.work / "results.jsonl"
        for folder in ("dumps", "reports"):
            (self.work / folder).mkdir(parents=True, exist_ok=True)

    def reference(self, run: Run) -> Path | None:
        dump = self.work / "dumps" / run.reference
        with open(self.work / "references.lock", "w") as lock:  # other parts need it, too
            fcntl.flock(lock, fcntl.LOCK_EX)
            options = REFERENCES[LAYOUTS[run.layout].reference]
            if (dump / "manifest.json").exists() or self.recorders.record(dump, "", family=run.family, dtype=run.dtype, seed=self.seed, **options):
                return dump
        return None

    def make(self, run: Run) -> dict[str, object]:
        """The row of a run."""
        layout, dump, report = LAYOUTS[run.layout], self.work / "dumps" / run.name, self.work / "reports" / run.name
        row = dataclasses.asdict(run) | {"run": run.name}
        reference = self.reference(run)
        options = layout.options | {"family": run.family, "dtype": run.dtype, "fault": run.fault, "seed": self.seed}
        if reference is None or not self.recorders.record(dump, layout.vector_unit, **options):
            return row | {"exit": None, "trouble": f"not recorded, see {dump}.log"}
        begin = time.monotonic()
        try:
            with open(f"{report}.txt", "w") as text:
                exit_status = subprocess.run([self.assay, "diff", dump, reference, "--json", f"{report}.json"], stdout=text,
                                             stderr=subprocess.STDOUT, timeout=SECONDS).returncode
        except subprocess.TimeoutExpired:
            return row | {"exit": None, "trouble": f"not compared within {SECONDS} s"}
        row |= {"exit": exit_status, "seconds": round(time.monotonic() - begin, 1)}
        if exit_status in (0, 1):
            row |= summary(json.loads(Path(f"{report}.json").read_text()))
        if self.lean:
            shutil.rmtree(dump)
            Path(f"{dump}.log").unlink()
            Path(f"{report}.json").unlink(missing_ok=True)
        return row

    def make_all(self, runs: Iterable[Run]) -> None:
        for run in runs:
            row = self.make(run)
            with open(self.results, "a") as results:
                results.write(json.dumps(row) + "\n")
            print(f"{run.name}: exit {row['exit']}, {row.get('first') or row.get('trouble') or 'passed'}", flush=True)
        self.recorders.close()
        if self.lean:
            for dump in (self.work / "dumps").glob("*.reference"):
                shutil.rmtree(dump)


def rows_of(results: Path) -> list[dict]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.0f} %)" if of else "-"


def print_table(head: list[str], rows: Iterable[list[str]]) -> None:
    print("| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def of_faults(judged: list[dict[str, bool]]) -> list[str]:
    return [share(sum(j.get(key, False) for j in judged), sum(key in j for j in judged)) for key in ("found", "module", "tensor", "named")]


def print_tables(rows: list[dict], faults: dict[str, dict]) -> None:
    for row in (r for r in rows if r["exit"] not in (0, 1)):
        print(f"no verdict: {row['run']}: {row.get('trouble', 'exit %s' % row['exit'])}")
    rows = [r for r in rows if r["exit"] in (0, 1)]
    clean, faulty = [r for r in rows if not r["fault"]], [(r, judge(r, faults[r["fault"]])) for r in rows
                                                            if r["fault"] and r["dtype"] in faults[r["fault"]]["dtypes"]]
    head = ["found", "first module right", "first tensor right", "named"]

    def of(dtypes: tuple[str, ...]) -> list[str]:
        pairs = [r for r in clean if r["dtype"] in dtypes]
        return of_faults([j for r, j in faulty if r["dtype"] in dtypes]) + [share(sum(r["exit"] != 0 for r in pairs), len(pairs))]
    print_table(["dtype", *head, "false alarms"], ([" and ".join(d), *of(d)] for d in ((DTYPES[0],), (DTYPES[1],), DTYPES)))
    kinds = collections.defaultdict(list)
    for row, judged in faulty:
        kinds[faults[row["fault"]]["kind"]].append(judged)
    print_table(["faults", *head], ([kind, *of_faults(of_kind)] for kind, of_kind in kinds.items()))
    for row, judged in faulty:
        if not all(judged.values()):
            missed = ", ".join(key for key, right in judged.items() if not right)
            said = "; ".join(f"{d['cause']}: {d['text']}" for d in row["diagnoses"])
            print(f"- {row['run']}: not right: {missed}; {row['verdict'] or 'passed'} {row['first'] or ''}; {said or 'no cause'}")
    print()
    programs = []
    for family in FAMILIES:
        pairs = [r for r in clean if r["family"] == family]
        by_dtype = [[r for r in pairs if r["dtype"] == dtype] for dtype in DTYPES]
        judged = [100 * r["judged"] for r in pairs] or [0]
        programs.append([family, str(len(pairs)), *(share(sum(r["exit"] == 0 for r in of), len(of)) for of in by_dtype),
                         f"{min(judged):.0f} to {max(judged):.0f} %"])
    print_table(["program", "clean pairs", *(f"exit 0, {d}" for d in DTYPES), "judged by what they were made of, sources included"],
                programs)


def faults_of(python: str) -> dict[str, dict]:
    """The catalogue, as that python has it."""
    script = "import dataclasses, faults, json; print(json.dumps({n: vars(f) | {'plant': ''} for n, f in faults.FAULTS.items()}))"
    return json.loads(subprocess.run([python, "-c", script], cwd=HERE, check=True, text=True, stdout=subprocess.PIPE).stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--assay", default="build/release/tools/assay/assay")
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--only", default="*", help="names of runs: FAMILY-DTYPE-LAYOUT[-FAULT]")
    parser.add_argument("--seed", type=int, default=0, help="of all runs in DIR: one for each DIR")
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    faults = faults_of(args.python)
    results = Path(args.work, "results.jsonl")
    if not args.table:
        done, (part, parts) = {row["run"] for row in rows_of(results)}, map(int, args.part.split("/"))
        runs = [r for r in [*clean_runs(), *fault_runs(faults)] if args.family in (None, r.family) and args.dtype in (None, r.dtype)]
        runs = [r for r in runs[part - 1::parts] if fnmatch.fnmatchcase(r.name, args.only) and r.name not in done]
        Board(args).make_all(runs)
    print_tables(rows_of(results), faults)
    return 0


if __name__ == "__main__":
    sys.exit(main())
