"""overlaps: the observed geometry of all head pairs.

Needs a model's bases and weights. Makes ``results/overlaps/{model}.h5``.
"""


rule overlaps:
    """Compute overlaps, angles and composition scores of all head pairs."""
    input:
        bases=blocks("bases", "h5"),
        weights=blocks("weights", "safetensors"),
        code=code_of("overlaps"),
    output:
        "results/overlaps/{model}.h5",
    log:
        "results/logs/overlaps/{model}.log",
    benchmark:
        "results/benchmarks/overlaps/{model}.tsv"
    threads: threads_of("overlaps")
    resources:
        **request_on_device("overlaps", "overlaps"),
    params:
        source=of("source"),
        name=lambda wildcards: wildcards.model,
    script:
        "../scripts/overlaps.py"
