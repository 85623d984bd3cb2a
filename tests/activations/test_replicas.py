"""Replicas: what threads share and what they do not, and numbers that no number of threads changes."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headspaces.activations import replicas
from headspaces.activations.replicas import map_with_replicas, replica


def tiny():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=20, n_positions=16)).eval()


def test_a_replica_has_the_same_tensors_and_hooks_of_its_own():
    model = tiny()
    other = replica(model)
    assert other is not model
    assert other.transformer.h[1] is not model.transformer.h[1]
    for (name, one), (same, theirs) in zip(
        model.state_dict(keep_vars=True).items(), other.state_dict(keep_vars=True).items()
    ):
        assert name == same
        assert one is theirs
    assert other.lm_head.weight is other.transformer.wte.weight
    heard = []
    model.transformer.h[0].register_forward_hook(lambda *_: heard.append("model"))
    other.transformer.h[0].register_forward_hook(lambda *_: heard.append("replica"))
    other(torch.arange(3)[None])
    assert heard == ["replica"]


def run(n_threads, n_items, monkeypatch):
    """Logits of sequences with what a hook heard, and the modules that were prepared."""
    monkeypatch.setattr(replicas, "worker_count", lambda: n_threads)
    model, prepared = tiny(), []

    def prepare(module):
        heard = []
        module.transformer.h[0].register_forward_hook(lambda _module, inputs, _output: heard.append(inputs[0].shape[1]))
        prepared.append(module)
        return module, heard

    def function(state, tokens):
        module, heard = state
        with torch.inference_mode():
            logits = module(torch.from_numpy(tokens)[None]).logits[0].numpy()
        return logits, heard.pop(), len(heard), torch.get_num_threads()

    items = [np.arange(1 + number % 5) for number in range(n_items)]
    return items, list(map_with_replicas(model, prepare, function, items)), prepared, model


def test_results_stand_in_order_and_every_hook_hears_its_own_sequence(monkeypatch):
    items, found, prepared, model = run(3, 20, monkeypatch)
    assert 1 <= len(prepared) <= 3
    assert prepared[0] is model or len(prepared) > 1
    assert len({id(module) for module in prepared}) == len(prepared)
    for tokens, (logits, heard, left, _) in zip(items, found, strict=True):
        assert (heard, left) == (len(tokens), 0)
        with torch.inference_mode():
            np.testing.assert_allclose(logits, tiny()(torch.from_numpy(tokens)[None]).logits[0].numpy(), atol=1e-6)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    by_threads = [[one[0].tobytes() for one in run(n_threads, 6, monkeypatch)[1]] for n_threads in (1, 2, 4)]
    assert by_threads[0] == by_threads[1] == by_threads[2]


@pytest.mark.parametrize(("n_threads", "n_items", "inside"), [(8, 2, 4), (2, 6, 1), (1, 1, 1)])
def test_threads_without_a_sequence_are_torchs(n_threads, n_items, inside, monkeypatch):
    before = torch.get_num_threads()
    found = run(n_threads, n_items, monkeypatch)[1]
    assert {one[3] for one in found} == {inside}
    assert torch.get_num_threads() == before


def test_no_sequences_are_no_results():
    assert list(map_with_replicas(tiny(), lambda module: module, lambda *_: None, [])) == []
