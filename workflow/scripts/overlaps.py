from functools import partial

from headspaces.devices import DEVICES, choose_device
from headspaces.errors import check_own
from headspaces.geometry.overlaps import composition_scores, observed_overlaps
from headspaces.geometry.spread_sources import spread_sources
from headspaces.jobs.job import job
from headspaces.jobs.provenance import checked_weights, fingerprint, joined
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

inputs = snakemake.input
with job(snakemake.log[0], snakemake.threads):
    device = choose_device(DEVICES[snakemake.resources.device], snakemake.resources.gpu_mb)
    weights = checked_weights({path: read_metadata(path) for path in inputs.weights}, snakemake.params.source)
    blocks = {path: read_attributes(path, "bases") for path in inputs.bases}
    for (path, block), made_from in zip(blocks.items(), weights.values(), strict=True):
        check_own(path, block, made_from | {"model": snakemake.params.name})
    attributes = joined(blocks) | {"device": device.name, "code_sha256": fingerprint(inputs.code)}
    arrays = observed_overlaps((read_arrays(path, "bases") for path in inputs.bases), device.to_device)
    read = partial(each_layer, leave_out_rounding=attributes["leave_out_rounding"])
    if any(name.startswith("cross/") for name in arrays):
        arrays |= composition_scores(
            lambda: (layer for path in inputs.weights for layer in read(path)),
            attributes["dtype"],
            device.to_device,
        )
    paths = zip(inputs.bases, inputs.weights, strict=True)
    layers = ((read_arrays(bases, "bases"), read(weights)) for bases, weights in paths)
    arrays |= spread_sources(layers, fold_norms=attributes["fold"])
    write_arrays(snakemake.output[0], "overlaps", arrays, attributes)
