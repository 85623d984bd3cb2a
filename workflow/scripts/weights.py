from headspaces.jobs import job
from headspaces.weights import fetch_block, load_headers

layers = snakemake.params.layers
with job(snakemake.log[0], snakemake.threads):
    fetch_block(load_headers(snakemake.input.headers), range(layers[0], layers[-1] + 1), snakemake.output[0])
