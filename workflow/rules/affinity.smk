"""affinity: how strongly every head matches every later one (PK), and the graph of the strongest pairs.

Needs a model's weights. Makes ``results/affinity/{model}.h5``, the strongest edges as CSV and their graph.
"""


rule affinity:
    """Score all heads with all later ones."""
    input:
        weights=blocks("weights", "safetensors"),
        classes=head_classes,
        code=code_of("affinity"),
    output:
        scores="results/affinity/{model}.h5",
        edges="results/affinity/{model}.edges.csv",
        graphml="results/affinity/{model}.graphml",
        json="results/affinity/{model}.json",
    log:
        "results/logs/affinity/{model}.log",
    benchmark:
        "results/benchmarks/affinity/{model}.tsv"
    threads: threads_of("affinity")
    resources:
        **request_on_device("affinity", "affinity"),
    params:
        fold=SETTINGS["affinity"]["fold"],
        edges=SETTINGS["affinity"]["edges"],
        dtype=of("nulls_dtype"),
        rtol=SETTINGS["rank_rtol"],
        leave_out_rounding=SETTINGS["leave_out_rounding"],
        invariant_procrustes=of("invariant_procrustes"),
    script:
        "../scripts/affinity.py"
