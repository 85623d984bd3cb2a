"""Run the benchmarks and print one table; write the same numbers as JSON.

Every item runs in a process of its own, so that its peak memory is its own. Rates of this machine are measured in the
same run, since only ratios carry over to another one.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "src"))

from headspaces.jobs.code import hand_on_environment  # noqa: E402 - the package of this folder
from headspaces.threads import reuse_memory  # noqa: E402

HEADER = ("item", "case", "seconds", "ratio", "of what", "budget", "peak MiB")


def main():
    """Read the command line; run the chosen items, or, in a process of its own, one."""
    from benchmarks.items import CHECKPOINT, ITEMS

    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(ITEMS), default=list(ITEMS), help="items to run, default all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all processors")
    parser.add_argument("--json", default=str(ROOT / "results" / "benchmarks.json"), help="where the numbers go")
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


def run_item(name, threads):
    """Run one item in a new process and print its rows."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks", "--item", name]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"benchmark {name} ended with status {process.returncode}")
    rows = json.loads(output.splitlines()[-1])
    peak = usage.ru_maxrss // 1024
    for row in rows:
        print_row(name, row, peak)
    return {"rows": rows, "peak_mib": peak, "threads": threads}


def print_row(name, row, peak):
    """Print one line of the table; its header before the first."""
    if not print_row.started:
        print(" | ".join(HEADER))
        print_row.started = True
    ratio = f"{row['ratio']:.3g}" if "ratio" in row else ""
    seconds = f"{row['seconds']:.3g}" if "seconds" in row else ""
    print(
        " | ".join(
            [name, row["case"], seconds, ratio, row.get("of", ""), row.get("budget", ""), str(row.get("peak", peak))]
        ),
        flush=True,
    )


print_row.started = False

if __name__ == "__main__":
    hand_on_environment()
    main()
