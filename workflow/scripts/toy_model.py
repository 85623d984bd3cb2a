from pathlib import Path

import torch

from headspaces.activations.toy_model import ToyConfig, save_toy, train
from headspaces.jobs.job import job

with job(snakemake.log[0], snakemake.threads):
    torch.set_num_threads(snakemake.threads)
    model, _ = train(ToyConfig(), snakemake.params.seed)
    save_toy(model, Path(snakemake.output[0]).parent, snakemake.params.seed)
