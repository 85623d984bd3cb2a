"""attention: what heads attend to, from the model's own forward pass (PK figure 7), and the words that they write.

Needs a text and the whole model. Makes ``results/attention/{model}.h5``.
"""


rule toy_model:
    """Train a two-layer attention-only transformer until it has induction heads (PK figure 4)."""
    input:
        code=code_of("toy_model"),
    output:
        "results/weights/{model}/checkpoint/config.json",
        "results/weights/{model}/checkpoint/model.safetensors",
    log:
        "results/logs/toy_model/{model}.log",
    benchmark:
        "results/benchmarks/toy_model/{model}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: 2
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        seed=lambda wildcards: int(MODELS[wildcards.model].source.removeprefix("toy:")),
    script:
        "../scripts/toy_model.py"


rule attention:
    """Run a model on the text and on repeated random tokens."""
    input:
        text=f"results/texts/{TEXT}.json",
        checkpoint=made_checkpoint,
        weights=blocks("weights", "safetensors"),
        code=code_of("attention"),
    output:
        "results/attention/{model}.h5",
    log:
        "results/logs/attention/{model}.log",
    benchmark:
        "results/benchmarks/attention/{model}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: threads_of("attention")
    resources:
        network=1,
        mem_mb=asked(memory_mb, "attention"),
        runtime=asked(minutes, "attention"),
    params:
        checkpoint=checkpoint_path,
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
        seed=SETTINGS["seed"],
    script:
        "../scripts/attention.py"
