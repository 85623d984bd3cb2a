from headspaces.jobs import job
from headspaces.scorecard import read_published, read_tables, scorecard, write_scorecard

inputs, output = snakemake.input, snakemake.output
with job(snakemake.log[0], snakemake.threads):
    tables = read_tables(dict(zip(snakemake.params.names, inputs.tables, strict=True)))
    write_scorecard(scorecard(read_published(inputs.published), tables), output.csv, output.markdown)
