from headspaces.jobs.job import job
from headspaces.weights.content import with_content
from headspaces.weights.headers_file import write_headers
from headspaces.weights.model_check import check_model
from headspaces.weights.source import read_headers

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    headers = with_content(read_headers(params.source, params.kinds, path=params.checkpoint), params.content)
    check_model(headers, params.kinds, params.shape)
    write_headers(headers, snakemake.output[0])
