"""tables: the papers' tables for the models of a study, as CSV, Markdown and LaTeX."""


rule table:
    """Make one table."""
    input:
        files=lambda wildcards: flat(files_of(TABLES[wildcards.table])),
        published=lambda wildcards: (
            [PUBLISHED] if TABLES[wildcards.table].published else []
        ),
        code=code_of("table"),
    output:
        csv=report(
            "results/report/{study}/tables/{table}.csv",
            caption="../report/item.rst",
            category="Tables",
            labels=lambda wildcards: {
                "table": wildcards.table,
                "shows": TABLES[wildcards.table].title,
            },
        ),
        data="results/report/{study}/tables/{table}.json",
        markdown="results/report/{study}/tables/{table}.md",
        latex="results/report/{study}/tables/{table}.tex",
    log:
        "results/logs/tables/{study}/{table}.log",
    benchmark:
        "results/benchmarks/tables/{study}/{table}.tsv"
    localrule: True
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        files=lambda wildcards: files_of(TABLES[wildcards.table]),
        item=lambda wildcards: asdict(TABLES[wildcards.table]),
    script:
        "../scripts/table.py"
