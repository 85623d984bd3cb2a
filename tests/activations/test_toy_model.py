import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from headspaces.activations.attention import attention_patterns, induction_scores, open_runner
from headspaces.activations.texts import Text
from headspaces.activations.toy_model import (
    ToyConfig,
    ToyModel,
    is_toy,
    load_toy,
    main,
    repeated_sequences,
    save_step,
    save_toy,
    second_copies,
    train,
)
from headspaces.affinity.graph import strongest_edges
from headspaces.affinity.run import affinity
from headspaces.errors import InputError
from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import fold
from headspaces.geometry.overlaps import observed_overlaps
from headspaces.geometry.statistics import spread_ratio
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.report.results import ModelResults
from headspaces.spaces import NULLS, Shape
from headspaces.study.series import TOY_STEPS
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

SMALL = replace(ToyConfig(), n_embd=16, n_head=2, batch=8, steps=3)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ToyModel(SMALL).eval()


def test_sequences_repeat_after_their_period():
    config = replace(ToyConfig(), vocab_size=1000)
    tokens = repeated_sequences(config, 200, torch.Generator().manual_seed(0))
    assert tokens.shape == (200, 32)
    periods = []
    for row in tokens:
        fitting = [n for n in range(1, 32) if torch.equal(row[n:], row[:-n])]
        periods.append(fitting[0])
        assert row[: fitting[0]].unique().numel() > 0.7 * fitting[0]
    assert min(periods) == config.shortest_period == 4
    assert max(periods) == 16


def test_attention_is_that_of_gpt2(model):
    """Without positions the layer computes what transformers' own module does with its weights."""
    attention = GPT2Attention(
        GPT2Config(n_embd=16, n_head=2, n_positions=32, attn_implementation="eager"), layer_idx=0
    ).eval()
    attention.load_state_dict(model.h[0].attn.state_dict(), strict=False)
    x = torch.randn(3, 7, 16)
    causal = torch.full((7, 7), -torch.inf).triu(1)[None, None]
    expected, weights = attention(x, attention_mask=causal, output_attentions=True)[:2]
    written, found = model.h[0].attn(x, torch.zeros(7, 16))
    torch.testing.assert_close(written, expected)
    torch.testing.assert_close(found, weights)


def test_positions_reach_queries_and_keys_only(model):
    tokens = torch.randint(64, (1, 9))
    logits, attentions = model(tokens)
    with torch.no_grad():
        model.wpe.weight.add_(torch.randn_like(model.wpe.weight))
    _, moved = model(tokens)
    assert (attentions[0] - moved[0]).abs().max() > 1e-3
    with torch.no_grad():
        # Heads that attend uniformly: what positions could still move would be values.
        model.h[0].attn.c_attn.weight[:, :32].zero_()
        model.h[1].attn.c_attn.weight[:, :32].zero_()
        before = model(tokens)[0]
        model.wpe.weight.add_(torch.randn_like(model.wpe.weight))
        torch.testing.assert_close(model(tokens)[0], before)
    assert not torch.equal(logits, before)


def test_the_future_is_not_seen(model):
    tokens = torch.randint(64, (1, 9))
    changed = tokens.clone()
    changed[0, 5] += 1
    torch.testing.assert_close(model(tokens)[0][:, :5], model(changed % 64)[0][:, :5])
    assert (model(tokens)[0][:, 5:] - model(changed % 64)[0][:, 5:]).abs().max() > 1e-4


def test_training_repeats_and_learns():
    config = replace(SMALL, steps=40, batch=32)
    one, losses = train(config, seed=3)
    two, again = train(config, seed=3)
    assert losses == again
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert len(losses) == 40
    # The start is worse than guessing, ln 64.
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1


def test_folder_is_read_by_the_pipeline(model, tmp_path):
    save_toy(model, tmp_path / "toy", seed=7)
    headers = read_headers(str(tmp_path / "toy"))
    assert asdict(headers.shape) == {"n_layers": 2, "d_model": 16, "n_query_heads": 2, "n_kv_heads": 2, "d_head": 8}
    fetch_block(headers, range(2), tmp_path / "block.safetensors")
    layers = read_block(tmp_path / "block.safetensors")
    x = torch.randn(16)
    read = model.h[1].attn.c_attn(x).detach().numpy().reshape(3, 2, 8)
    for place, kind in enumerate("QKV"):
        np.testing.assert_allclose(np.einsum("hdk,d->hk", layers[1].factors[kind], x.numpy()), read[place], atol=1e-5)
    z = torch.randn(16)
    written = np.einsum("hdk,hk->d", layers[1].factors["O"], z.numpy().reshape(2, 8))
    np.testing.assert_allclose(written, model.h[1].attn.c_proj(z).detach(), atol=1e-5)


