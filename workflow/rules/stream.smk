"""stream: the whole residual stream: every writer with every later reader, embeddings, MLPs and unembedding included.

Needs the setting ``stream``, a model's heads, bases and overlaps, and the rest of its weights, which are fetched for this
alone into ``results/weights/{checkpoint}/stream``. Makes ``results/stream/{model}.h5``.
"""

from headspaces.weights.stream_headers import stream_interpretation_of


rule stream_weights:
    """Fetch the MLPs of a block of layers, or what is outside the layers."""
    input:
        headers="results/weights/{checkpoint}/headers.json",
    output:
        (update if SETTINGS["keep_weights"] else temp)(
            "results/weights/{checkpoint}/stream/{part}.safetensors"
        ),
    log:
        "results/logs/stream_weights/{checkpoint}/{part}.log",
    benchmark:
        "results/benchmarks/stream_weights/{checkpoint}/{part}.tsv"
    localrule: True
    resources:
        **request("stream_weights", of_checkpoint=True),
        network=1,
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].source,
        layers=lambda wildcards: list(
            CHECKPOINTS[wildcards.checkpoint].blocks.get(wildcards.part, [])
        ),
        # A mended layout is another understanding of the same headers.
        interpretation=lambda wildcards: stream_interpretation_of(
            f"results/weights/{wildcards.checkpoint}/headers.json"
        ),
    script:
        "../scripts/stream_weights.py"


rule stream:
    """Score every writer of the stream with every later reader, and list the heads' strongest neurons and tokens."""
    input:
        checkpoint=made_checkpoint,
        ends=lambda wildcards: f"results/weights/{KNOWN[wildcards.model].checkpoint}/stream/ends.safetensors",
        layers=lambda wildcards: [
            f"results/weights/{KNOWN[wildcards.model].checkpoint}/stream/{block}.safetensors"
            for block in KNOWN[wildcards.model].blocks
        ],
        weights=blocks("weights", "safetensors"),
        bases=blocks("bases", "h5"),
        overlaps="results/overlaps/{model}.h5",
        code=code_of("stream"),
    output:
        "results/stream/{model}.h5",
    log:
        "results/logs/stream/{model}.log",
    benchmark:
        "results/benchmarks/stream/{model}.tsv"
    threads: threads_of("stream")
    resources:
        **request("stream"),
    params:
        source=of("source"),
        checkpoint=checkpoint_path,
        dtype=of("bases_dtype"),
    script:
        "../scripts/stream.py"
