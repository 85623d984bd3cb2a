"""plan: what the study will cost, before anything of it is fetched.

Needs nothing; headers that are there already make it exact. Makes ``results/plan/{study}.tsv`` and ``.md``.
"""


rule plan:
    """Print the study's costs. The rate is that of the moment, so this runs whenever it is asked for."""
    log:
        f"results/logs/plan/{STUDY.name}.log",
    localrule: True
    conda:
        "../../envs/headspaces.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        table=f"results/plan/{STUDY.name}.tsv",
        page=f"results/plan/{STUDY.name}.md",
        models=list(MODELS.values()),
        stages={name: STUDY.stages_of(name) for name in MODELS},
        headers={name: f"results/weights/{name}/headers.json" for name in MODELS},
        machine=SETTINGS.get("plan"),
        samples=SETTINGS["nulls"]["samples"],
        swap=SETTINGS["nulls"]["swap"],
        tokens=SETTINGS["activations"]["windows"]
        * SETTINGS["activations"]["window_tokens"],
    script:
        "../scripts/plan.py"
