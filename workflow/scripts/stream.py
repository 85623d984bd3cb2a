from functools import partial

import numpy as np

from headspaces.activations.pretrained import local_token_texts
from headspaces.errors import check_own
from headspaces.jobs.job import job
from headspaces.jobs.provenance import checked_weights, fingerprint, joined
from headspaces.spaces import kinds_of
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.stream.parts import StreamParts
from headspaces.stream.stage import whole_stream
from headspaces.weights.blocks import each_layer, read_metadata

inputs, params, name = snakemake.input, snakemake.params, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    weights = checked_weights({path: read_metadata(path) for path in inputs.weights}, params.source)
    blocks = {path: read_attributes(path, "bases") for path in inputs.bases}
    for (path, block), made_from in zip(blocks.items(), weights.values(), strict=True):
        check_own(path, block, made_from | {"model": name})
    attributes = joined(blocks)
    parts = StreamParts(inputs.ends, inputs.layers)
    check_own(inputs.ends, parts.metadata, {key: attributes[key] for key in ("source", "revision")})
    read = partial(each_layer, leave_out_rounding=bool(attributes["leave_out_rounding"]))
    arrays = [read_arrays(path, "bases") for path in inputs.bases]
    bases = {kind: np.concatenate([block[f"{kind}/basis"] for block in arrays]) for kind in kinds_of(arrays[0])}
    del arrays
    heads = (layer for path in inputs.weights for layer in read(path))
    arrays = whole_stream(parts, heads, bases, params.dtype)
    # Those of heads with heads are the overlaps' weighted scores.
    overlaps = read_arrays(inputs.overlaps, "overlaps")
    arrays |= {f"score/{key[6:8]}": values for key, values in overlaps.items() if key.endswith("/weighted")}
    for kind in bases:
        if f"tokens/{kind}/token" in arrays:
            texts = local_token_texts(params.checkpoint or params.source, arrays[f"tokens/{kind}/token"], name)
            arrays |= {} if texts is None else {f"tokens/{kind}/text": texts}
    own = {"code_sha256": fingerprint(inputs.code), "dtype": params.dtype, "parallel": parts.row.parallel}
    if parts.notes:
        arrays["left_out"] = np.array([note.encode() for note in parts.notes])
    write_arrays(snakemake.output[0], "stream", arrays, attributes | own)
