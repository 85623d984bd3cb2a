import os

from headspaces.costs.cost import Workload
from headspaces.costs.plan import Machine, measure_machine, plan_study, write_plan
from headspaces.jobs.job import job

params, output = snakemake.params, snakemake.output
with job(snakemake.log[0], snakemake.threads):
    machine = Machine(**params.machine) if params.machine else measure_machine(len(os.sched_getaffinity(0)))
    names = ("samples", "tokens", "orthonormal", "edges", "second_order")
    work = Workload(**{name: getattr(params, name) for name in names}, **params.swap)
    rows = plan_study(params.models, params.stages, params.headers, machine, work)
    print(write_plan(rows, machine, output.table, output.page))
