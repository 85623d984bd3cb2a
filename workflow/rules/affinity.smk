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
    conda:
        "../../envs/headspaces.yaml"
    threads: threads_of("affinity")
    resources:
        **gpu("affinity", "affinity"),
        mem_mb=asked(memory_mb, "affinity", device=device_of("affinity")),
        runtime=asked(minutes, "affinity"),
    params:
        fold=SETTINGS["affinity"]["fold"],
        edges=SETTINGS["affinity"]["edges"],
        dtype=lambda wildcards: MODELS[wildcards.model].nulls_dtype,
        # For a large model it costs as much as all other scores together.
        invariant_procrustes=lambda wildcards: MODELS[wildcards.model].bases_bytes
        < 2**31,
    script:
        "../scripts/affinity.py"
