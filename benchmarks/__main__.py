"""Run the benchmarks and print one table; write the same numbers as JSON, and the page of docs that shows them.

Every item runs in processes of its own, so that its peak memory is its own, one after the other until three are done or
its time is over: what they differ by is shown. Rates of this machine are measured in the same run, since only ratios
carry over to another one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "src"))

from headspaces.jobs.code import hand_on_environment  # noqa: E402 - the package of this folder
from headspaces.threads import reuse_memory  # noqa: E402

MOST_RUNS, ITEM_SECONDS = 3, 25
"""Runs of an item, and the time after which no other one begins."""

HEADER = ("item", "case", "seconds", "ratio", "of what", "budget", "peak MiB")


def main():
    """Read the command line; run the chosen items, or, in a process of its own, one."""
    from benchmarks.items import CHECKPOINT, ITEMS

    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(ITEMS), default=list(ITEMS), help="items to run, default all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all processors")
    parser.add_argument("--json", default=str(ROOT / "results" / "benchmarks.json"), help="where the numbers go")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md and its figure, too")
    parser.add_argument("--checkpoint", help="folder of weights for the item affinity, default random ones")
    parser.add_argument("--item", choices=list(ITEMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.item:
        reuse_memory()
        print(json.dumps(ITEMS[options.item]()))
        return
    if options.checkpoint:
        os.environ[CHECKPOINT] = str(Path(options.checkpoint).resolve())
    found = {name: run_item(name, options.threads) for name in options.only}
    target = Path(options.json)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written to {target}")
    if options.page:
        from benchmarks.page import write_page

        write_page(target, ROOT / "docs")


def run_item(name, threads):
    """Run one item some times and print its rows."""
    start, runs = time.monotonic(), []
    while not runs or (len(runs) < MOST_RUNS and time.monotonic() - start < ITEM_SECONDS):
        runs.append(run_once(name, threads))
    peak = max(peak for _, peak in runs)
    rows = [combined(same) for same in zip(*(rows for rows, _ in runs), strict=True)]
    for row in rows:
        print_row(name, row, peak)
    return {"rows": rows, "peak_mib": peak, "threads": threads, "runs": len(runs)}


def combined(rows):
    """Join one row of several runs: the shortest time, the median ratio, and the range of both."""
    row = dict(rows[0])
    for key, middle in (("seconds", min), ("ratio", statistics.median)):
        if key in row:
            values = [one[key] for one in rows]
            row[key], row[f"{key}_range"] = middle(values), [min(values), max(values)]
    return row


def run_once(name, threads):
    """Run one item in a new process: its rows, and the peak of its memory in MiB."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks", "--item", name]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"benchmark {name} ended with status {process.returncode}")
    return json.loads(output.splitlines()[-1]), usage.ru_maxrss // 1024


def print_row(name, row, peak):
    """Print one line of the table; its header before the first."""
    if not print_row.started:
        print(" | ".join(HEADER))
        print_row.started = True
    ratio, seconds = ranged(row, "ratio"), ranged(row, "seconds")
    print(
        " | ".join(
            [name, row["case"], seconds, ratio, row.get("of", ""), row.get("budget", ""), str(row.get("peak", peak))]
        ),
        flush=True,
    )


def ranged(row, key):
    """Write a number with the range of its runs."""
    if key not in row:
        return ""
    value, (low, high) = f"{row[key]:.3g}", row.get(f"{key}_range", [row[key]] * 2)
    return value if f"{low:.3g}" == f"{high:.3g}" else f"{value} ({low:.3g}–{high:.3g})"


print_row.started = False

if __name__ == "__main__":
    hand_on_environment()
    main()
