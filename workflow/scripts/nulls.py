from headspaces.jobs import job
from headspaces.models import Shape
from headspaces.nulls import Shard, merge_shards, random_reference
from headspaces.provenance import fingerprint
from headspaces.store import read_arrays, read_attributes, write_arrays

inputs, params, model = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    shards = [
        Shard(path, read_attributes(path, "null-shard"), read_arrays(path, "null-shard")) for path in inputs.shards
    ]
    arrays = merge_shards(shards, params.samples)
    arrays |= random_reference(Shape(**params.shape), params.kinds, model, params.seed, params.samples)
    attributes = {
        name: value for name, value in shards[0].attributes.items() if name not in ("null", "first_sample", "n_samples")
    }
    own = {"samples": params.samples, "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "nulls", arrays, attributes | own)
