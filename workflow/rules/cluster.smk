"""cluster: what is checked before the first job is sent to a cluster."""

from headspaces.jobs.slurm_check import check_job_states


onstart:
    # A run that cannot see its jobs end would wait for ever.
    if workflow.executor_plugin.name == "slurm":
        try:
            check_job_states(
                workflow.executor_settings.status_command,
                workflow.executor_settings.init_seconds_before_status_checks,
            )
        except InputError as error:
            raise WorkflowError(str(error)) from None
