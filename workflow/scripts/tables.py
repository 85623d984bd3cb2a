from headspaces.jobs.job import job
from headspaces.report.results import read_results
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.study.published import read_published

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    models = [read_results(model, files) for model, files in params.files.items()]
    published = list(map(read_published, snakemake.input.published))
    for name in params.tables:
        paths = (f"{params.folder}/{name}.{suffix}" for suffix in ("csv", "md", "tex", "json"))
        write_table(name, TABLES[name](models, *published), *paths)
