from headspaces.activations.forward_pass import cut_windows, load_model, run_facts, run_model, run_numbers
from headspaces.activations.response import READ_BASES, measure
from headspaces.activations.texts import load_text
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, pinned
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.blocks import each_layer

inputs, params, name = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    attributes = joined({path: read_attributes(path, "bases") for path in inputs.bases})
    text = load_text(inputs.text)
    layers = [layer for path in inputs.weights for layer in each_layer(path)]
    model, tokenizer = load_model(next(iter(inputs.checkpoint), pinned(attributes)), name)
    windows = cut_windows(tokenizer, text, params.windows, params.window_tokens)
    run = run_model(model, windows, layers, name)
    arrays = measure(layers, run.layers, (read_arrays(path, "bases", READ_BASES) for path in inputs.bases))
    attributes |= {"model": name, "code_sha256": fingerprint(inputs.code)} | run_facts(model, text, windows, run)
    write_arrays(snakemake.output[0], "activations", arrays | run_numbers(windows, run), attributes)
