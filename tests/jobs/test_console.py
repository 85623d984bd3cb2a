"""What the console shows of a run, message by message."""

import io
import logging
import os
import time
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace

import pytest

from headspaces.jobs.closing import closing_lines
from headspaces.jobs.console import Console, Task, quiet_console


class Event(StrEnum):
    JOB_INFO = "job_info"
    JOB_FINISHED = "job_finished"
    JOB_ERROR = "job_error"
    ERROR = "error"


def record(message="", level=logging.INFO, **more):
    made = logging.LogRecord("snakemake", level, "", 0, message, (), None)
    made.__dict__.update(more)
    return made


def failed(number, said=None):
    info = {"jobid": number, "rule_name": "x", "rule_msg": said, "log": []}
    return record("Error in rule", logging.ERROR, event=Event.JOB_ERROR, **info)


@pytest.fixture
def shown(tmp_path):
    """A console on a run of three jobs, and what it has shown so far."""
    console = Console(stream := io.StringIO())
    tasks = {
        1: Task("nulls", "null_shard m rotation", 10.0, str(tmp_path / "1.log")),
        2: Task("nulls", "null_shard m reassignment", 10.0, str(tmp_path / "2.log")),
        3: Task("report", "report_page s", 5.0, str(tmp_path / "3.log")),
    }
    console.begin(tasks, ["study s of m: 3 jobs"])
    yield console, lambda: stream.getvalue().splitlines()
    console.end([])


def log(console, number, *entries):
    lines = [f"2026-01-01 00:00:00,000 {level} {message}\n" for level, message in entries]
    Path(console.tasks[number].log).write_text("".join(lines), encoding="utf-8")


def test_a_stage_is_one_line_when_all_its_jobs_are_done(shown):
    console, lines = shown
    for number in (1, 2):
        console.emit(record(event=Event.JOB_INFO, jobid=number))
    console.emit(record(event=Event.JOB_FINISHED, job_id=1))
    assert lines() == ["study s of m: 3 jobs"]
    console.emit(record("Execute 1 jobs..."))
    console.emit(record(event=Event.JOB_FINISHED, job_id=2))
    assert lines()[1:] == ["0:00:00  80 %  nulls: 2 jobs done"]


def test_running_jobs_say_how_far_they_are(shown):
    console, _ = shown
    console.emit(record(event=Event.JOB_INFO, jobid=1))
    log(console, 1, ("INFO", "device: cpu\n\rsamples:   0%|   | 0/15\rsamples:  40%|##  | 6/15"))
    assert "running nulls 0 of 2 (samples 40 %)" in console._status()


def test_time_left_follows_from_what_is_over(shown):
    console, _ = shown
    console.start -= 600
    console.done.add(1)
    # 10 of 25 seconds' work took ten minutes.
    assert console._time_left() == "; about 15 min left"


