from headspaces.jobs.job import job
from headspaces.report.atlas import principal_cosines, stored_bases, write_atlas
from headspaces.store import read_arrays, read_attributes

inputs = snakemake.input
with job(snakemake.log[0], snakemake.threads):
    overlaps, attributes = read_arrays(inputs.overlaps, "overlaps"), read_attributes(inputs.overlaps, "overlaps")
    cosines = principal_cosines(overlaps, attributes, stored_bases(inputs.bases))
    nulls = read_arrays(inputs.nulls, "nulls")
    write_atlas(overlaps, attributes, snakemake.output[0], nulls=nulls, cosines=cosines)
