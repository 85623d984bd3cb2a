"""plan: what the study will cost, before anything of it is fetched.

Needs nothing; headers that are there already make it exact. Makes ``results/plan/{study}.tsv`` and ``.md``.
"""

import time


rule plan:
    """Print the study's costs."""
    output:
        table=f"results/plan/{STUDY.name}.tsv",
        page=f"results/plan/{STUDY.name}.md",
    log:
        f"results/logs/plan/{STUDY.name}.log",
    localrule: True
    resources:
        mem_mb=500,
        runtime=10,
    params:
        # The machine's rate is that of the moment: another moment runs this again.
        moment=time.time(),
        models=list(KNOWN.values()),
        stages={
            name: [
                "nulls_at_once" if stage == "nulls" and name in AT_ONCE else stage
                for stage in STUDY.stages_of(name)
            ]
            + (["series"] if name in STUDY.steps else [])
            for name in KNOWN
        },
        headers={
            name: f"results/weights/{model.checkpoint}/headers.json"
            for name, model in KNOWN.items()
        },
        machine=SETTINGS.get("plan"),
        samples=SETTINGS["nulls"]["samples"],
        swap=SETTINGS["nulls"]["swap"],
        orthonormal=SETTINGS["nulls"]["orthonormal"],
        edges=SETTINGS["attribution"]["ablated"],
        second_order=SETTINGS["attribution"]["second_order"],
        tokens=SETTINGS["activations"]["windows"]
        * SETTINGS["activations"]["window_tokens"],
    script:
        "../scripts/plan.py"
