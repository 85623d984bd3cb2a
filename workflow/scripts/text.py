from headspaces.jobs import job
from headspaces.texts import read_text, write_text

with job(snakemake.log[0], snakemake.threads):
    write_text(read_text(snakemake.params.source, snakemake.params.characters), snakemake.output[0])
