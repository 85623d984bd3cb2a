"""self_heads: whether a head's own spaces overlap more than those of different heads (RW appendix H).

Needs a model's bases. Makes ``results/self_heads/{model}.h5``.
"""


rule self_heads:
    """Compare every head's own spaces with other heads', with permuted labels."""
    input:
        bases=blocks("bases", "h5"),
        code=code_of("self_heads"),
    output:
        "results/self_heads/{model}.h5",
    log:
        "results/logs/self_heads/{model}.log",
    benchmark:
        "results/benchmarks/self_heads/{model}.tsv"
    threads: threads_of("self_heads")
    resources:
        **request("self_heads"),
    params:
        seed=SETTINGS["seed"],
    script:
        "../scripts/self_heads.py"
