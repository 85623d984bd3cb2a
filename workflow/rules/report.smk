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
        overlaps="results/overlaps/{model}.h5",
        nulls="results/nulls/{model}.h5",
        attention=stage_file("attention"),
        affinity=stage_file("affinity"),
        bases=blocks("bases", "h5"),
        code=code_of("atlas"),
        templates=templates("page") + templates("atlas"),
    output:
        "results/report/{study}/atlas/{model}.html",
    log:
        "results/logs/atlas/{study}/{model}.log",
    benchmark:
        "results/benchmarks/atlas/{study}/{model}.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=30,
    script:
        "../scripts/atlas.py"


rule report_page:
    """Make the page of a study: scorecard, figures, tables, models, provenance."""
    input:
        scorecard="results/report/{study}/scorecard.json",
        reference="results/report/{study}/reference.json",
        duplicates="results/report/{study}/duplicates.csv",
        tables=expand("results/report/{{study}}/tables/{table}.json", table=TABLES),
        figures=expand("results/report/{{study}}/figures/{figure}.png", figure=FIGURES),
        atlases=expand("results/report/{{study}}/atlas/{model}.html", model=MODELS),
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
