from functools import partial

from headspaces.affinity.classes import class_arrays, read_head_classes
from headspaces.affinity.graph import build_graph, strongest_edges, write_graph
from headspaces.affinity.run import SCORES, affinity
from headspaces.devices import DEVICES, choose_device
from headspaces.files import whole_file
from headspaces.jobs.job import job
from headspaces.jobs.provenance import fingerprint, joined, model_attributes
from headspaces.spaces import Shape
from headspaces.store import write_arrays
from headspaces.weights.blocks import read_block, read_metadata

inputs, params, output, model = snakemake.input, snakemake.params, snakemake.output, snakemake.wildcards.model
with job(snakemake.log[0], snakemake.threads):
    device = choose_device(DEVICES[snakemake.resources.device], snakemake.resources.gpu_mb)
    attributes = joined({path: model_attributes(read_metadata(path)) for path in inputs.weights})
    shape = Shape(**{name: attributes[name] for name in Shape.__dataclass_fields__})
    classes = read_head_classes(inputs.classes[0], shape) if inputs.classes else None
    blocks = [partial(read_block, path, leave_out_rounding=params.leave_out_rounding) for path in inputs.weights]
    scores = [name for name in SCORES if params.invariant_procrustes or name != "procrustes_invariant"]
    settings = {"fold_pk": params.fold, "dtype": params.dtype, "to_device": device.to_device, "rtol": params.rtol}
    arrays = affinity(blocks, scores=scores, same_kind=classes is not None, **settings)
    edges = strongest_edges(arrays, k=params.edges)
    with whole_file(output.edges) as path:
        edges.to_csv(path, index=False, float_format="%.12g", lineterminator="\n")
    write_graph(build_graph(edges, "pk", shape, classes), output.graphml, output.json)
    arrays |= class_arrays(classes, shape) if classes else {}
    own = {"model": model, "fold": params.fold, "dtype": params.dtype, "device": device.name, "rank_rtol": params.rtol}
    own |= {"leave_out_rounding": params.leave_out_rounding, "code_sha256": fingerprint(inputs.code)}
    write_arrays(output.scores, "affinity", arrays, attributes | own)
