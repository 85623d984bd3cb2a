"""nulls: the spread of overlaps under null models of the same weights (RW sections 5.1 to 5.3) and of the same spaces.

Needs a model's weights, bases and overlaps. Makes ``results/nulls/{model}/{null}.{samples}.h5``, shards of consecutive
samples, and ``results/nulls/{model}.h5``, the first samples that the study asks for. A sample's numbers depend on the
seed, the model and its own number alone: more samples are more shards. The swap null's samples all start from the bases
in ``results/nulls/{model}/swap.start.{block}.h5``, which have forgotten the observed ones. ``results/orthonormal/{model}.h5``
has some samples of RW's null models that do not depend on the bases inside heads: of orthonormal columns.
"""


rule null_shard:
    """Draw some samples of one of RW's null models."""
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


rule swap_start:
    """Burn the swap null model in: bases of a block of layers after some sweeps."""
    input:
        bases="results/bases/{model}/{block}.h5",
        code=code_of("swap_start"),
    output:
        "results/nulls/{model}/swap.start.{block}.h5",
    log:
        "results/logs/nulls/{model}/swap.start.{block}.log",
    benchmark:
        "results/benchmarks/nulls/{model}/swap.start.{block}.tsv"
    threads: threads_of("swap_start")
    resources:
        **request("swap_start", burn_in=SETTINGS["nulls"]["swap"]["burn_in"]),
    params:
        seed=SETTINGS["seed"],
        dtype=of("scores_dtype"),
        burn_in=SETTINGS["nulls"]["swap"]["burn_in"],
    script:
        "../scripts/swap_start.py"


rule swap_shard:
    """Draw some samples of the swap null model."""
    input:
        start=lambda wildcards: [
            f"results/nulls/{wildcards.model}/swap.start.{block}.h5"
            for block in KNOWN[wildcards.model].blocks
        ],
        overlaps="results/overlaps/{model}.h5",
        code=code_of("swap_shard"),
    output:
        "results/nulls/{model}/swap.{samples}.h5",
    log:
        "results/logs/nulls/{model}/swap.{samples}.log",
    benchmark:
        "results/benchmarks/nulls/{model}/swap.{samples}.tsv"
    threads: threads_of("swap_shard")
    resources:
        **request_on_device(
            "swap_shard", "nulls", sweeps=SETTINGS["nulls"]["swap"]["sweeps"]
        ),
    params:
        **SETTINGS["nulls"]["swap"],
        seed=SETTINGS["seed"],
        dtype=of("scores_dtype"),
        kinds=of("kinds"),
        shape=of("shape"),
    script:
        "../scripts/swap_shard.py"


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
        swap=SETTINGS["nulls"]["swap"],
        seed=SETTINGS["seed"],
        kinds=of("kinds"),
        shape=of("shape"),
    script:
        "../scripts/nulls.py"


rule orthonormal:
    """Draw RW's null models once more, of the same spaces given by orthonormal columns."""
    input:
        bases=blocks("bases", "h5"),
        code=code_of("orthonormal"),
    output:
        "results/orthonormal/{model}.h5",
    log:
        "results/logs/orthonormal/{model}.log",
    benchmark:
        "results/benchmarks/orthonormal/{model}.tsv"
    threads: threads_of("orthonormal")
    resources:
        **request_on_device(
            "orthonormal", "nulls", orthonormal=SETTINGS["nulls"]["orthonormal"]
        ),
    params:
        samples=SETTINGS["nulls"]["orthonormal"],
        seed=SETTINGS["seed"],
        dtype=of("nulls_dtype"),
        kinds=of("kinds"),
        shape=of("shape"),
    script:
        "../scripts/orthonormal.py"
