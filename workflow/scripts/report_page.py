from headspaces.jobs.job import job
from headspaces.report.page import StudyFiles, by_name, write_report
from headspaces.report.run_record import RunRecord, describe_machine, installed_software, read_costs
from headspaces.store import read_attributes

inputs, params, study = snakemake.input, snakemake.params, snakemake.wildcards.study
with job(snakemake.log[0], snakemake.threads):
    record = RunRecord(
        {
            model: {stage: read_attributes(path, stage) for stage, path in files.items()}
            for model, files in params.stages.items()
        },
        params.notes,
        params.left_out,
        params.settings,
        read_costs(params.benchmarks, [*params.stages, study, params.text]),
        installed_software(),
        describe_machine(),
    )
    parts = (by_name(paths) for paths in (inputs.tables, inputs.figures, inputs.atlases))
    write_report(study, StudyFiles(inputs.scorecard, inputs.duplicates, *parts), record, snakemake.output[0])
