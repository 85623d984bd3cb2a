"""start: what is checked and kept before the first job runs, and what the console says; a dry run does none of it."""

from pathlib import Path

from headspaces.costs.requests import job_seconds
from headspaces.jobs.closing import closing_lines
from headspaces.jobs.console import Task
from headspaces.jobs.slurm_check import check_accounts, check_job_states
from headspaces.study.names import read_names, write_names
from headspaces.study.series import keep_revisions


def task_of(job):
    """What the console says of a job; its stage is the rules file that its rule stands in."""
    words = job.wildcards_dict
    model = KNOWN.get(words.get("model")) or CHECKPOINTS.get(words.get("checkpoint"))
    name = " ".join([job.rule.name, *map(str, words.values())])
    seconds = job_seconds(job.rule.name, model)
    return Task(
        Path(job.rule.snakefile).stem, name, seconds, str(next(iter(job.log), ""))
    )


def opening(jobs):
    """Say what is run, and where all is logged."""
    names = ", ".join(list(MODELS)[:5]) + (", …" if len(MODELS) > 5 else "")
    log = next(iter(workflow.logger_manager.get_logfile()), "none")
    yield f"study {STUDY.name} of {names}: {len(jobs)} jobs"
    yield f"log: {os.path.relpath(log)}, of each job in results/logs"


def closing():
    """Say what was made, where that is the page of the study."""
    page = Path(f"results/report/{STUDY.name}/report.html")
    asked = any(job.rule.name == "report_page" for job in workflow.dag.jobs)
    return closing_lines(page, STUDY.stages) if asked and page.is_file() else []


if CONSOLE:
    CONSOLE.closing = closing


onsuccess:
    if CONSOLE:
        CONSOLE.end(CONSOLE.closing())


onerror:
    if CONSOLE:
        CONSOLE.end(CONSOLE.remains())


onstart:
    if workflow.local_exec:
        # Snakemake's limit of jobs a second, which only a cluster needs, leaves with every job that ends one more timer
        # that looks for work once a second, up to the end of the run.
        workflow.scheduler.job_rate_limiter = None
    if CONSOLE:
        jobs = {
            job.jobid: task_of(job)
            for job in workflow.dag.needrun_jobs()
            if job.rule.name != "all"
        }
        CONSOLE.begin(jobs, opening(jobs))
    try:
        # A run that cannot see its jobs end would wait for ever.
        if workflow.executor_plugin.name == "slurm":
            check_job_states(
                workflow.executor_settings.status_command,
                workflow.executor_settings.init_seconds_before_status_checks,
            )
            asked = (
                job.resources.get("slurm_account", "")
                for job in workflow.dag.needrun_jobs()
            )
            check_accounts({name for names in asked for name in str(names).split()})
        # From now on these names are this study's; a plan takes none.
        if any(job.rule.name != "plan" for job in workflow.dag.needrun_jobs()):
            models = (*TRAINED, *KNOWN.values())
            others = {name: series.source for name, series in SERIES.items()}
            write_names(read_names().with_models(models, SETTINGS, others))
            keep_revisions(SERIES.values())
    except InputError as error:
        raise WorkflowError(str(error)) from None
