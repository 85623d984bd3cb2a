"""Published decoders as their repositories store them: inspected, planned and fetched, or refused for a reason."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.hub_double import HubDouble
from support.skeletons import NAMES, Skeleton, expanded, read_skeleton
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import headspaces as hs
from headspaces.costs.plan import Machine, plan_study
from headspaces.costs.stages import Workload
from headspaces.errors import InputError
from headspaces.library.description import describe
from headspaces.spaces import KINDS, Shape
from headspaces.study.own_models import own_model
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers_file import write_headers
from headspaces.weights.source import read_headers

ABOUT = {name: read_skeleton(name).about for name in NAMES}
SERVED = [name for name in NAMES if "shape" in ABOUT[name]]


def test_the_forms_that_repositories_use_are_among_them():
    assert len(NAMES) >= 40
    assert len({ABOUT[name]["repository"] for name in NAMES}) == len(NAMES)
    texts = {name: str(ABOUT[name]) for name in NAMES}
    for form in ("vision_config", "num_nextn_predict_layers", "F8_E4M3", "weight_scale_inv", "mxfp4", "consolidated"):
        assert any(form in text for text in texts.values()), form


def test_patterns_stand_for_runs_of_numbers():
    assert list(expanded("a.{0-1}.b.{9-10}.c")) == ["a.0.b.9.c", "a.1.b.9.c", "a.0.b.10.c", "a.1.b.10.c"]


def published(skeleton: Skeleton, double: HubDouble, folder: Path) -> str:
    """Publish a model at the double, or write its GGUF file; return its source."""
    if "file" in skeleton.about:
        return str(skeleton.write_gguf(folder))
    repository = skeleton.about["repository"]
    double.repository(repository).commit(skeleton.files())
    return f"hub:{repository}"


@pytest.mark.parametrize("name", SERVED)
def test_it_is_inspected_planned_and_fetched(name, double, tmp_path):
    skeleton = read_skeleton(name)
    source = published(skeleton, double, tmp_path)
    model = hs.load(source)
    shape = Shape(*skeleton.about["shape"])
    assert (model.shape, model.kinds) == (shape, KINDS)
    facts = describe(model)
    elements = sum(shape.n_heads(kind) * shape.d_head * shape.d_model for kind in KINDS) * shape.n_layers
    # Norms and scales are the little that there is beside; Q4_K_M mixes 4.5 and 6.6 bits.
    least, most = {"F8": (1, 1.05), "F3": (4, 4.2), "gg": (0.56, 0.65)}.get(max(model.heads.dtypes)[:2], (2, 2.1))
    assert elements * least <= facts["bytes"] <= elements * most
    assert facts["bytes_to_fetch"] <= 1.05 * facts["bytes"]
    notes = " ".join(model.notes)
    assert all(word in notes for word in skeleton.about.get("notes", ())), notes

    headers = read_headers(source)
    write_headers(headers, tmp_path / "headers.json")
    row = own_model(source, headers)
    assert not (row.activations and "vision_config" in skeleton.about["config"])
    known = {row.name: tmp_path / "headers.json"}
    rows = plan_study([row], {row.name: ["overlaps"]}, known, Machine(2, 10.0), Workload())
    assert {stage.stage for stage in rows} == {"weights", "bases", "overlaps"}
    assert rows[0].fetch_bytes >= facts["bytes"] * source.startswith("hub:")

    served, last = double.bodies, shape.n_layers - 1
    fetch_block(replace(headers, kinds="K"), range(last, last + 1), tmp_path / "block.safetensors")
    assert double.bodies - served <= 1.05 * facts["bytes"] / shape.n_layers
    (heads,) = read_block(tmp_path / "block.safetensors")
    assert heads.factors["K"].shape == (shape.n_kv_heads, shape.d_model, shape.d_head)
    assert not heads.factors["K"].any()


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SERVED)))
def test_it_is_refused_for_the_stated_reason(name, double, tmp_path):
    skeleton = read_skeleton(name)
    source = published(skeleton, double, tmp_path)
    with pytest.raises(InputError, match=re.escape(skeleton.about["refused"])):
        read_headers(source)


OWN = re.compile(r"(?:layers|\bh|blocks)\.1\.((?:self_attn|attn|attention|self_attention|\w*norm|ln_1|ln_attn)\b.*)")
"""Names of a decoder's attention and norms, beneath layer 1."""
BUFFERS = (".attn.bias", ".attention.bias", ".masked_bias", ".inv_freq", "scale_inv")
"""What files hold beside a model's parameters."""


def smaller(config: dict) -> dict:
    """Give a configuration two layers and few experts, and no `None`."""
    sizes = dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2)
    sizes |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 8)
    sizes |= {"attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"]}
    left_out = ("auto_map", "quantization_config", "architectures", "no_rope_layers")
    found = {key: sizes.get(key, value) for key, value in config.items() if key not in left_out and value is not None}
    return found | ({"text_config": smaller(config["text_config"])} if "text_config" in config else {})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SERVED if "file" not in ABOUT[name]])
def test_the_attention_has_the_names_and_shapes_of_transformers(name):
    config = smaller(ABOUT[name]["config"])
    auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: shape for name, _, shape in read_skeleton(name).tensors if not name.endswith(BUFFERS)}
    own = [
        {match[1]: shape for key, shape in every.items() if "vis" not in key and (match := OWN.search(key))}
        for every in (found, expected)
    ]
    assert own[0] == own[1]
    assert own[0]
