from headspaces.jobs.job import job
from headspaces.report.scorecard import read_tables, scorecard, write_scorecard
from headspaces.study.published import compared_as, read_published

inputs, output, params = snakemake.input, snakemake.output, snakemake.params
with job(snakemake.log[0], snakemake.threads):
    tables = read_tables(dict(zip(params.names, inputs.tables, strict=True)))
    published = compared_as(read_published(inputs.published), params.published_as)
    write_scorecard(scorecard(published, tables), output.csv, output.markdown, output.data, params.published_as)
