from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint
from headspaces.nulls.samples import random_reference
from headspaces.nulls.shards import Shard, merge_shards
from headspaces.spaces import SWAP
from headspaces.store import read_arrays, read_attributes, write_arrays

inputs, params, model = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    shards = [
        Shard(path, read_attributes(path, "null-shard"), read_arrays(path, "null-shard")) for path in inputs.shards
    ]
    for shard in shards:
        null, samples, _ = shard.name.rsplit("/", 1)[1].split(".")
        first, last = map(int, samples.split("-"))
        own = {"model": model, "seed": params.seed, "null": null, "first_sample": first, "n_samples": last - first + 1}
        own |= params.swap if null == SWAP else {}
        check_own(shard.name, shard.attributes, own)
    arrays = merge_shards(shards, params.samples)
    arrays |= random_reference(params.shape, params.kinds, model, params.seed, params.samples)
    attributes = {
        name: value for name, value in shards[0].attributes.items() if name not in ("null", "first_sample", "n_samples")
    }
    devices = sorted({shard.attributes["device"] for shard in shards})
    swap = next(shard.attributes for shard in shards if shard.attributes["null"] == SWAP)
    own = {f"swap_{name}": swap[name] for name in params.swap} | {"swap_dtype": swap["nulls_dtype"]}
    own |= {"samples": params.samples, "device": ", ".join(devices), "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "nulls", arrays, attributes | own)
