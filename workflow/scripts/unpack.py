from headspaces.activations.forward_pass import unpack
from headspaces.jobs.job import job

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    unpack(params.checkpoint or params.source, snakemake.output[0], snakemake.wildcards.checkpoint)
