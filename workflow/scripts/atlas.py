from headspaces.jobs.job import job
from headspaces.report.atlas import atlas_page, principal_cosines, stored_bases
from headspaces.store import read_arrays, read_attributes
from headspaces.text_tables import write_text

inputs = snakemake.input
with job(snakemake.log[0], snakemake.threads):
    overlaps, attributes = read_arrays(inputs.overlaps, "overlaps"), read_attributes(inputs.overlaps, "overlaps")
    cosines = principal_cosines(overlaps, attributes, stored_bases(inputs.bases))
    stages = {
        stage: read_arrays(inputs[stage], stage) for stage in ("nulls", "attention", "affinity") if inputs.get(stage)
    }
    page = atlas_page(overlaps, attributes, **stages, cosines=cosines, report="../report.html")
    write_text(page, snakemake.output[0])
