from headspaces.errors import check_own
from headspaces.geometry.heads import fold
from headspaces.jobs.job import job
from headspaces.jobs.provenance import checked_weights, fingerprint, joined
from headspaces.nulls.samples import NullRun, figure_layers, null_shard, random_reference
from headspaces.nulls.shards import Shard, merge_shards, shard_attributes
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.spaces import NULLS, SWAP
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.blocks import layer_reader, read_metadata

inputs, params, model = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    weights = joined(checked_weights({path: read_metadata(path) for path in inputs.weights}, params.source))
    attributes = read_attributes(inputs.overlaps, "overlaps")
    check_own(inputs.overlaps, attributes, weights | {"model": model})
    rounding = attributes["leave_out_rounding"]
    layer = layer_reader(inputs.weights, params.shape.n_layers, leave_out_rounding=rounding)
    common = {"shape": params.shape, "kinds": params.kinds, "model": model, "seed": params.seed, "dtype": params.dtype}
    common |= {"rtol": attributes["rank_rtol"]}
    common["figure_layers"] = figure_layers(read_arrays(inputs.overlaps, "overlaps"))
    run = NullRun(lambda at, kind: fold(layer(at), kind) if params.fold else layer(at).factors[kind], **common)
    burnt = {}
    for path in inputs.bases:
        block = read_attributes(path, "bases")
        check_own(path, block, {"model": model})
        chain = {"seed": params.seed, "model": model, "burn_in": params.swap["burn_in"], "dtype": params.swap_dtype}
        burnt |= burnt_in(read_arrays(path, "bases"), block["first_layer"], **chain)
    swap = SwapRun(lambda at, kind: burnt[f"{at}/{kind}"], **(common | {"dtype": params.swap_dtype}), **params.swap)
    samples = range(params.samples)
    shards = [
        Shard(f"{model}, {null}", shard_attributes(one, null, samples), null_shard(one, null, samples))
        for null, one in {**dict.fromkeys(NULLS, run), SWAP: swap}.items()
    ]
    arrays = merge_shards(shards, params.samples)
    arrays |= random_reference(params.shape, params.kinds, model, params.seed, params.samples)
    own = {"seed": params.seed, "nulls_dtype": params.dtype, "samples": params.samples, "device": "cpu"}
    own |= {f"swap_{name}": value for name, value in params.swap.items()}
    own |= {"swap_dtype": params.swap_dtype, "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "nulls", arrays, attributes | own)
