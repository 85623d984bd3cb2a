"""start: what is checked and kept before the first job runs; a dry run does none of it."""

from headspaces.jobs.slurm_check import check_accounts, check_job_states
from headspaces.study.names import read_names, write_names
from headspaces.study.series import keep_revisions


onstart:
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
