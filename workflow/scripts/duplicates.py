from itertools import islice

from headspaces.errors import InputError
from headspaces.jobs.job import job
from headspaces.report.duplicates import find_duplicates, tensor_sums, write_duplicates
from headspaces.store import dataset_names, read_arrays

inputs, params = snakemake.input, snakemake.params
with job(snakemake.log[0], snakemake.threads) as log:
    rho = {}
    for model, path in zip(params.models, inputs.overlaps, strict=True):
        names = dataset_names(path, "overlaps")
        within = [name for name in names if name.startswith("within/") and name.endswith("/rho")]
        rho[model] = read_arrays(path, "overlaps", within)
    blocks = iter(inputs.weights)
    sums = {model: tensor_sums(islice(blocks, n)) for model, n in zip(params.models, params.n_blocks, strict=True)}
    found = find_duplicates(sums, rho)
    for duplicate in found:
        log.warning("%s", duplicate)
    ones = [duplicate for duplicate in found if duplicate.is_one_model]
    if ones and params.strict:
        raise InputError(f"config: strict is true, and {ones[0]}; name other sources, or leave one out")
    write_duplicates(found, snakemake.output[0])
