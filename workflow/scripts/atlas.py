from headspaces.jobs.job import job
from headspaces.report.atlas import write_atlas

with job(snakemake.log[0], snakemake.threads):
    for page, model in zip(snakemake.output, snakemake.params.models, strict=True):
        write_atlas(model["files"], model["bases"], page, report="../report.html")
