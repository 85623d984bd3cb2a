"""report: what a reader opens: published beside measured, one interactive page a model, and the page of the study.

``snakemake --report FILE.html`` makes Snakemake's own report: rules, their code, and when each job ran. It cannot be the
page of the study: it shows categories by name, not the scorecard first, and a table as a file, without its rows.
"""


report: "../report/workflow.rst"


# By model and stage, the files of the study.
STAGE_FILES = {
    model: {
        stage: f"results/{stage}/{model}.h5"
        for stage in STUDY.stages_of(model)
        if stage in STAGES
    }
    for model in MODELS
}
# The models whose edges have been tested against chance.
GRAPHS = [
    name for name, files in STAGE_FILES.items() if {"affinity", "nulls"} <= set(files)
]

# By series, the steps that have a page of their own: some of a long one.
STEPS = {name: spread(list(series.steps), 20) for name, series in SERIES.items()}
# What either side of the page of two atlases can show: a model, or the steps of a series.
SIDES = {name: {"": f"atlas/{name}.html"} for name in MODELS if name not in STUDY.steps}
SIDES |= {
    f"{name}, by step": {
        str(step): f"atlas/{SERIES[name].steps[step].name}.html" for step in steps
    }
    for name, steps in STEPS.items()
}


rule scorecard:
    """Put what was measured beside every number that the papers print."""
    input:
        published=PUBLISHED,
        reference=REFERENCE,
        registry=items.ITEMS_FILE,
        tables=expand("results/report/{{study}}/tables/{table}.csv", table=TABLES),
        code=code_of("scorecard"),
    output:
        csv=report(
            "results/report/{study}/scorecard.csv",
            caption="../report/scorecard.rst",
            category="Scorecard",
        ),
        markdown="results/report/{study}/scorecard.md",
        data="results/report/{study}/scorecard.json",
        reference=multiext("results/report/{study}/reference", ".csv", ".md", ".json"),
    log:
        "results/logs/scorecard/{study}.log",
    benchmark:
        "results/benchmarks/scorecard/{study}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        names=list(TABLES),
        published_as=STUDY.published_as,
        settings=SETTINGS,
        models=list(MODELS),
    script:
        "../scripts/scorecard.py"


rule duplicates:
    """Find models of the study that turn out to be one."""
    input:
        weights=[
            f"results/weights/{model.checkpoint}/{block}.safetensors"
            for name, model in MODELS.items()
            for block in model.blocks
        ],
        overlaps=[f"results/overlaps/{model}.h5" for model in MODELS],
        code=code_of("duplicates"),
    output:
        "results/report/{study}/duplicates.csv",
    log:
        "results/logs/duplicates/{study}.log",
    benchmark:
        "results/benchmarks/duplicates/{study}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        models=list(MODELS),
        n_blocks=[len(model.blocks) for model in MODELS.values()],
        strict=SETTINGS["strict"],
    script:
        "../scripts/duplicates.py"


rule atlas:
    """Make a model's interactive page."""
    input:
        files=lambda wildcards: paths_of(atlas_of(wildcards.model)),
        code=code_of("atlas"),
        templates=templates("page") + templates("atlas"),
    output:
        "results/report/{study}/atlas/{model}.html",
    log:
        "results/logs/atlas/{study}/{model}.log",
    benchmark:
        "results/benchmarks/atlas/{study}/{model}.tsv"
    wildcard_constraints:
        model="|".join(re.escape(name) for name in MODELS),
    threads: 2
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        models=lambda wildcards: [atlas_of(wildcards.model)],
    script:
        "../scripts/atlas.py"


for number, (name, steps) in enumerate(STEPS.items()):
    # One job: of small models the start takes longer than the page.
    models = [SERIES[name].steps[step].name for step in steps]
    models = [model for model in models if model not in MODELS]
    if not models:
        continue

    rule:
        name:
            f"atlas_of_steps_{number}"
        input:
            files=[path for model in models for path in paths_of(atlas_of(model))],
            code=code_of("atlas"),
            templates=templates("page") + templates("atlas"),
        output:
            [f"results/report/{{study}}/atlas/{model}.html" for model in models],
        log:
            f"results/logs/atlas/{{study}}/{name}.steps.log",
        benchmark:
            f"results/benchmarks/atlas/{{study}}/{name}.steps.tsv"
        resources:
            mem_mb=4000,
            runtime=60,
        params:
            models=[atlas_of(model) for model in models],
        script:
            "../scripts/atlas.py"


rule side_by_side:
    """Make the page that shows two atlases beside each other."""
    input:
        pages=[
            f"results/report/{{study}}/{page}"
            for pages in SIDES.values()
            for page in pages.values()
        ],
        code=code_of("side_by_side"),
        templates=templates("page") + templates("side_by_side"),
    output:
        "results/report/{study}/side_by_side.html",
    log:
        "results/logs/side_by_side/{study}.log",
    benchmark:
        "results/benchmarks/side_by_side/{study}.tsv"
    localrule: True
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        choices=SIDES,
    script:
        "../scripts/side_by_side.py"


rule report_page:
    """Make the page of a study: scorecard, figures, tables, models, provenance."""
    input:
        scorecard="results/report/{study}/scorecard.json",
        reference="results/report/{study}/reference.json",
        duplicates="results/report/{study}/duplicates.csv",
        tables=expand("results/report/{{study}}/tables/{table}.json", table=TABLES),
        figures=expand("results/report/{{study}}/figures/{figure}.png", figure=FIGURES),
        atlases=expand("results/report/{{study}}/atlas/{model}.html", model=MODELS),
        side_by_side=(
            ["results/report/{study}/side_by_side.html"]
            if sum(map(len, SIDES.values())) > 1
            else []
        ),
        graphs=expand("results/report/{{study}}/graphs/{model}.graphml", model=GRAPHS),
        stages=flat(STAGE_FILES),
        registry=items.ITEMS_FILE,
        code=code_of("report_page"),
        templates=templates("page") + templates("report"),
    output:
        "results/report/{study}/report.html",
    log:
        "results/logs/report_page/{study}.log",
    benchmark:
        "results/benchmarks/report_page/{study}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        stages=STAGE_FILES,
        settings=SETTINGS,
        notes={name: model.note for name, model in MODELS.items() if model.note},
        left_out={
            name: {
                stage: models[name]
                for stage, models in STUDY.stages.items()
                if name in models
            }
            for name in MODELS
        },
        benchmarks="results/benchmarks",
        text=TEXT,
    script:
        "../scripts/report_page.py"
