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
include: "workflow/rules/affinity.smk"
include: "workflow/rules/attention.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/cluster.smk"


rule all:
    """The page of the study, which shows every table, figure, atlas and the scorecard."""
    default_target: True
    input:
        f"results/report/{STUDY.name}/report.html",
