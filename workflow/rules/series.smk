"""series: the checkpoints of one training, step by step, and how far every head has come.

Needs every step's overlaps, nulls and bases, and where the model runs, what it does by then and its edges' effects. Makes
``results/series/{series}.h5``. A step is a model like any other, so that a new one is computed alone.
"""

from headspaces.study.series import TOY_STEPS

# Of a step so small that starting the jobs would take longer than their work, all null samples are one job's: whether it is a
# model of the report, too, as the last step is, does not count, or the next step would have it made anew.
AT_ONCE = [name for name, model in STUDY.steps.items() if model.nulls_at_once]


ruleorder: nulls_at_once > nulls


rule nulls_at_once:
    """Draw all samples of all null models of a small model, as the shards would."""
    input:
        weights=blocks("weights", "safetensors"),
        bases=blocks("bases", "h5"),
        overlaps="results/overlaps/{model}.h5",
        code=code_of("nulls_at_once"),
    output:
        "results/nulls/{model}.h5",
    log:
        "results/logs/nulls/{model}.log",
    benchmark:
        "results/benchmarks/nulls/{model}.tsv"
    wildcard_constraints:
        model="|".join(re.escape(name) for name in AT_ONCE) or "(?!)",
    resources:
        **request("nulls_at_once"),
    params:
        source=of("source"),
        samples=SETTINGS["nulls"]["samples"],
        swap=SETTINGS["nulls"]["swap"],
        seed=SETTINGS["seed"],
        fold=SETTINGS["fold"],
        dtype=of("nulls_dtype"),
        swap_dtype=of("scores_dtype"),
        kinds=of("kinds"),
        shape=of("shape"),
    script:
        "../scripts/nulls_at_once.py"


rule attribution_of_steps:
    """Measure the edges' effects at all steps of a training done here: ten jobs would mostly start Python."""
    input:
        checkpoint=lambda wildcards: [
            f"results/weights/{SERIES[wildcards.series].trained.checkpoint}/checkpoint/step{step}/{name}"
            for step in TOY_STEPS
            for name in ("config.json", "model.safetensors")
        ],
        weights=lambda wildcards: [
            f"results/weights/{model.checkpoint}/{block}.safetensors"
            for model in SERIES[wildcards.series].steps.values()
            for block in model.blocks
        ],
        code=code_of("attribution_of_steps"),
    output:
        [f"results/attribution/{{series}}/step{step}.h5" for step in TOY_STEPS],
    log:
        "results/logs/attribution/{series}.steps.log",
    benchmark:
        "results/benchmarks/attribution/{series}.steps.tsv"
    wildcard_constraints:
        series="|".join(re.escape(name) for name, one in SERIES.items() if one.trained)
        or "(?!)",
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        models=lambda wildcards: [
            model.name for model in SERIES[wildcards.series].steps.values()
        ],
        seed=SETTINGS["seed"],
    script:
        "../scripts/attribution_of_steps.py"


rule series:
    """Put the steps of a series together."""
    input:
        steps=lambda wildcards: [
            path
            for step in series_steps(wildcards)
            for path in (*step["files"].values(), *step["bases"], step["run"])
            if path
        ],
        code=code_of("series"),
    output:
        "results/series/{series}.h5",
    log:
        "results/logs/series/{series}.log",
    benchmark:
        "results/benchmarks/series/{series}.tsv"
    localrule: True
    resources:
        mem_mb=series_memory,
        runtime=30,
    params:
        steps=series_steps,
        source=lambda wildcards: SERIES[wildcards.series].source,
    script:
        "../scripts/series.py"
