from pathlib import Path

import torch

from headspaces.activations.toy_model import ToyConfig, save_step, save_toy, train
from headspaces.jobs.job import job

folder, params = Path(snakemake.output[0]).parent, snakemake.params
with job(snakemake.log[0], snakemake.threads):
    torch.set_num_threads(snakemake.threads)
    model, _ = train(
        ToyConfig(),
        params.seed,
        lambda step, model: save_step(model, folder / f"step{step}", params.seed) if step in params.steps else None,
    )
    save_toy(model, folder, params.seed)
