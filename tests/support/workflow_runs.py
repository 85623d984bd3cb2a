"""The workflow as a user runs it, and a tiny model for it."""

import json
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import save_file

N_LAYERS, D_MODEL, N_HEADS, N_KV, D_HEAD = 3, 24, 4, 2, 6


def save_tiny(folder, seed=0, **changes):
    """A folder in the Hugging Face layout of Llama."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama", "hidden_size": D_MODEL, "num_hidden_layers": N_LAYERS, "head_dim": D_HEAD,
        "num_attention_heads": N_HEADS, "num_key_value_heads": N_KV,
    } | changes  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    for layer in range(N_LAYERS):
        start = f"model.layers.{layer}."
        for name, shape in (
            ("q_proj", (N_HEADS * D_HEAD, D_MODEL)), ("k_proj", (N_KV * D_HEAD, D_MODEL)),
            ("v_proj", (N_KV * D_HEAD, D_MODEL)), ("o_proj", (D_MODEL, N_HEADS * D_HEAD)),
        ):  # fmt: skip
            tensors[f"{start}self_attn.{name}.weight"] = rng.standard_normal(shape).astype(np.float32)
        tensors[f"{start}input_layernorm.weight"] = rng.uniform(0.5, 2, D_MODEL).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def snakemake(project, *arguments, directory=None, check=True, **environment):
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(project / "Snakefile"), "--cores", "2", "--nocolor",
        *arguments,
    ]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=directory or project, capture_output=True, text=True, check=False, env=clean | environment
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def planned(done):
    """Rules of a dry run, without the target."""
    rules = {
        line.split()[-1].rstrip(":") for line in done.stdout.splitlines() if line.startswith(("rule ", "localrule "))
    }
    return rules - {"all"}
