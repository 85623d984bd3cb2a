from headspaces.jobs import job
from headspaces.provenance import check_model
from headspaces.weights import read_headers, write_headers

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    headers = read_headers(params.source, params.kinds, path=params.place)
    check_model(headers, params.kinds, params.shape)
    write_headers(headers, snakemake.output[0])
