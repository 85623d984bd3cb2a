from headspaces.errors import check_own
from headspaces.jobs import job
from headspaces.weights import fetch_block, load_headers

layers, path = snakemake.params.layers, snakemake.input.headers
with job(snakemake.log[0], snakemake.threads):
    headers = load_headers(path)
    check_own(path, {"source": headers.source}, {"source": snakemake.params.source})
    fetch_block(headers, range(layers[0], layers[-1] + 1), snakemake.output[0])
