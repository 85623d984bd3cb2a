"""What all rules share: the study, its names as wildcards, and the files that a job's code is made of."""

import os
import re
import sys
from dataclasses import asdict

ROOT = os.path.abspath(workflow.current_basedir.join("../.."))
# The package of this clone is used, whatever is installed.
sys.path.insert(0, os.path.join(ROOT, "src"))

from headspaces.study import items as report_items
from headspaces.study.configuration import read_study
from headspaces.costs.requests import memory_mb, minutes, n_threads
from headspaces.costs.gpu import gpu_mb
from headspaces.devices import asked_device
from headspaces.errors import InputError
from headspaces.jobs.code import hand_on_environment, script_code
from headspaces.jobs.locks import release_dead_locks
from headspaces.spaces import NULLS, SWAP
from headspaces.study.models import local_files

hand_on_environment()
if workflow.is_main_process:
    release_dead_locks()
try:
    STUDY = read_study(config, ROOT, workflow.config_settings.config)
except InputError as error:
    raise WorkflowError(str(error)) from None

MODELS = STUDY.models
SETTINGS = STUDY.settings
TEXT = re.sub(r"[^A-Za-z0-9._-]+", "-", SETTINGS["activations"]["text"]).strip("-.")
STAGES = ["overlaps", "nulls", "self_heads", "activations", "affinity", "attention"]


def models_with(item):
    """The models that have all stages which a table or figure needs, and the stages of each that it reads."""
    stages = {
        model: [stage for stage in STUDY.stages_of(model) if stage in STAGES]
        for model in MODELS
    }
    return {
        model: report_items.stages_read(item, own)
        for model, own in stages.items()
        if set(item.needs) <= set(own)
    }


TABLES = [name for name, item in report_items.TABLES.items() if models_with(item)]
FIGURES = [name for name, item in report_items.FIGURES.items() if models_with(item)]


wildcard_constraints:
    model="|".join(re.escape(name) for name in MODELS),
    study=re.escape(STUDY.name),
    block=r"layers\d+-\d+",
    text=re.escape(TEXT),
    null="|".join(NULLS),
    samples=r"\d{4}-\d{4}",
    table="|".join(TABLES),
    figure="|".join(FIGURES),


def code_of(script):
    """The code that a rule's job runs, so that an edit of it reruns the job."""
    return script_code(os.path.join(ROOT, f"workflow/scripts/{script}.py"))


def blocks(stage, suffix):
    """All blocks of a model's layers, as files of a stage."""
    return lambda wildcards: [
        f"results/{stage}/{wildcards.model}/{block}.{suffix}"
        for block in MODELS[wildcards.model].blocks
    ]


def null_shards(wildcards):
    """Shards of all null models that hold the samples which the study asks for."""
    model, samples = MODELS[wildcards.model], SETTINGS["nulls"]["samples"]
    sizes = dict.fromkeys(NULLS, model.samples_per_shard)
    sizes[SWAP] = model.swap_samples_per_shard(SETTINGS["nulls"]["swap"]["sweeps"])
    return [
        f"results/nulls/{model.name}/{null}.{first:04d}-{first + size - 1:04d}.h5"
        for null, size in sizes.items()
        for first in range(0, samples, size)
    ]


def layers_kept(model):
    """Layers of a small model stay in memory between samples, a large one's are read again."""
    return model.shape.n_layers if model.bases_bytes < 2**30 else 2


def templates(name):
    """Files that a page is made of."""
    folder = os.path.join(ROOT, "src/headspaces/report/templates")
    return sorted(
        os.path.join(folder, file)
        for file in os.listdir(folder)
        if file.startswith(name)
    )


def asked(amount, stage, **more):
    """What a job of a stage asks for, by its model's shape, its threads and the attempt."""
    return lambda wildcards, threads, attempt: amount(
        stage, MODELS[wildcards.model], threads, attempt, **more
    )


def device_of(stage):
    """Where the setting `device` lets a stage compute."""
    return asked_device(SETTINGS["device"], stage)


def gpu(rule, stage):
    """The memory that a rule's jobs need where they find a GPU, and a GPU where the setting asks for one.

    These are resources: they change no number, so they rerun nothing.
    """
    memory = {"gpu_mb": lambda wildcards: gpu_mb(rule, MODELS[wildcards.model])}
    return memory | ({"gpu": 1} if device_of(stage) == "cuda" else {})


def threads_of(stage):
    """Threads that are worth having for a stage's jobs, by the model's shape."""
    return lambda wildcards: n_threads(stage, MODELS[wildcards.model])


def made_checkpoint(wildcards):
    """The checkpoint that the workflow itself makes: taken out of a wheel, or trained."""
    source, folder = (
        MODELS[wildcards.model].source,
        f"results/weights/{wildcards.model}/checkpoint",
    )
    if source.startswith("wheel:"):
        return [f"{folder}/model.gguf"]
    return (
        [f"{folder}/config.json", f"{folder}/model.safetensors"]
        if source.startswith("toy:")
        else []
    )


def checkpoint_place(wildcards):
    """Where that checkpoint lies, as a file or a folder; nothing for sources elsewhere."""
    files = made_checkpoint(wildcards)
    return files[0] if len(files) == 1 else os.path.dirname(files[0]) if files else None


def head_classes(wildcards):
    """The set of head classes that a model's row or the command line names."""
    name = MODELS[wildcards.model].head_classes or SETTINGS.get("head_classes")
    return [os.path.join(ROOT, f"config/head_classes/{name}.tsv")] if name else []


def files_of(item):
    """By model and stage, the files that a table or figure reads."""
    return {
        model: {stage: f"results/{stage}/{model}.h5" for stage in stages}
        for model, stages in models_with(item).items()
        if stages
    }


def files_of_table(wildcards):
    return files_of(report_items.TABLES[wildcards.table])


def files_of_figure(wildcards):
    return files_of(report_items.FIGURES[wildcards.figure])


def flat(files):
    return [path for stages in files.values() for path in stages.values()]
