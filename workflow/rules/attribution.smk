"""attribution: how much every edge from a write to a later read matters to the loss, first order; ablation: exactly.

Needs a text and the whole model; the ablation also the overlaps, to choose the strongest edges by. Makes
``results/attribution/{model}.h5`` and ``results/ablation/{model}.h5``.
"""


rule attribution:
    """Run a model forth and back on the text and on repeated random tokens, and multiply all writes with all gradients."""
    input:
        prompts=SETTINGS["attribution"].get("prompts", []),
        text=f"results/texts/{TEXT}.json",
        checkpoint=run_files,
        weights=blocks("weights", "safetensors"),
        code=code_of("attribution"),
    output:
        "results/attribution/{model}.h5",
    log:
        "results/logs/attribution/{model}.log",
    benchmark:
        "results/benchmarks/attribution/{model}.tsv"
    threads: threads_of("attribution")
    resources:
        **request("attribution", second_order=SETTINGS["attribution"]["second_order"]),
        network=1,
    params:
        checkpoint=run_path,
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
        seed=SETTINGS["seed"],
        second_order=SETTINGS["attribution"]["second_order"],
    script:
        "../scripts/attribution.py"


rule ablation:
    """Take the strongest edges out of the model, one by one."""
    input:
        text=f"results/texts/{TEXT}.json",
        checkpoint=run_files,
        weights=blocks("weights", "safetensors"),
        attribution="results/attribution/{model}.h5",
        overlaps="results/overlaps/{model}.h5",
        code=code_of("ablation"),
    output:
        "results/ablation/{model}.h5",
    log:
        "results/logs/ablation/{model}.log",
    benchmark:
        "results/benchmarks/ablation/{model}.tsv"
    threads: threads_of("ablation")
    resources:
        **request("ablation", edges=SETTINGS["attribution"]["ablated"]),
        network=1,
    params:
        checkpoint=run_path,
        windows=SETTINGS["activations"]["windows"],
        window_tokens=SETTINGS["activations"]["window_tokens"],
        seed=SETTINGS["seed"],
        edges=SETTINGS["attribution"]["ablated"],
    script:
        "../scripts/ablation.py"
