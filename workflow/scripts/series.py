from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint
from headspaces.report.series import StepFiles, collect_series, series_attributes
from headspaces.store import write_arrays

params, name = snakemake.params, snakemake.wildcards.series
with job(snakemake.log[0], snakemake.threads):
    steps = [StepFiles(**step) for step in params.steps]
    own = {"model": name, "source": params.source, "code_sha256": fingerprint(snakemake.input.code)}
    write_arrays(snakemake.output[0], "series", collect_series(steps), series_attributes(steps) | own)
