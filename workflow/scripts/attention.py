from headspaces.activations.attention import attention_patterns, open_runner, pattern_facts, token_texts, top_tokens
from headspaces.activations.texts import load_text
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, model_attributes, pinned
from headspaces.store import write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

inputs, params, name = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    attributes = joined({path: model_attributes(read_metadata(path)) for path in inputs.weights})
    checkpoint = params.checkpoint or pinned(attributes)
    runner = open_runner(checkpoint, name, load_text(inputs.text), params.windows, params.window_tokens, params.seed)
    repeats = {"n_sequences": 8, "n_repeated": 64, "seed": params.seed}
    arrays = attention_patterns(runner, **repeats)
    rounding = params.leave_out_rounding
    layers = [layer for path in inputs.weights for layer in each_layer(path, leave_out_rounding=rounding)]
    arrays["top_tokens"] = top_tokens(layers, runner.unembedding, rtol=params.rtol)
    if (texts := token_texts(arrays["top_tokens"], runner)) is not None:
        arrays["top_token_texts"] = texts
    own = {"model": name, "leave_out_rounding": rounding, "code_sha256": fingerprint(inputs.code)} | pattern_facts(
        runner, **repeats
    )
    write_arrays(snakemake.output[0], "attention", arrays, attributes | own)
