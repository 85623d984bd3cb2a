"""How attention heads' read and write spaces overlap: from checkpoints to the tables and figures of two papers."""

from snakemake.utils import min_version

min_version("9.10")


configfile: str(workflow.current_basedir.join("config/config.yaml"))


include: "workflow/rules/common.smk"
include: "workflow/rules/weights.smk"
include: "workflow/rules/bases.smk"
include: "workflow/rules/overlaps.smk"
include: "workflow/rules/nulls.smk"
include: "workflow/rules/self_heads.smk"
include: "workflow/rules/activations.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


rule all:
    """Every table and figure of the study."""
    default_target: True
    input:
        expand(
            "results/report/{study}/tables/{table}.csv", study=STUDY.name, table=TABLES
        ),
        expand(
            "results/report/{study}/figures/{figure}.pdf",
            study=STUDY.name,
            figure=FIGURES,
        ),
