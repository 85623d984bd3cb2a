"""Loading: whatever holds a model's attention weights, as :class:`~headspaces.library.model.ModelSpaces`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headspaces.errors import InputError
from headspaces.library.checkpoints import find_model, open_checkpoint
from headspaces.library.model import ModelSpaces
from headspaces.library.source import HeadSource
from headspaces.spaces import KINDS, Shape


def load(
    source: Any,
    *,
    fold: bool = True,
    rank_rtol: float | None = None,
    leave_out_rounding: bool = False,
    kinds: str = KINDS,
    name: str | None = None,
    shape: Shape | None = None,
    norm: str = "none",
    config: Mapping[str, Any] | None = None,
    results: str | Path | None = None,
    models_table: str | Path | None = None,
) -> ModelSpaces:
    """Open a model. Only its headers are read; weights when numbers are asked for, and only those in question.

    Parameters
    ----------
    source
        One of

        - a folder in the Hugging Face layout, a ``.gguf``, ``.pt`` or ``.safetensors`` file,
          ``hub:owner/name[@revision]``, or ``wheel:NAME==VERSION:MEMBER@sha256=HEX``;
        - with ``results``, the name of a model there; with ``models_table``, of a row;
        - a model of ``transformers``;
        - a HookedTransformer or TransformerBridge of TransformerLens (its notes say what was done to its weights);
        - a mapping of arrays, numpy's or torch's: ``O``, ``Q``, ``K``, ``V``, each ``(layer, head, d_model, d_head)``;
          with ``shape``, matrices ``(layer, out, in)`` as ``torch.nn.Linear`` has them; ``norm`` with the gains
          ``(layer, d_model)``;
        - a mapping of a checkpoint's tensors by name, with its ``config``.
    fold
        Whether the linear part of the norm before the attention belongs to the reads (RW section 2.2); the bare weights
        otherwise, as PK has them. Every method can say otherwise.
    rank_rtol
        Singular values above this part of a head's largest count towards its rank; by default 1e-6 (RW 5.1).
    leave_out_rounding
        Whether directions that the rounding of the stored weights may have made are left out of all spaces: a head of
        exact rank 8 stored in bfloat16 then has rank 8 again. Weights of unknown rounding are refused.
    kinds
        Kinds of spaces that are wanted: letters of ``OQKV``.
    name
        A name for the results; by default it is made of the source.
    shape, norm
        Of a mapping of arrays: see above; ``norm`` is ``layernorm``, ``rmsnorm`` or ``none``.
    config
        Of a mapping of tensors: the content of ``config.json``.
    results, models_table
        Folder of the pipeline's results: overlaps come from there where they are of the same weights and settings.
        Table of models as ``config/models.tsv``.

    Returns
    -------
    ModelSpaces

    Raises
    ------
    InputError
        If there is no such source, it is damaged, or its architecture is not supported.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> rng = np.random.default_rng(0)
    >>> stacks = {"O": rng.normal(size=(3, 4, 16, 2)), "K": rng.normal(size=(3, 2, 16, 2))}
    >>> hs.load(stacks, name="random")
    <ModelSpaces 'random': 3 layers, 4 query and 2 key-value heads, 2 wide, in 16 dimensions
      kinds O K, type F64, layout arrays, no norm, from arrays>
    """
    overlaps_file = None
    if isinstance(source, (str, Path)):
        found = find_model(str(source), results, models_table)
        overlaps_file = found.overlaps
        try:
            heads = open_checkpoint(found, kinds)
        except ModuleNotFoundError as error:
            raise InputError(f"{source}: reading it needs {error.name}: pip install 'headspaces[run]'") from error
        heads = heads if name is None else replace(heads, name=name)
    else:
        heads = _from_memory(source, kinds, name, shape, norm, config)
    heads = heads.without_rounding() if leave_out_rounding else heads
    return ModelSpaces(heads, fold, rank_rtol, overlaps_file)


def _from_memory(
    source: Any, kinds: str, name: str | None, shape: Shape | None, norm: str, config: Mapping[str, Any] | None
) -> HeadSource:
    # These need numpy, which a look at a checkpoint's headers does without.
    from headspaces.library import in_memory

    if isinstance(source, Mapping):
        if config is not None:
            return in_memory.open_state(source, config, name or "tensors", "tensors", kinds)
        return in_memory.open_arrays(source, shape, norm, name, kinds)
    if hasattr(source, "cfg") and hasattr(source, "blocks"):
        return in_memory.open_transformer_lens(source, name, kinds)
    if hasattr(source, "state_dict") and hasattr(getattr(source, "config", None), "to_dict"):
        return in_memory.open_transformers(source, name, kinds)
    raise InputError(
        f"cannot load a {type(source).__name__}: expected a path or hub:owner/name, a model of transformers or "
        "TransformerLens, or a mapping of arrays"
    )
