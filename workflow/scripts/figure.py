from headspaces.jobs.job import job
from headspaces.report.figures.drawing import draw_figure
from headspaces.report.results import read_results

output = snakemake.output
with job(snakemake.log[0], snakemake.threads):
    models = [read_results(model, files) for model, files in snakemake.params.files.items()]
    name, style = snakemake.wildcards.figure, snakemake.input.style
    draw_figure(name, models, style, output.pdf, output.png, output.csv)
