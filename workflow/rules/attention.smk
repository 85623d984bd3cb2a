"""attention: what heads attend to, from the model's own forward pass (PK figure 7), and the words that they write.

Needs a text and the whole model. Makes ``results/attention/{model}.h5``.
"""


rule attention:
    """Run a model on the text and on repeated random tokens."""
    input:
        text=f"results/texts/{TEXT}.json",
        checkpoint=run_files,
        weights=blocks("weights", "safetensors"),
        code=code_of("attention"),
    output:
        "results/attention/{model}.h5",
    log:
        "results/logs/attention/{model}.log",
    benchmark:
        "results/benchmarks/attention/{model}.tsv"
    threads: threads_of("attention")
    resources:
        **request("attention"),
        network=1,
    params:
        checkpoint=run_path,
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
        seed=SETTINGS["seed"],
        rtol=SETTINGS["rank_rtol"],
        leave_out_rounding=SETTINGS["leave_out_rounding"],
    script:
        "../scripts/attention.py"
