from headspaces.activations.texts import read_text, write_text
from headspaces.jobs.job import job

with job(snakemake.log[0], snakemake.threads):
    write_text(read_text(snakemake.params.source, snakemake.params.characters), snakemake.output[0])
