from pathlib import Path

from headspaces.jobs.job import job
from headspaces.report.page import StudyFiles, by_name, report_page
from headspaces.report.run_record import RunRecord, describe_machine, installed_software, read_costs
from headspaces.store import read_attributes
from headspaces.text_tables import write_text

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
    both = next(iter(inputs.side_by_side), None)
    files = StudyFiles(inputs.scorecard, inputs.duplicates, *parts, inputs.reference, both)
    write_text(report_page(study, files, record, Path(snakemake.output[0]).parent), snakemake.output[0])
