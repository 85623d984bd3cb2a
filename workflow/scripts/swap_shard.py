from headspaces.devices import DEVICES, choose_device
from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined
from headspaces.nulls.samples import figure_layers, null_shard
from headspaces.nulls.shards import shard_attributes
from headspaces.nulls.swap_run import SwapRun
from headspaces.spaces import SWAP
from headspaces.store import dataset_names, read_arrays, read_attributes, write_arrays

inputs, params, model = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    device = choose_device(DEVICES[snakemake.resources.device], snakemake.resources.gpu_mb)
    start = joined({path: read_attributes(path, "swap-start") for path in inputs.start})
    own = {"model": model, "seed": params.seed, "nulls_dtype": params.dtype, "burn_in": params.burn_in}
    check_own(inputs.start[0], start, own)
    attributes = read_attributes(inputs.overlaps, "overlaps")
    shared = ("model", "weights_sha256", "rank_rtol", "leave_out_rounding")
    check_own(inputs.overlaps, attributes, {name: start[name] for name in shared})
    where = {name: path for path in inputs.start for name in dataset_names(path, "swap-start")}
    first, last = map(int, snakemake.wildcards.samples.split("-"))
    run = SwapRun(
        factors=lambda layer, kind: read_arrays(where[name := f"{layer}/{kind}"], "swap-start", [name])[name],
        shape=params.shape,
        kinds=params.kinds,
        model=model,
        seed=params.seed,
        dtype=params.dtype,
        rtol=attributes["rank_rtol"],
        figure_layers=figure_layers(read_arrays(inputs.overlaps, "overlaps")),
        to_device=device.to_device,
        burn_in=params.burn_in,
        sweeps=params.sweeps,
    )
    samples = range(first, last + 1)
    arrays = null_shard(run, SWAP, samples)
    own = shard_attributes(run, SWAP, samples)
    own |= {"device": device.name, "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "null-shard", arrays, attributes | own)
