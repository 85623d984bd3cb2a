import os

from headspaces.jobs import job
from headspaces.plan import Machine, measure_machine, plan_study, write_plan
from headspaces.stage_costs import Workload

params = snakemake.params
with job(snakemake.log[0], snakemake.threads):
    machine = Machine(**params.machine) if params.machine else measure_machine(len(os.sched_getaffinity(0)))
    work = Workload(samples=params.samples, tokens=params.tokens)
    rows = plan_study(params.models, params.stages, params.headers, machine, work)
    print(write_plan(rows, machine, params.table, params.page))
