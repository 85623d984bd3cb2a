from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint
from headspaces.nulls.swap_run import burnt_in
from headspaces.store import read_arrays, read_attributes, write_arrays

params, wildcards, bases = snakemake.params, snakemake.wildcards, snakemake.input.bases
with job(snakemake.log[0], snakemake.threads):
    attributes = read_attributes(bases, "bases")
    check_own(bases, attributes, {"model": wildcards.model})
    settings = {"seed": params.seed, "model": wildcards.model, "burn_in": params.burn_in}
    block = read_arrays(bases, "bases")
    arrays = burnt_in(block, attributes["first_layer"], dtype=params.dtype, **settings)
    settings |= {"nulls_dtype": params.dtype, "code_sha256": fingerprint(snakemake.input.code)}
    write_arrays(snakemake.output[0], "swap-start", arrays, attributes | settings)
