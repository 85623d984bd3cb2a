from headspaces.jobs import job
from headspaces.observed import composition_scores, observed_overlaps, stacked_factors
from headspaces.provenance import fingerprint, joined
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights import each_layer

inputs = snakemake.input
with job(snakemake.log[0], snakemake.threads):
    attributes = joined({path: read_attributes(path, "bases") for path in inputs.bases})
    attributes |= {"model": snakemake.params.name, "code_sha256": fingerprint(inputs.code)}
    arrays = observed_overlaps(read_arrays(path, "bases") for path in inputs.bases)
    if any(name.startswith("cross/") for name in arrays):
        layers = (layer for path in inputs.weights for layer in each_layer(path))
        arrays |= composition_scores(*stacked_factors(layers, attributes["dtype"]))
    write_arrays(snakemake.output[0], "overlaps", arrays, attributes)
