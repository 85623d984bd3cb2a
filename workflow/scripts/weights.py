from contextlib import suppress

from headspaces.errors import InputError, check_own
from headspaces.jobs.job import job
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers_file import load_headers
from headspaces.weights.hub.repository import moved_revision

layers, path = snakemake.params.layers, snakemake.input.headers
with job(snakemake.log[0], snakemake.threads) as log:
    headers = load_headers(path)
    check_own(path, {"source": headers.source}, {"source": snakemake.params.source})
    fetch_block(headers, range(layers[0], layers[-1] + 1), snakemake.output[0])
    # Asked once a model. What has been fetched is whole, whether or not the Hub answers.
    with suppress(InputError):
        if layers[0] == 0 and (moved := moved_revision(headers)):
            log.warning(
                "%s is commit %s by now; what was fetched is %s, whose headers were read: for the new one delete %s",
                headers.source, moved, headers.revision, path,
            )  # fmt: skip
