"""Toy model: a two-layer attention-only transformer, trained here until it has induction heads (PK, figure 4).

``python -m headspaces.activations.toy_model FOLDER --seed 0`` trains it in about a minute on two cores and writes a
folder that the pipeline reads as any local checkpoint: GPT-2's names and layout, without an MLP. Expect a loss of about
0.03 nats per token on second copies.

The task: random tokens whose sequence starts again after a random number of them. Only a head that finds the token
after the earlier copy of the present one can predict the repeats; it needs a head below that tells each position which
token stood before it (Elhage et al. 2021, Olsson et al. 2022). Positions reach queries and keys only, so that nothing
but the heads moves information along the sequence.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.text_tables import write_text
from headspaces.threads import worker_count

ARCHITECTURE = "AttentionOnlyTransformer"
"""What the configuration calls this model, so that it is not taken for a GPT-2 that lost its MLP."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToyConfig:
    """Shape and training of the model.

    Sequences repeat after a random number of tokens, from ``shortest_period`` to half of their length. AdamW has a
    warm-up and a cosine decay; weights decay in the heads' maps only. Position embeddings learn ``position_rate`` times
    faster: they must outgrow the tokens' noise in queries and keys.
    """

    n_layer: int = 2
    n_head: int = 8
    n_embd: int = 128
    vocab_size: int = 64
    n_positions: int = 32
    shortest_period: int = 4
    batch: int = 64
    steps: int = 1500
    learning_rate: float = 3e-3
    weight_decay: float = 0.5
    position_rate: float = 5.0


