"""activations: what the heads' writes do on a real text (RW section 5.4).

Needs a text, the whole model and its bases. Makes ``results/activations/{model}.h5``.
"""


rule activations:
    """Run a model on the text and measure all writes at all later reads."""
    input:
        text=f"results/texts/{TEXT}.json",
        checkpoint=run_files,
        weights=blocks("weights", "safetensors"),
        bases=blocks("bases", "h5"),
        code=code_of("activations"),
    output:
        "results/activations/{model}.h5",
    log:
        "results/logs/activations/{model}.log",
    benchmark:
        "results/benchmarks/activations/{model}.tsv"
    threads: threads_of("activations")
    resources:
        **request("activations"),
        network=1,
    params:
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
    script:
        "../scripts/activations.py"
