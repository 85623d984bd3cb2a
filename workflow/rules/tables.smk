"""tables: the papers' tables for the models of a study, as CSV, Markdown and LaTeX."""


rule table:
    """Make one table."""
    input:
        files=lambda wildcards: flat(files_of_table(wildcards)),
        code=code_of("table"),
    output:
        csv=report(
            "results/report/{study}/tables/{table}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels=lambda wildcards: {
                "table": wildcards.table,
                "shows": report_items.TABLES[wildcards.table].title,
            },
        ),
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
        files=files_of_table,
    script:
        "../scripts/table.py"
