"""activations: what the heads' writes do on a real text (RW section 5.4).

Needs a text, the whole model and its bases. Makes ``results/activations/{model}.h5``.
"""


rule text:
    """Get the text that the models are run on."""
    output:
        "results/texts/{text}.json",
    log:
        "results/logs/texts/{text}.log",
    benchmark:
        "results/benchmarks/texts/{text}.tsv"
    localrule: True
    conda:
        "../../envs/headspaces.yaml"
    resources:
        network=1,
        mem_mb=1000,
        runtime=30,
    params:
        source=SETTINGS["activations"]["text"],
        characters=SETTINGS["activations"]["windows"]
        * SETTINGS["activations"]["window_tokens"]
        * 10,
    script:
        "../scripts/text.py"


rule activations:
    """Run a model on the text and measure all writes at all later reads."""
    input:
        text=f"results/texts/{TEXT}.json",
        checkpoint=made_checkpoint,
        weights=blocks("weights", "safetensors"),
        bases=blocks("bases", "h5"),
        code=code_of("activations"),
    output:
        "results/activations/{model}.h5",
    log:
        "results/logs/activations/{model}.log",
    benchmark:
        "results/benchmarks/activations/{model}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: threads_of("activations")
    resources:
        network=1,
        mem_mb=asked(memory_mb, "activations"),
        runtime=asked(minutes, "activations"),
    params:
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
    script:
        "../scripts/activations.py"
