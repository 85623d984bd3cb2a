"""Models of TransformerLens beside the library's reading of them; run by itself, with TransformerLens on the path.

Prints JSON: for every model and precision, the largest difference of a projection kernel, and of an overlap from what
the saved folder gives.
"""
# ruff: noqa: E402, S106 - stand-ins come before what imports them; tokens are no passwords

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import MagicMock

# Of what it imports these two have nothing to do with its numbers.
for name in ("datasets", "datasets.arrow_dataset", "datasets.load", "datasets.iterable_dataset", "wandb"):
    sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None), __name__=name)

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformer_lens.model_bridge.sources.transformers import boot
from transformer_lens.tools.analysis import attention_head_subspace_affinity
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import headspaces as hs


def built(dtype):
    torch.manual_seed(0)
    small = {"vocab_size": 40}
    gpt2 = GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=16, **small)
    llama = LlamaConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=32,
        max_position_embeddings=16, **small,
    )  # fmt: skip
    for model in (GPT2LMHeadModel(gpt2), LlamaForCausalLM(llama)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) / 2 + (parameter.ndim == 1))
        yield model.eval().to(dtype)


def tokenizer():
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    found = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="b", eos_token="c", pad_token="a")
    found.init_kwargs |= {"name_or_path": "x", "add_bos_token": True}
    return found


def largest(one, other):
    return float(np.nanmax(np.abs(np.asarray(one) - np.asarray(other))))


def compared(model, dtype):
    with TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder) / "saved")
        bridge = boot(str(Path(folder) / "saved"), hf_model=model, tokenizer=tokenizer(), dtype=dtype)
        live, saved = hs.load(bridge), hs.load(Path(folder) / "saved")
        pk = []
        for role in "QKV":
            theirs = attention_head_subspace_affinity(bridge, target_role=role)
            scores = torch.where(theirs.valid_mask, theirs.scores, torch.nan).double().permute(0, 2, 1, 3)
            pk.append(largest(scores, live.projection_kernel(f"O{role}", fold=False)))
        overlaps = [
            largest(live.overlaps(spaces, fold=fold), saved.overlaps(spaces, fold=fold))
            for spaces in ("OQ", "OK", "OV", "V")
            for fold in (True, False)
        ]
        notes = list(live.notes)
        bridge.enable_compatibility_mode()
        return {
            "model": type(model).__name__, "dtype": str(dtype), "pk": max(pk), "overlaps": max(overlaps),
            "notes": notes, "processed": list(hs.load(bridge).notes),
            "folded": largest(hs.load(bridge).overlaps("Q"), saved.overlaps("Q")),
        }  # fmt: skip


if __name__ == "__main__":
    found = [compared(model, dtype) for dtype in (torch.float64, torch.float32) for model in built(dtype)]
    print("\n" + json.dumps(found))
