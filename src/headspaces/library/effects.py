"""Effects of edges on the loss: the strongest of a model that runs, as a table.

PyTorch and transformers are imported when a model is to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspaces.errors import InputError
from headspaces.library.answers import Answers
from headspaces.library.comparisons import check_count
from headspaces.library.source import HeadSource
from headspaces.spaces import READS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from headspaces.attribution.cases import Case
    from headspaces.attribution.running import RunningModel

LETTERS = 12
"""Letters of a text that are read for every token that is wanted."""


class MeasuredEffects:
    """The part of :class:`headspaces.ModelSpaces` that runs the model."""

    heads: HeadSource
    answers: Answers

    def effects(
        self,
        text: str | Path | None = None,
        k: int | None = 20,
        *,
        prompts: str | Path | None = None,
        windows: int = 8,
        window_tokens: int = 256,
    ) -> pd.DataFrame:
        """Run the model and return the edges from a write to a later read that matter most, the largest first.

        Parameters
        ----------
        text
            A text file, ``dataset:OWNER/NAME:CONFIG:SPLIT`` or ``python:pydoc_data.topics``: the measure is the mean
            next-token loss.
        k
            How many edges; None for all.
        prompts
            Instead of a text, a file of prompts with two answers each: the measure is the mean difference of the
            answers' logits.
        windows, window_tokens
            Pieces that the text is cut into, and their length.

        Returns
        -------
        pandas.DataFrame
            ``writer`` and ``reader`` as ``layer.head``, the reader of a ``kind`` K or V a key-value head; ``effect``,
            A in nats: the measure changes by about -A when the write is removed from that read, to first order;
            ``effect_second_order``, the same to second order with the reader head exact; ``absolute``, the sum over
            tokens of absolute values; ``rho`` of the two spaces (RW 4.2). ``attrs`` say what was measured: ``measure``,
            ``value``, ``n_cases``.

        Raises
        ------
        InputError
            If neither or both of text and prompts are given, the model is no checkpoint that transformers runs,
            something is missing (``pip install 'headspaces[run]'``), or the text or a prompt cannot be used.

        Examples
        --------
        >>> model = hs.load("hub:HuggingFaceTB/SmolLM2-135M")  # doctest: +SKIP
        >>> frame = model.effects("notes.txt", k=10, windows=4)  # doctest: +SKIP
        """
        check_count(k, "k", self.heads.name)
        checkpoint = _checkpoint(self.heads, text, prompts)
        try:
            from headspaces.attribution.running import open_running
        except ModuleNotFoundError as error:
            raise InputError(
                f"{self.heads.name}: running it needs {error.name}: pip install 'headspaces[run]'"
            ) from error
        from headspaces.geometry.pairs import normalised

        rho = {kind: normalised(*self.answers.geometry(f"O{kind}").kernel(f"O{kind}")) for kind in READS}
        layers = list(self.heads.read("OQKV"))
        model = open_running(checkpoint, layers, self.heads.name)
        cases = _cases(model, text, prompts, windows, window_tokens)
        frame = _strongest(model, cases, rho, k)
        frame.attrs |= {"measure": "mean next-token loss" if text else "mean difference of the answers' logits"}
        return frame


def _checkpoint(heads: HeadSource, text: object, prompts: object) -> str:
    """Check what is asked, and give what there is to run."""
    from headspaces.activations.run_check import reason_not_to_run

    if (text is None) == (prompts is None):
        given = "neither" if text is None else "both"
        raise InputError(f"{heads.name}: effects are of a text or of prompts, got {given}; give one of them")
    if heads.leave_out_rounding:
        raise InputError(
            f"{heads.name}: effects are of the whole model; load it without leaving out directions within rounding"
        )
    if heads.checkpoint is None:
        raise InputError(f"{heads.name}: {heads.origin} is no checkpoint to run; load a folder or hub:owner/name")
    if reason := reason_not_to_run(heads.checkpoint, heads.kinds):
        raise InputError(f"{heads.name}: cannot be run: {reason}")
    return heads.checkpoint


def _cases(
    model: RunningModel, text: str | Path | None, prompts: str | Path | None, windows: int, window_tokens: int
) -> Sequence[Case]:
    from headspaces.activations.forward_pass import cut_windows
    from headspaces.activations.texts import read_text
    from headspaces.attribution.cases import text_cases
    from headspaces.attribution.prompts import prompt_cases

    if model.tokenizer is None:
        raise InputError(f"{model.where}: has no tokenizer, so that it reads neither a text nor prompts")
    if prompts is not None:
        return prompt_cases(prompts, model.tokenizer)
    read = read_text(str(text), LETTERS * windows * window_tokens)
    return text_cases(cut_windows(model.tokenizer, read, windows, window_tokens))


def _strongest(
    model: RunningModel, cases: Sequence[Case], rho: Mapping[str, np.ndarray], k: int | None
) -> pd.DataFrame:
    """List the edges of largest size of A."""
    import pandas as pd

    from headspaces.attribution.first_order import first_order
    from headspaces.attribution.second_order import second_order
    from headspaces.attribution.stage import strongest

    arrays, value = first_order(model, cases)
    of_kind = {kind: strongest(kind, abs(arrays[f"{kind}/effect"]), k) for kind in READS}
    edges = [edge for kind in READS for edge in of_kind[kind]]
    edges.sort(key=lambda edge: -abs(arrays[f"{edge.kind}/effect"][edge.indices]))
    edges = edges[:k]
    rows: list[dict[str, Any]] = [
        {
            "writer": f"{edge.writer_layer}.{edge.writer_head}",
            "reader": f"{edge.reader_layer}.{edge.reader_head}",
            "kind": edge.kind,
            "effect": arrays[f"{edge.kind}/effect"][edge.indices],
            "effect_second_order": curved,
            "absolute": arrays[f"{edge.kind}/absolute"][edge.indices],
            "rho": rho[edge.kind][edge.indices],
        }
        for edge, curved in zip(edges, second_order(model, cases, edges).mean(axis=1).tolist(), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["writer", "reader", "kind", "effect", "effect_second_order", "absolute", "rho"])
    frame.attrs = {"value": value, "n_cases": len(cases)}
    return frame
