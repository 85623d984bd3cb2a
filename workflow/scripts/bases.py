from headspaces.errors import check_own
from headspaces.geometry.bases import block_bases
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, model_attributes
from headspaces.store import write_arrays
from headspaces.weights.blocks import each_layer, read_metadata

params, weights = snakemake.params, snakemake.input.weights
with job(snakemake.log[0], snakemake.threads):
    attributes, layers = model_attributes(read_metadata(weights)), params.layers
    own = {"source": params.source, "first_layer": layers[0], "block_layers": len(layers)}
    check_own(weights, attributes, own)
    common = {"dtype": params.dtype, "leave_out_rounding": params.leave_out_rounding}
    arrays = block_bases(each_layer(weights), fold_norms=params.fold, rtol=params.rtol, **common)
    settings = common | {"fold": params.fold, "rank_rtol": params.rtol}
    settings |= {"model": snakemake.wildcards.model, "code_sha256": fingerprint(snakemake.input.code)}
    write_arrays(snakemake.output[0], "bases", arrays, attributes | settings)
