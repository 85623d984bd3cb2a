"""bases: orthonormal bases, ranks and direct sums of every head's spaces.

Needs a block of weights. Makes ``results/bases/{model}/{block}.h5``.
"""


rule bases:
    """Compute the spaces of a block of layers."""
    input:
        weights="results/weights/{model}/{block}.safetensors",
        code=code_of("bases"),
    output:
        "results/bases/{model}/{block}.h5",
    log:
        "results/logs/bases/{model}/{block}.log",
    benchmark:
        "results/benchmarks/bases/{model}/{block}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: threads_of("bases")
    resources:
        mem_mb=asked(memory_mb, "bases"),
        runtime=asked(minutes, "bases"),
    params:
        source=lambda wildcards: MODELS[wildcards.model].source,
        layers=lambda wildcards: list(MODELS[wildcards.model].blocks[wildcards.block]),
        fold=SETTINGS["fold"],
        rtol=SETTINGS["rank_rtol"],
        dtype=lambda wildcards: MODELS[wildcards.model].bases_dtype,
    script:
        "../scripts/bases.py"
