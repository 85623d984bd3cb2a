from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined
from headspaces.nulls.self_heads import self_heads
from headspaces.store import read_arrays, read_attributes, write_arrays

bases, model, seed = snakemake.input.bases, snakemake.wildcards.model, snakemake.params.seed
with job(snakemake.log[0], snakemake.threads):
    arrays = self_heads((read_arrays(path, "bases") for path in bases), seed=seed, model=model)
    attributes = joined({path: read_attributes(path, "bases") for path in bases})
    attributes |= {"model": model, "seed": seed, "code_sha256": fingerprint(snakemake.input.code)}
    write_arrays(snakemake.output[0], "self_heads", arrays, attributes)
