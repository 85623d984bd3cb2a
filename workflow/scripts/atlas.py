from headspaces.jobs.job import job
from headspaces.report.atlas import atlas_page, principal_cosines, stored_bases
from headspaces.store import read_arrays, read_attributes
from headspaces.text_tables import write_text

inputs = snakemake.input
with job(snakemake.log[0], snakemake.threads):
    overlaps, attributes = read_arrays(inputs.overlaps, "overlaps"), read_attributes(inputs.overlaps, "overlaps")
    cosines = principal_cosines(overlaps, attributes, stored_bases(inputs.bases))
    nulls = read_arrays(inputs.nulls, "nulls")
    write_text(atlas_page(overlaps, attributes, nulls=nulls, cosines=cosines), snakemake.output[0])
