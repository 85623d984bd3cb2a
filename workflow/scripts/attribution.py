from headspaces.activations.texts import load_text
from headspaces.attribution.running import open_running
from headspaces.attribution.stage import attribution, losses
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, model_attributes, pinned
from headspaces.store import write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

inputs, params, name = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    attributes = joined({path: model_attributes(read_metadata(path)) for path in inputs.weights})
    layers = [layer for path in inputs.weights for layer in each_layer(path)]
    model = open_running(params.checkpoint or pinned(attributes), layers, name)
    text = load_text(inputs.text)
    chosen = losses(model, text, params.windows, params.window_tokens, params.seed, inputs.get("prompts") or None)
    arrays, values = attribution(model, chosen, params.second_order)
    own = {"model": name, "code_sha256": fingerprint(inputs.code), "dtype": "float32"}
    write_arrays(snakemake.output[0], "attribution", arrays, attributes | own | chosen.facts | values)
