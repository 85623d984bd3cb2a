"""figures: the papers' figures for the models of a study, as PDF and PNG, and their numbers as CSV."""


rule figure:
    """Draw one figure."""
    input:
        files=lambda wildcards: flat(files_of(FIGURES[wildcards.figure])),
        style=os.path.join(ROOT, "config/paper.mplstyle"),
        code=code_of("figure"),
    output:
        pdf="results/report/{study}/figures/{figure}.pdf",
        png=report(
            "results/report/{study}/figures/{figure}.png",
            caption="../report/item.rst",
            category="Figures",
            labels=lambda wildcards: {
                "figure": wildcards.figure,
                "shows": FIGURES[wildcards.figure].title,
            },
        ),
        csv="results/report/{study}/figures/{figure}.csv",
    log:
        "results/logs/figures/{study}/{figure}.log",
    benchmark:
        "results/benchmarks/figures/{study}/{figure}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        files=lambda wildcards: files_of(FIGURES[wildcards.figure]),
        item=lambda wildcards: asdict(FIGURES[wildcards.figure]),
    script:
        "../scripts/figure.py"
