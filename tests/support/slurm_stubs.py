"""Stand-ins for SLURM's commands: jobs run in the background, every command line and its circumstances are kept."""

import json
import sys
from pathlib import Path

SBATCH = """
import itertools, json, os, re, subprocess, sys
folder = os.path.dirname(os.path.abspath(__file__))
arguments = sys.argv[1:]
# Several calls may come at a time: who makes the file has the number.
for number in itertools.count(1):
    try:
        open(f"{folder}/{number}.call", "x").close()
        break
    except FileExistsError:
        continue
output = arguments[arguments.index("--output") + 1].replace("%j", str(number))
(wrapped,) = [argument.removeprefix("--wrap=") for argument in arguments if argument.startswith("--wrap=")]
call = {"arguments": arguments, "output_folder_is_there": os.path.isdir(os.path.dirname(output)), "output": output}
with open(f"{folder}/{number}.call", "w") as file:
    json.dump(call, file)
state = f"{folder}/{number}.state"
script = f"({wrapped}) > {output} 2>&1 && echo COMPLETED > {state} || echo FAILED > {state}"
environment = {**os.environ, "SLURM_JOB_ID": str(number), "SLURM_CPUS_PER_TASK": "1"}
subprocess.Popen(["bash", "-c", script], env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
print(number)
"""
SRUN = """
import os, sys
command = sys.argv[1:]
while command[0].startswith("-"):
    command = command[1:]
os.execvp(command[0], command)
"""
SQUEUE = """
import os
folder = os.path.dirname(os.path.abspath(__file__))
for name in sorted(os.listdir(folder)):
    if name.endswith(".call"):
        state = f"{folder}/{name[:-5]}.state"
        print(f"{name[:-5]}|{open(state).read().strip() if os.path.exists(state) else 'RUNNING'}")
"""
NO_ACCOUNTING = "import sys\nprint('Slurm accounting storage is disabled', file=sys.stderr)\nsys.exit(1)"
ANSWERS = "print()"
HANGS = "import time\ntime.sleep(600)"


def write_stubs(folder: Path, *, min_job_age: int | None = 300, sacct: str | None = NO_ACCOUNTING) -> dict[str, str]:
    """Write the commands into a folder; give the setting of PATH that finds them first."""
    folder.mkdir()
    age = "" if min_job_age is None else f"print('MinJobAge               = {min_job_age} sec')"
    programs = {
        "sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE, "sacct": sacct, "scontrol": age, "sacctmgr": "", "sshare": "",
        "sinfo": "print('main*')", "scancel": "",
    }  # fmt: skip
    for name, text in programs.items():
        if text is not None:
            (folder / name).write_text(f"#!{sys.executable}\n{text}\n")
            (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"}


def submissions(folder: Path) -> list[dict]:
    """What every call of sbatch was, in order."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.call"))]
