from headspaces.jobs.job import job
from headspaces.report.figures.drawing import draw_figure
from headspaces.report.results import read_results

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    models = [read_results(model, files) for model, files in params.files.items()]
    for name in params.figures:
        paths = (f"{params.folder}/{name}.{suffix}" for suffix in ("pdf", "png", "csv"))
        draw_figure(name, models, snakemake.input.style, *paths)
