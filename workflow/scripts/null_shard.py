from headspaces.devices import DEVICES, choose_device
from headspaces.errors import check_own
from headspaces.geometry.heads import fold
from headspaces.jobs.job import job
from headspaces.jobs.provenance import checked_weights, fingerprint, joined
from headspaces.nulls.samples import NullRun, figure_layers, null_shard
from headspaces.nulls.shards import shard_attributes
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.blocks import layer_reader, read_metadata

inputs, params, wildcards = snakemake.input, snakemake.params, snakemake.wildcards
with job(snakemake.log[0], snakemake.threads):
    device = choose_device(DEVICES[snakemake.resources.device], snakemake.resources.gpu_mb)
    weights = joined(checked_weights({path: read_metadata(path) for path in inputs.weights}, params.source))
    attributes = read_attributes(inputs.overlaps, "overlaps")
    check_own(inputs.overlaps, attributes, weights | {"model": wildcards.model})
    rounding = attributes["leave_out_rounding"]
    read_layer = layer_reader(inputs.weights, params.layers_kept, leave_out_rounding=rounding)
    first, last = map(int, wildcards.samples.split("-"))
    run = NullRun(
        factors=lambda layer, kind: fold(read_layer(layer), kind) if params.fold else read_layer(layer).factors[kind],
        shape=params.shape,
        kinds=params.kinds,
        model=wildcards.model,
        seed=params.seed,
        dtype=params.dtype,
        rtol=attributes["rank_rtol"],
        figure_layers=figure_layers(read_arrays(inputs.overlaps, "overlaps")),
        to_device=device.to_device,
    )
    samples = range(first, last + 1)
    arrays = null_shard(run, wildcards.null, samples)
    own = shard_attributes(run, wildcards.null, samples)
    own |= {"device": device.name, "code_sha256": fingerprint(inputs.code)}
    write_arrays(snakemake.output[0], "null-shard", arrays, attributes | own)
