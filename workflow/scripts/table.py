from headspaces.jobs.job import job
from headspaces.report.results import read_results
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.study.published import read_published

name, output = snakemake.wildcards.table, snakemake.output
with job(snakemake.log[0], snakemake.threads):
    models = [read_results(model, files) for model, files in snakemake.params.files.items()]
    published = map(read_published, snakemake.input.published)
    table = TABLES[name](models, *published)
    write_table(name, table, output.csv, output.markdown, output.latex, output.data)
