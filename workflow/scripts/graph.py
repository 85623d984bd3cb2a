from headspaces.affinity.graph import build_graph, edges_with_tests, write_graph
from headspaces.jobs.job import job
from headspaces.report.effect_results import edge_effects
from headspaces.report.pair_tests import edge_tests
from headspaces.report.pk_results import classes_of
from headspaces.report.results import read_results

inputs, output = snakemake.input, snakemake.output
with job(snakemake.log[0], snakemake.threads):
    files = {stage: inputs[stage] for stage in ("overlaps", "nulls", "affinity")}
    files |= dict(zip(["attribution"], inputs.attribution))
    model = read_results(snakemake.wildcards.model, files)
    edges = edges_with_tests(model.affinity, edge_tests(model), snakemake.params.edges)
    edges["effect"] = edge_effects(model, edges)
    write_graph(build_graph(edges, "pk", model.shape, classes_of(model)), output.graphml, output.json)