def test_saved_and_loaded(model, tmp_path):
    save_toy(model, tmp_path, seed=7)
    assert is_toy(tmp_path)
    assert not is_toy(tmp_path / "nowhere")
    found = load_toy(tmp_path)
    assert found.config == model.config
    tokens = torch.randint(64, (2, 12))
    assert torch.equal(found(tokens)[0], model(tokens)[0])
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 7


def test_other_folders_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="no model of this kind"):
        load_toy(tmp_path)
    save_toy(model, tmp_path, seed=0)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 8)
    with pytest.raises(InputError, match="not a whole trained model"):
        load_toy(tmp_path)


def test_second_copies_of_an_untrained_model_are_guesses(model):
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert second_copies(model)[0] == pytest.approx(np.log(64), abs=1e-5)


def test_command(tmp_path, capsys):
    main([str(tmp_path / "out"), "--seed", "2", "--steps", "2"])
    assert load_toy(tmp_path / "out").config == replace(ToyConfig(), steps=2)


def test_looking_at_the_steps_changes_nothing():
    seen = []
    watched, losses = train(SMALL, 3, lambda step, model: seen.append((step, second_copies(model)[0])))
    plain, same = train(SMALL, 3)
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    assert len({loss for _, loss in seen}) == 4
    assert losses == same
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, watched.state_dict()[name])


def test_a_step_says_what_the_model_does(model, tmp_path):
    """Against the scores of the attention stage, and a loss that is summed token by token."""
    save_step(model, tmp_path / "step5", seed=7)
    run = json.loads((tmp_path / "step5" / "run.json").read_text())
    assert is_toy(tmp_path / "step5")
    first = torch.randint(64, (256, 16), generator=torch.Generator().manual_seed(1))
    tokens = torch.cat([first, first], dim=1)
    with torch.no_grad():
        logits, attentions = model(tokens)
    expected = [np.mean([induction_scores(one.numpy(), 16) for one in attention], axis=0) for attention in attentions]
    np.testing.assert_allclose(run["induction"], expected, rtol=1e-4)
    chances = logits.softmax(dim=-1)
    nats = [-chances[:, at].gather(1, tokens[:, at + 1, None]).log() for at in range(16, 31)]
    assert run["loss"] == pytest.approx(torch.cat(nats).mean().item(), rel=1e-5)


@pytest.mark.slow
def test_overlaps_leave_the_nulls_when_induction_heads_form(tmp_path):
    """At the start weights lie inside RW's nulls; writes and keys leave them first."""
    r = {}

    def ratios(step, model):
        if step in TOY_STEPS:
            save_toy(model, tmp_path / "toy", 0)
            fetch_block(read_headers(str(tmp_path / "toy")), range(2), tmp_path / "block.safetensors")
            layers = read_block(tmp_path / "block.safetensors")
            observed = observed_overlaps([block_bases(layers, fold_norms=True)])
            run = NullRun(lambda at, kind: fold(layers[at], kind), Shape(2, 128, 8, 8, 16), "OQKV", f"step{step}", 0)
            nulls = {name: array for null in NULLS for name, array in null_shard(run, null, range(20)).items()}
            found = ModelResults("toy", {}, observed, nulls)
            r[step] = {
                one.spaces: np.median(spread_ratio(one.spread, *one.samples("spread"))) for one in found.compare_all()
            }

    train(ToyConfig(), 0, ratios)
    assert list(r) == list(TOY_STEPS)
    assert sum(value < 1 for value in r[0].values()) >= 6
    first = {spaces: next((step for step in r if r[step][spaces] > 2), np.inf) for spaces in r[0]}
    assert first["OK"] < min(first[kind] for kind in "OQKV")
    assert first["OK"] <= 250


@pytest.mark.slow
def test_strongest_key_edges_run_from_previous_token_to_induction_heads(tmp_path):
    """PK figure 4 on the model of the documented command."""
    main([str(tmp_path), "--seed", "0"])
    assert second_copies(load_toy(tmp_path))[0] < 0.1
    runner = open_runner(str(tmp_path), "toy", Text("", "", "", 0, ""), n_windows=32, n_tokens=32, seed=0)
    scores = attention_patterns(runner, n_sequences=32, n_repeated=16, seed=0)
    headers = read_headers(str(tmp_path))
    fetch_block(headers, range(2), tmp_path / "block.safetensors")
    arrays = affinity([lambda: read_block(tmp_path / "block.safetensors")], scores=[])
    edges = strongest_edges(arrays, k=8)
    keys = edges[edges["type"] == "OK"]
    previous, induction = scores["previous_token"][0], scores["induction"][1]
    assert previous.max() > 0.5
    assert (keys["source_head"].iloc[:3] == previous.argmax()).all()
    # Every source attends to the previous token more than the other heads do, every target to the copy's successor.
    assert previous[keys["source_head"].unique()].min() > np.median(previous)
    assert induction[keys["target_head"]].min() > 0.5
    strongest = edges.groupby("type")["pk"].max()
    assert strongest["OK"] > 1.5 * max(strongest["OQ"], strongest["OV"])
