"""tables: the papers' tables for the models of a study, as CSV, Markdown and LaTeX.

Tables that read the same files are one job: to start it takes longer than to make a table.
"""

for group, names in groups_of(TABLES).items():

    rule:
        name:
            f"tables_{group}"
        input:
            files=flat(files_of(TABLES[names[0]])),
            published=[PUBLISHED] if TABLES[names[0]].published else [],
            code=code_of("tables"),
        output:
            csv=[
                report(
                    f"results/report/{{study}}/tables/{name}.csv",
                    category="Tables",
                    labels={"table": name, "shows": TABLES[name].title},
                )
                for name in names
            ],
            other=[
                f"results/report/{{study}}/tables/{name}.{suffix}"
                for name in names
                for suffix in ("md", "tex", "json")
            ],
        log:
            f"results/logs/tables/{{study}}/{group}.log",
        benchmark:
            f"results/benchmarks/tables/{{study}}/{group}.tsv"
        localrule: True
        resources:
            mem_mb=2000,
            runtime=10,
        params:
            folder="results/report/{study}/tables",
            files=files_of(TABLES[names[0]]),
            tables={name: asdict(TABLES[name]) for name in names},
        script:
            "../scripts/tables.py"
