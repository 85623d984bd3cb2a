from headspaces.jobs.job import job
from headspaces.report.results import read_results
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table

name, output = snakemake.wildcards.table, snakemake.output
with job(snakemake.log[0], snakemake.threads):
    models = [read_results(model, files) for model, files in snakemake.params.files.items()]
    write_table(name, TABLES[name](models), output.csv, output.markdown, output.latex)
