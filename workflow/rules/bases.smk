"""bases: orthonormal bases, ranks and direct sums of every head's spaces.

Needs a block of weights. Makes ``results/bases/{model}/{block}.h5``.
"""


rule bases:
    """Compute the spaces of a block of layers."""
    input:
        weights=lambda wildcards: f"results/weights/{KNOWN[wildcards.model].checkpoint}/{wildcards.block}.safetensors",
        code=code_of("bases"),
    output:
        "results/bases/{model}/{block}.h5",
    log:
        "results/logs/bases/{model}/{block}.log",
    benchmark:
        "results/benchmarks/bases/{model}/{block}.tsv"
    threads: threads_of("bases")
    resources:
        **request("bases"),
    params:
        source=of("source"),
        layers=lambda wildcards: list(KNOWN[wildcards.model].blocks[wildcards.block]),
        fold=SETTINGS["fold"],
        rtol=SETTINGS["rank_rtol"],
        leave_out_rounding=SETTINGS["leave_out_rounding"],
        dtype=of("bases_dtype"),
    script:
        "../scripts/bases.py"
