"""What all rules share: the study, its names as wildcards, and the files that a job's code is made of."""

import os
import re
import sys
from dataclasses import asdict

ROOT = os.path.abspath(workflow.basedir)
# The package of this clone is used, whatever is installed.
sys.path.insert(0, os.path.join(ROOT, "src"))

from headspaces import report_items
from headspaces.configuration import read_study
from headspaces.errors import InputError
from headspaces.jobs import hand_on_environment, sources

hand_on_environment()
try:
    STUDY = read_study(config, ROOT, workflow.config_settings.config)
except InputError as error:
    raise WorkflowError(str(error)) from None

MODELS = STUDY.models
SETTINGS = STUDY.settings
STAGES = ["overlaps"]
TABLES = report_items.possible(report_items.TABLES, STAGES)
FIGURES = report_items.possible(report_items.FIGURES, STAGES)


wildcard_constraints:
    model="|".join(re.escape(name) for name in MODELS),
    study=re.escape(STUDY.name),
    block=r"layers\d+-\d+",
    table="|".join(TABLES),
    figure="|".join(FIGURES),


def blocks(stage, suffix):
    """All blocks of a model's layers, as files of a stage."""
    return lambda wildcards: [
        f"results/{stage}/{wildcards.model}/{block}.{suffix}"
        for block in MODELS[wildcards.model].blocks
    ]


def files_of(item):
    """By model and stage, the files that a table or figure reads."""
    stages = report_items.stages_read(item, STAGES)
    return {
        model: {stage: f"results/{stage}/{model}.h5" for stage in stages}
        for model in MODELS
        if stages
    }


def files_of_table(wildcards):
    return files_of(report_items.TABLES[wildcards.table])


def files_of_figure(wildcards):
    return files_of(report_items.FIGURES[wildcards.figure])


def flat(files):
    return [path for stages in files.values() for path in stages.values()]
