"""self_heads: whether a head's own spaces overlap more than those of different heads (RW appendix H).

Needs a model's bases. Makes ``results/self_heads/{model}.h5``.
"""


rule self_heads:
    """Compare every head's own spaces with other heads', with permuted labels."""
    input:
        bases=blocks("bases", "h5"),
        code=sources("self_heads", "store", "provenance"),
    output:
        "results/self_heads/{model}.h5",
    log:
        "results/logs/self_heads/{model}.log",
    benchmark:
        "results/benchmarks/self_heads/{model}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        seed=SETTINGS["seed"],
    script:
        "../scripts/self_heads.py"
