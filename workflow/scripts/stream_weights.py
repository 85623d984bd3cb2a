from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.weights.fetch import fetch_stream
from headspaces.weights.headers_file import load_headers
from headspaces.weights.stream_headers import stream_headers

layers, path = snakemake.params.layers, snakemake.input.headers
with job(snakemake.log[0], snakemake.threads) as log:
    headers = load_headers(path)
    check_own(path, {"source": headers.source}, {"source": snakemake.params.source})
    stream = stream_headers(headers)
    for note in stream.notes if not layers else ():
        log.info("%s: %s", headers.source, note)
    fetch_stream(stream, range(layers[0], layers[-1] + 1) if layers else None, snakemake.output[0])
