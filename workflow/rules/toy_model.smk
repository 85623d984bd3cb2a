"""toy_model: a small transformer that is trained here, for models whose source is ``toy:SEED``.

Needs nothing. Makes the folder ``results/weights/{checkpoint}/checkpoint``, whose weights are read like any other's, and in it
the steps of the training, each with what the model does by then (``run.json``).
"""

from headspaces.study.series import TOY_STEPS


rule toy_model:
    """Train a two-layer attention-only transformer until it has induction heads (PK figure 4)."""
    input:
        code=code_of("toy_model"),
    output:
        "results/weights/{checkpoint}/checkpoint/config.json",
        "results/weights/{checkpoint}/checkpoint/model.safetensors",
        [
            f"results/weights/{{checkpoint}}/checkpoint/step{step}/{name}"
            for step in TOY_STEPS
            for name in ("config.json", "model.safetensors", "run.json")
        ],
    log:
        "results/logs/toy_model/{checkpoint}.log",
    benchmark:
        "results/benchmarks/toy_model/{checkpoint}.tsv"
    # All steps wait for it, and then for each other: begun last it would make the run longer.
    priority: 10
    threads: 2
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        steps=TOY_STEPS,
        seed=lambda wildcards: int(
            CHECKPOINTS[wildcards.checkpoint].source.removeprefix("toy:")
        ),
    script:
        "../scripts/toy_model.py"
