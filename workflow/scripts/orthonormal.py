from functools import lru_cache

from headspaces.devices import DEVICES, choose_device
from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.spaces import NULLS
from headspaces.store import read_arrays, read_attributes, write_arrays

inputs, params, model = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    device = choose_device(DEVICES[snakemake.resources.device], snakemake.resources.gpu_mb)
    blocks = {path: read_attributes(path, "bases") for path in inputs.bases}
    attributes = joined(blocks)
    check_own(inputs.bases[0], attributes, {"model": model})
    firsts = {path: int(block["first_layer"]) for path, block in blocks.items()}
    where = {first + i: (path, i) for path, first in firsts.items() for i in range(int(blocks[path]["block_layers"]))}
    # The kinds of one block stay in memory: layers come in order.
    read = lru_cache(len(params.kinds))(lambda path, name: read_arrays(path, "bases", [name])[name])
    run = NullRun(
        factors=lambda layer, kind: read(where[layer][0], f"{kind}/basis")[where[layer][1]],
        shape=params.shape,
        kinds=params.kinds,
        model=model,
        seed=params.seed,
        dtype=params.dtype,
        rtol=attributes["rank_rtol"],
        to_device=device.to_device,
    )
    arrays = {}
    for null in NULLS:
        arrays |= null_shard(run, null, range(params.samples))
    own = {"model": model, "seed": params.seed, "nulls_dtype": params.dtype, "samples": params.samples}
    own |= {"device": device.name, "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "orthonormal", arrays, attributes | own)
