"""What all rules share: the study, its names as wildcards, and the files that a job's code is made of."""

import os
import re
import sys
from dataclasses import asdict

ROOT = os.path.abspath(workflow.current_basedir.join("../.."))
# The package of this clone is used, whatever is installed.
sys.path.insert(0, os.path.join(ROOT, "src"))

from headspaces.jobs.console import quiet_console

# Where this is the user's own workflow; one that uses it as a module has a console of its own.
CONSOLE = None
if workflow.is_main_process and workflow.main_snakefile.startswith(ROOT):
    CONSOLE = quiet_console(workflow.logger_manager)

from headspaces.study import items
from headspaces.study.configuration import head_classes_file, read_study
from headspaces.costs.requests import gpu_mb, memory_mb, minutes, n_threads
from headspaces.devices import DEVICES, device_setting
from headspaces.errors import InputError
from headspaces.jobs.code import check_interpreter, hand_on_environment, script_code
from headspaces.jobs.locks import release_dead_locks
from headspaces.spaces import NULLS, SWAP

try:
    check_interpreter(sys.executable)
except InputError as error:
    raise WorkflowError(str(error)) from None
hand_on_environment()
if workflow.is_main_process:
    release_dead_locks()
try:
    STUDY = read_study(config, ROOT, workflow.config_settings.config)
except InputError as error:
    raise WorkflowError(str(error)) from None

MODELS, SERIES = STUDY.models, STUDY.series
# The steps of series are models, too; the report shows their series.
KNOWN = STUDY.steps | dict(MODELS)
TRAINED = [series.trained for series in SERIES.values() if series.trained]
# Models of other settings may share a checkpoint.
CHECKPOINTS = {model.checkpoint: model for model in (*TRAINED, *KNOWN.values())}
SETTINGS = STUDY.settings
TEXT = re.sub(r"[^A-Za-z0-9._-]+", "-", SETTINGS["activations"]["text"]).strip("-.")
STAGES = [
    "overlaps",
    "nulls",
    "orthonormal",
    "self_heads",
    "activations",
    "affinity",
    "attention",
    "attribution",
    "ablation",
    "stream",
]


def models_with(item):
    """The models that have all stages which a table or figure needs, and the stages of each that it reads.

    A table of series has those for its models.
    """
    if "series" in item.needs:
        return dict.fromkeys(SERIES, ["series"])
    stages = {
        model: [stage for stage in STUDY.stages_of(model) if stage in STAGES]
        for model in MODELS
    }
    return {
        model: item.stages_read(own)
        for model, own in stages.items()
        if set(item.needs) <= set(own)
    }


TABLES = {name: item for name, item in items.TABLES.items() if models_with(item)}
FIGURES = {name: item for name, item in items.FIGURES.items() if models_with(item)}
PUBLISHED = os.path.join(ROOT, "config/published.tsv")
REFERENCE = os.path.join(ROOT, "config/reference.tsv")


wildcard_constraints:
    model="|".join(re.escape(name) for name in KNOWN),
    series="|".join(re.escape(name) for name in SERIES) or "(?!)",
    checkpoint="|".join(re.escape(name) for name in CHECKPOINTS),
    study=re.escape(STUDY.name),
    block=r"layers\d+-\d+",
    part=r"ends|layers\d+-\d+",
    text=re.escape(TEXT),
    null="|".join(NULLS),
    samples=r"\d{4}-\d{4}",


def code_of(script):
    """The code that a rule's job runs, so that an edit of it reruns the job."""
    return script_code(os.path.join(ROOT, f"workflow/scripts/{script}.py"))


def blocks(stage, suffix):
    """All blocks of a model's layers, as files of a stage."""

    def files(wildcards):
        model = KNOWN[wildcards.model]
        name = model.checkpoint if stage == "weights" else model.name
        return [f"results/{stage}/{name}/{block}.{suffix}" for block in model.blocks]

    return files


def stage_file(stage):
    """A stage's file of a model that has the stage."""

    def files(wildcards):
        has = stage in STUDY.stages_of(wildcards.model)
        return f"results/{stage}/{wildcards.model}.h5" if has else []

    return files


def null_shards(wildcards):
    """Shards of all null models that hold the samples which the study asks for."""
    model, samples = KNOWN[wildcards.model], SETTINGS["nulls"]["samples"]
    sizes = dict.fromkeys(NULLS, model.samples_per_shard)
    sizes[SWAP] = model.swap_samples_per_shard(SETTINGS["nulls"]["swap"]["sweeps"])
    return [
        f"results/nulls/{model.name}/{null}.{first:04d}-{first + size - 1:04d}.h5"
        for null, size in sizes.items()
        for first in range(0, samples, size)
    ]


def templates(name):
    """Files that a page is made of."""
    folder = os.path.join(ROOT, "src/headspaces/report/templates")
    return sorted(
        os.path.join(folder, file)
        for file in os.listdir(folder)
        if file.startswith(name)
    )


def of(field):
    """A field of the job's model: its source, kinds, shape, dtypes, or what follows from them."""
    return lambda wildcards: getattr(KNOWN[wildcards.model], field)


