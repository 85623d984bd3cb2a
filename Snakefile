"""For `snakemake` typed here: the workflow is workflow/Snakefile."""


include: "workflow/Snakefile"


# An included file's default target is none.
workflow.default_target = "all"
