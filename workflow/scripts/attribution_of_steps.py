from pathlib import Path

from headspaces.attribution.running import open_running
from headspaces.attribution.stage import attribution, losses
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, model_attributes
from headspaces.store import write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

inputs, params = snakemake.input, snakemake.params
with job(snakemake.log[0], snakemake.threads):
    code = fingerprint(inputs.code)
    for output, config, block, name in zip(
        snakemake.output, inputs.checkpoint[::2], inputs.weights, params.models, strict=True
    ):
        model = open_running(str(Path(config).parent), list(each_layer(block)), name)
        # The trained model has no text.
        chosen = losses(model, None, 0, 0, params.seed)
        arrays, values = attribution(model, chosen, 0)
        own = {"model": name, "code_sha256": code, "dtype": "float32"}
        attributes = joined({block: model_attributes(read_metadata(block))})
        write_arrays(output, "attribution", arrays, attributes | own | chosen.facts | values)
