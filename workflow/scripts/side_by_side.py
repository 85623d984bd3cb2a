from headspaces.jobs.job import job
from headspaces.report.side_by_side import side_by_side_page
from headspaces.text_tables import write_text

with job(snakemake.log[0], snakemake.threads):
    page = side_by_side_page(snakemake.wildcards.study, snakemake.params.choices, report="report.html")
    write_text(page, snakemake.output[0])