def test_a_failure_is_one_line_and_where_the_log_is(shown):
    console, lines = shown
    console.emit(record(event=Event.JOB_INFO, jobid=1))
    log(console, 1, ("DEBUG", "headspaces"), ("ERROR", "error: m: layer 3 holds NaN; fetch another"))
    noise = "RuleException:\nCalledProcessError in file x.smk, line 9:\nCommand python returned non-zero exit status 1."
    console.emit(record(noise, logging.ERROR, event=Event.ERROR, exception="RuleException"))
    console.emit(
        record("Error in rule", logging.ERROR, event=Event.JOB_ERROR, jobid=1, rule_name="x", rule_msg=None, log=[])
    )
    console.emit(record("Exiting because a job execution failed. Look above", logging.ERROR))
    console.emit(
        record("WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR, event=Event.ERROR)
    )
    assert lines()[1:] == [
        "error: m: layer 3 holds NaN; fetch another",
        f"  null_shard m rotation failed; its log: {console.tasks[1].log}",
    ]
    assert console.remains()[0].startswith("1 failed, 0 of 3 jobs are done and stay")


def test_of_a_fault_the_last_line_is_shown_and_of_a_kill_that_it_was_one(shown):
    console, lines = shown
    for number in (1, 2):
        console.emit(record(event=Event.JOB_INFO, jobid=number))
    log(
        console,
        1,
        ("INFO", "x"),
        ("ERROR", 'Traceback (most recent call last):\n  File "a"\nZeroDivisionError: by zero'),
    )
    for number in (1, 2):
        console.emit(failed(number))
    assert lines()[1] == "error: ZeroDivisionError: by zero"
    assert lines()[3] == "error: it ended without a message in its log: killed, or out of memory"


def test_a_log_of_an_earlier_run_says_nothing_of_this_one(shown, tmp_path):
    console, lines = shown
    log(console, 1, ("ERROR", "error: long ago"))
    os.utime(console.tasks[1].log, (time.time() - 3600,) * 2)
    console.emit(record(event=Event.JOB_INFO, jobid=1))
    failed = {
        "event": Event.JOB_ERROR,
        "jobid": 1,
        "rule_name": "x",
        "rule_msg": "SLURM status is OUT_OF_MEMORY",
        "log": [],
    }
    console.emit(record("", logging.ERROR, **failed))
    assert lines()[1] == "error: SLURM status is OUT_OF_MEMORY"


def test_warnings_of_jobs_are_shown(shown):
    console, lines = shown
    console.emit(record(event=Event.JOB_INFO, jobid=3))
    log(console, 3, ("WARNING", "two models are one"))
    console.emit(record(event=Event.JOB_FINISHED, job_id=3))
    assert lines()[1] == "warning: report_page s: two models are one"


def test_a_wrong_setting_is_shown_without_its_place_in_the_snakefile():
    console = Console(stream := io.StringIO())
    raised = (
        'WorkflowError in file "/a/common.smk", line 34:\nconfig: unknown key \'x\'\n  File "/a/b.py", line 3, in f'
    )
    console.emit(record(raised, logging.ERROR, event=Event.ERROR, exception="WorkflowError"))
    assert stream.getvalue() == "error: config: unknown key 'x'\n"


@pytest.mark.parametrize(("asked", "quiet"), [({}, True), ({"dryrun": True}, False), ({"printshellcmds": True}, False)])
def test_the_console_is_quiet_unless_another_is_asked_for(asked, quiet, monkeypatch):
    monkeypatch.setenv("HEADSPACES_LOG_ONLY", "")  # set by the console, and taken back after the test
    logger = logging.Logger("snakemake")
    logger.addHandler(default := logging.StreamHandler(io.StringIO()))
    default.name = "DefaultStreamHandler"
    console = quiet_console(SimpleNamespace(settings=SimpleNamespace(**asked), logger=logger))
    assert logger.handlers == [console if quiet else default]


def test_the_last_line_is_where_the_report_is(tmp_path):
    tables = tmp_path / "tables"
    tables.mkdir()
    columns = "model rank spaces writer_layer writer_head reader_layer reader_head rho isotropic_ratio"
    rows = ["m 1 OK 4 11 5 1 0.6146 7.375 Previous,Induction", "m 2 OQ 1 2 3 4 0.5 6 ,", "n 1 OV 0 1 2 3 0.25 2 ,"]
    lines = [columns + " writer_class reader_class", *rows]
    text = "\n".join(line.replace(" ", ",") for line in lines)
    (tables / "strongest_pairs.csv").write_text(text + "\n")
    left_out = {"overlaps": {}, "activations": {"m": "no tokenizer"}, "attention": {"m": "no tokenizer"}}
    weak = "head 0.1 writes where the values of head 2.3 read"
    where = "head 4.11 writes where the keys of head 5.1 read"
    assert list(closing_lines(tmp_path / "report.html", left_out)) == [
        f"strongest connection of m: {where}: ρ 0.615, 7.4 times that of random subspaces (Previous → Induction)",
        f"strongest connection of n: {weak}: ρ 0.250, 2.0 times that of random subspaces",
        "left out: activations, attention of m: no tokenizer",
        f"report: {tmp_path / 'report.html'}",
    ]


def test_who_asks_again_learns_where_the_report_is():
    console = Console(stream := io.StringIO())
    console.closing = lambda: ["report: results/report/mine/report.html"]
    console.emit(record("Nothing to be done (all requested files are present and up to date)."))
    assert stream.getvalue().splitlines() == [
        "Nothing to be done (all requested files are present and up to date).",
        "report: results/report/mine/report.html",
    ]
