"""affinity: how strongly every head matches every later one (PK), and the graph of the strongest pairs.

Needs a model's weights. Makes ``results/affinity/{model}.h5``, the strongest edges as CSV and their graph; and, with the
null samples, ``results/report/{study}/graphs/{model}.graphml``, where the edges that stand against chance are too.
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
        dtype=of("scores_dtype"),
        rtol=SETTINGS["rank_rtol"],
        leave_out_rounding=SETTINGS["leave_out_rounding"],
        invariant_procrustes=of("invariant_procrustes"),
    script:
        "../scripts/affinity.py"


rule graph:
    """Put the strongest edges and those that stand against the swap null in one graph of a model's heads."""
    input:
        affinity="results/affinity/{model}.h5",
        overlaps="results/overlaps/{model}.h5",
        nulls="results/nulls/{model}.h5",
        attribution=lambda wildcards: (
            [f"results/attribution/{wildcards.model}.h5"]
            if "attribution" in STUDY.stages_of(wildcards.model)
            else []
        ),
        code=code_of("graph"),
    output:
        graphml="results/report/{study}/graphs/{model}.graphml",
        json="results/report/{study}/graphs/{model}.json",
    log:
        "results/logs/graph/{study}/{model}.log",
    benchmark:
        "results/benchmarks/graph/{study}/{model}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        edges=SETTINGS["affinity"]["edges"],
    script:
        "../scripts/graph.py"
