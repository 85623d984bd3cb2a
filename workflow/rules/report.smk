"""report: what a reader opens: published beside measured, and one interactive page a model."""


rule scorecard:
    """Put what was measured beside every number that the papers print."""
    input:
        published=os.path.join(ROOT, "config/published.tsv"),
        tables=expand("results/report/{{study}}/tables/{table}.csv", table=TABLES),
        code=sources("scorecard"),
    output:
        csv="results/report/{study}/scorecard.csv",
        markdown="results/report/{study}/scorecard.md",
    log:
        "results/logs/scorecard/{study}.log",
    benchmark:
        "results/benchmarks/scorecard/{study}.tsv"
    localrule: True
    conda:
        "../../envs/headspaces.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        names=TABLES,
    script:
        "../scripts/scorecard.py"


rule atlas:
    """Make a model's interactive page."""
    input:
        overlaps="results/overlaps/{model}.h5",
        nulls="results/nulls/{model}.h5",
        bases=blocks("bases", "h5"),
        code=sources("atlas", "store"),
        templates=templates("page") + templates("atlas"),
    output:
        "results/report/{study}/atlas/{model}.html",
    log:
        "results/logs/atlas/{study}/{model}.log",
    benchmark:
        "results/benchmarks/atlas/{study}/{model}.tsv"
    conda:
        "../../envs/headspaces.yaml"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=30,
    script:
        "../scripts/atlas.py"
