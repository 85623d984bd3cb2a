from headspaces.activations.texts import load_text
from headspaces.attribution.running import open_running
from headspaces.attribution.stage import ablation, choose_edges, losses, scores_to_choose_by
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, model_attributes, pinned
from headspaces.store import read_arrays, write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

inputs, params, name = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    attributes = joined({path: model_attributes(read_metadata(path)) for path in inputs.weights})
    layers = [layer for path in inputs.weights for layer in each_layer(path)]
    model = open_running(params.checkpoint or pinned(attributes), layers, name)
    chosen = losses(model, load_text(inputs.text), params.windows, params.window_tokens, params.seed)
    effects = read_arrays(inputs.attribution, "attribution")
    scores = scores_to_choose_by(effects, read_arrays(inputs.overlaps, "overlaps"), next(iter(chosen.cases)))
    arrays = ablation(model, chosen, effects, choose_edges(scores, params.edges, params.seed))
    own = {"model": name, "code_sha256": fingerprint(inputs.code), "loss": next(iter(chosen.cases))}
    write_arrays(snakemake.output[0], "ablation", arrays, attributes | own | chosen.facts)
