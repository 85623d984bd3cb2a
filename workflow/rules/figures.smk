"""figures: the papers' figures for the models of a study, as PDF and PNG, and their numbers as CSV.

Figures that read the same files are one job: to start it takes longer than to draw a figure.
"""

for group, names in groups_of(FIGURES).items():

    rule:
        name:
            f"figures_{group}"
        input:
            files=flat(files_of(FIGURES[names[0]])),
            style=os.path.join(ROOT, "config/paper.mplstyle"),
            code=code_of("figures"),
        output:
            png=[
                report(
                    f"results/report/{{study}}/figures/{name}.png",
                    category="Figures",
                    labels={"figure": name, "shows": FIGURES[name].title},
                )
                for name in names
            ],
            other=[
                f"results/report/{{study}}/figures/{name}.{suffix}"
                for name in names
                for suffix in ("pdf", "csv")
            ],
        log:
            f"results/logs/figures/{{study}}/{group}.log",
        benchmark:
            f"results/benchmarks/figures/{{study}}/{group}.tsv"
        localrule: True
        resources:
            mem_mb=2000,
            runtime=10,
        params:
            folder="results/report/{study}/figures",
            files=files_of(FIGURES[names[0]]),
            figures={name: asdict(FIGURES[name]) for name in names},
        script:
            "../scripts/figures.py"