class Attention(nn.Module):
    """Causal self-attention with GPT-2's names; weights are stored (in, out)."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = _Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = _Conv1D(config.n_embd, config.n_embd)

    def forward(
        self, x: Float[Tensor, "batch token width"], positions: Float[Tensor, "token width"]
    ) -> tuple[Tensor, Float[Tensor, "batch head token token"]]:
        """Return what is written and the attention."""
        batch, n_tokens, width = x.shape
        both = torch.cat([self.c_attn(x + positions)[..., : 2 * width], self.c_attn(x)[..., 2 * width :]], dim=-1)
        q, k, v = both.reshape(batch, n_tokens, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        later = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1)
        attention = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
        heads = (attention @ v).transpose(1, 2).reshape(batch, n_tokens, width)
        return self.c_proj(heads), attention


class _Conv1D(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * n_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class _Block(nn.Module):
    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = Attention(config)

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        written, attention = self.attn(self.ln_1(x), positions)
        return x + written, attention


class ToyModel(nn.Module):
    """Token and position embeddings, layers of attention, unembedding; no MLP."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(_Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        for embedding in (self.wte, self.wpe):
            nn.init.normal_(embedding.weight, std=config.n_embd**-0.5)

    def forward(
        self, tokens: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token vocab"], list[Float[Tensor, "batch head token token"]]]:
        """Return the logits and each layer's attention."""
        x = self.wte(tokens)
        attentions = []
        for block in self.h:
            x, attention = block(x, self.wpe.weight[: tokens.shape[1]])
            attentions.append(attention)
        return self.lm_head(self.ln_f(x)), attentions


def repeated_sequences(config: ToyConfig, n: int, generator: torch.Generator) -> Int[Tensor, "n token"]:
    """Random tokens, each sequence repeating itself after a random period."""
    length = config.n_positions
    periods = torch.randint(config.shortest_period, length // 2 + 1, (n, 1), generator=generator)
    tokens = torch.randint(config.vocab_size, (n, length), generator=generator)
    return torch.take_along_dim(tokens, torch.arange(length) % periods, dim=1)


def train(
    config: ToyConfig, seed: int, at_step: Callable[[int, ToyModel], object] = lambda *_: None
) -> tuple[ToyModel, list[float]]:
    """Train the model; the same seed gives the same model on the same machine.

    ``at_step`` is called with the number of steps that were made, from 0 to all, and the model as it is then; looking
    at it changes nothing. With the model comes the loss of every step in nats per token, first copies included.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = ToyModel(config)
    named = dict(model.named_parameters())
    maps: list[Tensor] = [named[name] for name in named if name.endswith(("c_attn.weight", "c_proj.weight"))]
    groups: list[list[Tensor]] = [maps, [model.wpe.weight]]
    taken = {id(parameter) for group in groups for parameter in group}
    groups.append([parameter for parameter in named.values() if id(parameter) not in taken])
    rates = [config.learning_rate, config.position_rate * config.learning_rate, config.learning_rate]
    decays = [config.weight_decay, 0.0, 0.0]
    options = [{"params": group, "weight_decay": decay} for group, decay in zip(groups, decays, strict=True)]
    optimiser = torch.optim.AdamW(options, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=config.steps, pct_start=0.05)
    losses = []
    for step in tqdm(range(config.steps), desc="training", unit="step", mininterval=5):
        at_step(step, model)
        tokens = repeated_sequences(config, config.batch, generator)
        logits, _ = model(tokens)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    at_step(config.steps, model)
    return model.eval(), losses


def second_copies(model: ToyModel, seed: int = 1) -> tuple[float, Float[Tensor, "layer head"]]:
    """Run the model on fresh random sequences whose second half repeats the first.

    Returns the mean loss in nats per token on the second copies, and of every head the mean attention of their tokens
    to the one after the same token in the first copy.
    """
    half = model.config.n_positions // 2
    first = torch.randint(model.config.vocab_size, (256, half), generator=torch.Generator().manual_seed(seed))
    tokens = torch.cat([first, first], dim=1)
    with torch.inference_mode():
        logits, attentions = model(tokens)
    loss = functional.cross_entropy(logits[:, half:-1].flatten(0, 1), tokens[:, half + 1 :].flatten())
    rows = torch.arange(half, 2 * half)
    return loss.item(), torch.stack([one[:, :, rows, rows - half + 1].mean(dim=(0, 2)) for one in attentions])


def save_step(model: ToyModel, folder: str | Path, seed: int) -> None:
    """Write the model of one step of its training as :func:`save_toy` does, and beside it ``run.json``.

    That file holds what the model does by then: ``loss`` and ``induction``, of :func:`second_copies`.
    """
    save_toy(model, folder, seed)
    loss, induction = second_copies(model)
    write_text(json.dumps({"loss": loss, "induction": induction.tolist()}) + "\n", Path(folder) / "run.json")


def save_toy(model: ToyModel, folder: str | Path, seed: int) -> None:
    """Write the model as a folder with ``config.json`` and ``model.safetensors``."""
    config = {"model_type": "gpt2", "architectures": [ARCHITECTURE], "seed": seed, **asdict(model.config)}
    tensors = {f"transformer.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    with whole_file(Path(folder) / "model.safetensors") as path:
        path.write_bytes(save(tensors, metadata={"format": "pt"}))
    write_text(json.dumps(config, indent=1) + "\n", Path(folder) / "config.json")


def is_toy(folder: str | Path) -> bool:
    """Whether a folder holds a model of :func:`save_toy`."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("architectures") == [ARCHITECTURE]


def load_toy(folder: str | Path) -> ToyModel:
    """Read a model of :func:`save_toy`.

    Raises :class:`InputError` if the folder holds no such model or its tensors do not fit the configuration.
    """
    if not is_toy(folder):
        raise InputError(
            f"{folder}: no model of this kind; expected a config.json with the architecture {ARCHITECTURE}"
        )
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    try:
        model = ToyModel(ToyConfig(**{field.name: config[field.name] for field in fields(ToyConfig)}))
        tensors = load_file(Path(folder) / "model.safetensors")
        model.load_state_dict({name.removeprefix("transformer."): tensor for name, tensor in tensors.items()})
    except (KeyError, TypeError, RuntimeError, OSError, SafetensorError) as error:
        said = str(error).splitlines()[0]
        raise InputError(f"{folder}: not a whole trained model ({said}); train it again") from error
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a model and write it."""
    prog, description = "python -m headspaces.activations.toy_model", str(__doc__).split("\n\n")[0]
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("folder", type=Path, help="folder to write, made where it does not exist")
    parser.add_argument("--seed", type=int, default=0, help="of the weights' start and of the sequences (default 0)")
    parser.add_argument("--steps", type=int, default=ToyConfig.steps, help="training steps (default %(default)s)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(worker_count())
    model, losses = train(ToyConfig(steps=chosen.steps), chosen.seed)
    save_toy(model, chosen.folder, chosen.seed)
    logger.info(
        "%s: loss %.3f nats per token in training, %.3f on second copies",
        chosen.folder, sum(losses[-20:]) / len(losses[-20:]), second_copies(model)[0],
    )  # fmt: skip


if __name__ == "__main__":
    main()
