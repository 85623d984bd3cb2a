from headspaces.jobs import job
from headspaces.self_heads import self_heads
from headspaces.store import read_arrays, read_attributes, write_arrays

bases, model, seed = snakemake.input.bases, snakemake.wildcards.model, snakemake.params.seed
with job(snakemake.log[0], snakemake.threads):
    arrays = self_heads((read_arrays(path, "bases") for path in bases), seed=seed, model=model)
    attributes = read_attributes(bases[0], "bases") | {"model": model, "seed": seed}
    write_arrays(snakemake.output[0], "self_heads", arrays, attributes)
