import platform

from headspaces.jobs.job import job
from headspaces.report.scorecard import read_tables, scorecard, setting_texts
from headspaces.report.scorecard_pages import write_scorecard
from headspaces.study.published import compared_as, of_models, read_published

inputs, output, params = snakemake.input, snakemake.output, snakemake.params
with job(snakemake.log[0], snakemake.threads):
    tables = read_tables(dict(zip(params.names, inputs.tables, strict=True)))
    # The demo's text is a module of Python: another Python has another.
    settings = setting_texts(params.settings) | {"python": ".".join(platform.python_version_tuple()[:2])}
    published = compared_as(read_published(inputs.published), params.published_as)
    card = scorecard(published, tables, settings)
    write_scorecard(card, output.csv, output.markdown, output.data, params.published_as)
    reference = scorecard(of_models(read_published(inputs.reference), params.models), tables, settings)
    write_scorecard(reference, *output.reference, heading="As on other machines")