def request(stage, device="cpu", of_checkpoint=False, **work):
    """The memory and minutes that a job of a stage asks for, by its model's shape, its threads and the attempt."""

    def asked(amount, **more):
        def ask(wildcards, threads, attempt):
            model = (
                CHECKPOINTS[wildcards.checkpoint]
                if of_checkpoint
                else KNOWN[wildcards.model]
            )
            return amount(stage, model, threads, attempt, **more)

        return ask

    return {
        "mem_mb": asked(memory_mb, device=device),
        "runtime": asked(minutes, **work),
    }


def request_on_device(stage, setting, **work):
    """The same, where the setting `device` says that a stage computes; with a GPU where that is `cuda`.

    These are resources: they change no number, so another device reruns nothing.
    """
    device = device_setting(SETTINGS["device"], setting)
    gpu = {"gpu": 1} if device == "cuda" else {}
    gpu["gpu_mb"] = lambda wildcards: gpu_mb(stage, KNOWN[wildcards.model])
    return request(stage, device, **work) | gpu | {"device": DEVICES.index(device)}


def threads_of(stage):
    """Threads that are worth having for a stage's jobs, by the model's shape."""
    return lambda wildcards: n_threads(stage, KNOWN[wildcards.model])


def made_checkpoint(wildcards):
    """The checkpoint that the workflow itself makes: taken out of a wheel, or trained."""
    model = (
        KNOWN[wildcards.model]
        if "model" in wildcards.keys()
        else CHECKPOINTS[wildcards.checkpoint]
    )
    folder = f"results/weights/{model.checkpoint}/checkpoint"
    for series in SERIES.values():
        if series.trained and model.source.startswith(f"{series.source}@"):
            step = model.source.partition("@")[2]
            folder = (
                f"results/weights/{series.trained.checkpoint}/checkpoint/step{step}"
            )
    made = {"wheel": ["model.gguf"], "toy": ["config.json", "model.safetensors"]}
    return [f"{folder}/{name}" for name in made.get(model.source.split(":")[0], [])]


def checkpoint_path(wildcards):
    """Where that checkpoint lies, as a file or a folder; nothing for sources elsewhere."""
    files = made_checkpoint(wildcards)
    return files[0] if len(files) == 1 else os.path.dirname(files[0]) if files else None


def run_files(wildcards):
    """What a job loads that runs the model: the checkpoint that the workflow made, or a packed one unpacked."""
    model = KNOWN[wildcards.model]
    unpacked = f"results/weights/{model.checkpoint}/unpacked"
    return [unpacked] if model.packed else made_checkpoint(wildcards)


def run_path(wildcards):
    """Where that lies; nothing for sources elsewhere."""
    if KNOWN[wildcards.model].packed:
        return run_files(wildcards)[0]
    return checkpoint_path(wildcards)


def head_classes(wildcards):
    """The set of head classes that a model's row or the command line names."""
    name = KNOWN[wildcards.model].head_classes or SETTINGS.get("head_classes")
    return [str(head_classes_file(name, ROOT))] if name else []


def files_of(item):
    """By model and stage, the files that a table or figure reads."""
    return {
        model: {stage: f"results/{stage}/{model}.h5" for stage in stages}
        for model, stages in models_with(item).items()
        if stages
    }


def flat(files):
    return [path for stages in files.values() for path in stages.values()]


def groups_of(entries):
    """Tables, or figures, that read the same files, by a name that says of which stages these are."""
    groups = {}
    for name, item in entries.items():
        words = (*item.needs, *item.uses, *["published"] * item.published)
        groups.setdefault("_".join(words) or "alone", []).append(name)
    return groups


def atlas_of(model):
    """The files that a model's interactive page is made of."""
    stages = ("overlaps", "nulls", "attention", "affinity", "attribution", "stream")
    own = set(STUDY.stages_of(model)).intersection(stages)
    return {
        "files": {stage: f"results/{stage}/{model}.h5" for stage in sorted(own)},
        "bases": [f"results/bases/{model}/{block}.h5" for block in KNOWN[model].blocks],
    }


def paths_of(atlas):
    return [*atlas["files"].values(), *atlas["bases"]]


def spread(values, most):
    """Some of many values, as far apart as can be, with the first and the last."""
    last = len(values) - 1
    places = sorted({round(at * last / (most - 1)) for at in range(most)})
    return [values[place] for place in places] if last >= most else values


def series_steps(wildcards):
    """The steps of a series, with the files that each is known by."""
    return [
        {
            "step": step,
            "model": model.name,
            "files": {
                stage: f"results/{stage}/{model.name}.h5"
                for stage in STUDY.stages_of_step(model)
            }
            | (
                {"attribution": f"results/attribution/{series.name}/step{step}.h5"}
                if series.trained
                else {}
            ),
            "bases": [
                f"results/bases/{model.name}/{block}.h5" for block in model.blocks
            ],
            "run": (
                f"results/weights/{series.trained.checkpoint}/checkpoint/step{step}/run.json"
                if series.trained
                else ""
            ),
        }
        for series in [SERIES[wildcards.series]]
        for step, model in series.steps.items()
    ]


def series_memory(wildcards):
    """Memory of the job that puts a series together, by its largest step."""
    return max(
        memory_mb("series", model) for model in SERIES[wildcards.series].steps.values()
    )
