"""nulls: the spread of overlaps under two null models of the same weights (RW sections 5.1 to 5.3).

Needs a model's weights and overlaps. Makes ``results/nulls/{model}/{null}.{samples}.h5``, shards of consecutive samples,
and ``results/nulls/{model}.h5``, the first samples that the study asks for. A sample's numbers depend on the seed, the
model and its own number alone: more samples are more shards.
"""


rule null_shard:
    """Draw some samples of one null model."""
    input:
        weights=blocks("weights", "safetensors"),
        overlaps="results/overlaps/{model}.h5",
        code=code_of("null_shard"),
    output:
        "results/nulls/{model}/{null}.{samples}.h5",
    log:
        "results/logs/nulls/{model}/{null}.{samples}.log",
    benchmark:
        "results/benchmarks/nulls/{model}/{null}.{samples}.tsv"
    threads: threads_of("null_shard")
    resources:
        **request_on_device("null_shard", "nulls"),
    params:
        source=of("source"),
        seed=SETTINGS["seed"],
        fold=SETTINGS["fold"],
        dtype=of("nulls_dtype"),
        kinds=of("kinds"),
        shape=of("shape"),
        layers_kept=of("layers_kept"),
    script:
        "../scripts/null_shard.py"


rule nulls:
    """Put the shards of a model's null samples together."""
    input:
        shards=null_shards,
        code=code_of("nulls"),
    output:
        "results/nulls/{model}.h5",
    log:
        "results/logs/nulls/{model}.log",
    benchmark:
        "results/benchmarks/nulls/{model}.tsv"
    threads: threads_of("nulls")
    resources:
        **request("nulls"),
    params:
        samples=SETTINGS["nulls"]["samples"],
        seed=SETTINGS["seed"],
        kinds=of("kinds"),
        shape=of("shape"),
    script:
        "../scripts/nulls.py"
