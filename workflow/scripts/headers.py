from headspaces.jobs.job import job
from headspaces.weights.headers_file import write_headers
from headspaces.weights.model_check import check_model
from headspaces.weights.source import read_headers

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    headers = read_headers(params.source, params.kinds, path=params.checkpoint)
    check_model(headers, params.kinds, params.shape)
    write_headers(headers, snakemake.output[0])
