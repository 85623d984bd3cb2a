"""text: what the models are run on.

Needs a source of text. Makes ``results/texts/{text}.json``.
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
