import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from headspaces.activations import attention as patterns
from headspaces.activations.forward_pass import Windows
from headspaces.activations.texts import Text
from headspaces.activations.toy_model import ToyConfig, ToyModel, save_toy
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm

SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 30, "n_positions": 24}


def tiny_gpt2(attention="eager"):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**SIZES, attn_implementation=attention, initializer_range=0.3))
    return model.eval()


def shifted(n_tokens, back):
    """A head that attends to the token a number of places before, or to the first where there is none."""
    attention = np.zeros((n_tokens, n_tokens), np.float32)
    attention[np.arange(n_tokens), np.maximum(0, np.arange(n_tokens) - back)] = 1
    return attention


def runner(attend, tokens, bos=None, n_positions=None):
    module = torch.nn.Identity()
    return patterns.Runner(
        module, attend, Windows(np.asarray(tokens), bos), np.arange(50), np.eye(50), None, n_positions
    )


class TestScores:
    def test_ideal_heads(self):
        def attend(_module, sequence):
            n_tokens = len(sequence)
            # Layer 0: an identity and a previous-token head. Layer 1: an induction head for copies of 6, a lazy one.
            return [
                np.stack([shifted(n_tokens, 0), shifted(n_tokens, 1)]),
                np.stack([shifted(n_tokens, 5), shifted(n_tokens, n_tokens)]),
            ]

        found = patterns.attention_patterns(runner(attend, [range(12)] * 2), n_sequences=3, n_repeated=6, seed=0)
        assert found["identity"].tolist() == [[1, 0], [0, 0]]
        # The second token's earlier neighbour is the first, which lazy and induction heads fall back to.
        assert found["previous_token"].tolist() == [[0, 1], pytest.approx([1 / 11, 1 / 11])]
        assert found["induction"].tolist() == [[0, 0], [1, 0]]

    def test_induction_finds_the_token_after_the_copy(self):
        """An oracle that looks for the copy instead of counting places."""

        def attend(_module, sequence):
            attention = np.zeros((1, len(sequence), len(sequence)), np.float32)
            for here, token in enumerate(sequence):
                earlier = np.flatnonzero(sequence[:here] == token)
                attention[0, here, earlier[-1] + 1 if earlier.size else 0] = 1
            return [attention]

        for bos in (None, 49):
            found = patterns.attention_patterns(runner(attend, [range(9)], bos), n_sequences=5, n_repeated=8, seed=1)
            assert found["induction"].tolist() == [[1]]

    def test_the_token_before_every_text_is_not_counted(self):
        seen = []

        def attend(_module, sequence):
            seen.append(sequence)
            attention = np.tile(shifted(len(sequence), len(sequence)), (1, 1, 1))
            attention[0, 1:] = np.eye(len(sequence))[1:] * 0.5  # each token but the first sees itself half
            return [attention]

        found = patterns.attention_patterns(runner(attend, [range(4)], bos=49), n_sequences=1, n_repeated=3, seed=0)
        assert seen[0].tolist() == [49, 0, 1, 2, 3]
        assert seen[1][0] == 49
        assert found["identity"].tolist() == [[0.5]]

    def test_a_short_context_shortens_the_copies(self):
        lengths = []

        def attend(_module, sequence):
            lengths.append(len(sequence))
            return [np.tile(shifted(len(sequence), 0), (1, 1, 1))]

        short = runner(attend, [range(8)], bos=49, n_positions=12)
        patterns.attention_patterns(short, n_sequences=2, n_repeated=64, seed=0)
        assert lengths == [9, 11, 11]
        assert patterns.pattern_facts(short, n_sequences=2, n_repeated=64, seed=0)["n_repeated"] == 5

    def test_the_seed_decides(self):
        seen = []

        def attend(_module, sequence):
            seen.append(sequence.tolist())
            return [np.tile(shifted(len(sequence), 0), (1, 1, 1))]

        for seed in (3, 3, 4):
            patterns.attention_patterns(runner(attend, [range(4)]), n_sequences=1, n_repeated=8, seed=seed)
        _, one, _, same, _, other = seen
        assert one == same != other
        assert one[:8] == one[8:]
        assert len(set(one)) == 8


class TestTransformers:
    def test_attention_of_the_first_layer(self):
        """The model's attention is what its weights say: layer norm, queries, keys, softmax over earlier tokens."""
        model = tiny_gpt2()
        tokens = np.array([3, 1, 4, 1, 5])
        found = patterns.attend_with("tiny")(model, tokens)
        block = model.transformer.h[0]
        with torch.no_grad():
            x = block.ln_1(model.transformer.wte.weight[tokens] + model.transformer.wpe.weight[:5]).numpy()
        qkv = x @ block.attn.c_attn.weight.detach().numpy() + block.attn.c_attn.bias.detach().numpy()
        for head in range(4):
            q, k = (qkv[:, start + 4 * head : start + 4 * head + 4] for start in (0, 16))
            scores = np.exp(q @ k.T / 2) * np.tril(np.ones((5, 5)))
            np.testing.assert_allclose(found[0][head], scores / scores.sum(axis=1, keepdims=True), atol=1e-5)
        assert len(found) == 2

    def test_without_attention_weights_nothing_is_measured(self):
        attend = patterns.attend_with("tiny")
        with pytest.raises(InputError, match=r"tiny: no attention weights for 2 layers came back \(attention 'sdpa'\)"):
            attend(tiny_gpt2("sdpa"), np.arange(5))

    def test_rows_that_do_not_add_up_are_refused(self):
        model = tiny_gpt2()
        # Dropout in training mode scales what remains.
        model.train()
        model.config.attn_pdrop = 0.5
        for block in model.transformer.h:
            block.attn.attn_dropout.p = 0.5
        with pytest.raises(InputError, match="does not add up to 1"):
            patterns.attend_with("tiny")(model, np.arange(12))

    def test_a_folder_of_transformers(self, tmp_path, monkeypatch):
        """Loaded in float32 and with attention weights, whatever the checkpoint was stored as."""
        torch.manual_seed(1)
        config = LlamaConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=30,
            intermediate_size=8, max_position_embeddings=16,
        )  # fmt: skip
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        model.save_pretrained(tmp_path)
        monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: LetterTokenizer())
        text = Text("abcdefghijklmnopqrst", "test", "", 1, "")
        found = patterns.open_runner(str(tmp_path), "tiny", text, n_windows=2, n_tokens=10, seed=0)
        assert found.windows.tokens.tolist() == [list(range(1, 11)), list(range(11, 21))]
        assert found.non_special.tolist() == list(range(1, 27))
        assert found.n_positions == 16
        expected = model.float()
        expected.set_attn_implementation("eager")
        with torch.no_grad():
            attention = expected(torch.arange(1, 11)[None], output_attentions=True).attentions[1][0]
        np.testing.assert_allclose(found.attend(found.module, np.arange(1, 11))[1], attention, atol=1e-6)
        scores = patterns.attention_patterns(found, n_sequences=2, n_repeated=6, seed=0)
        assert scores["identity"].shape == scores["induction"].shape == (2, 4)


class LetterTokenizer:
    """Letters are tokens 1 to 26, token 0 is special."""

    all_special_ids = (0,)
    bos_token_id = None

    def __len__(self):
        return 27

    def __call__(self, text, **_):
        return {"input_ids": [ord(letter) - 96 for letter in text]}

    def decode(self, tokens):
        return "".join(chr(96 + token) for token in tokens)


def test_a_trained_model_runs_on_random_tokens(tmp_path):
    torch.manual_seed(0)
    save_toy(ToyModel(ToyConfig(n_embd=16, n_head=2)), tmp_path, seed=0)
    found = patterns.open_runner(str(tmp_path), "toy", Text("", "", "", 0, ""), n_windows=3, n_tokens=99, seed=5)
    assert found.windows.tokens.shape == (3, 32)
    assert found.texts is None
    attention = found.attend(found.module, np.arange(6))
    assert [one.shape for one in attention] == [(2, 6, 6)] * 2
    np.testing.assert_allclose(attention[1].sum(axis=2), 1, atol=1e-6)


class TestTopTokens:
    def test_vectors_in_the_write_space_come_first(self, rng):
        basis = np.linalg.qr(rng.standard_normal((8, 8)))[0]
        heads = LayerHeads(
            0, {"O": np.stack([basis[:, :2] @ rng.standard_normal((2, 2)), basis[:, 2:4]])}, Norm("none")
        )
        # Vectors come in opposite pairs: their mean is zero. Long vectors outside do not win.
        inside = np.stack([basis[:, 0] + 0.1 * basis[:, 7], basis[:, 3] + 0.3 * basis[:, 1], 50 * basis[:, 6]])
        unembedding = np.concatenate([inside, -inside])
        top = patterns.top_tokens([heads], unembedding, n_top=2)
        assert top.tolist() == [[[0, 3], [1, 4]]]

    def test_the_mean_is_taken_off(self, rng):
        heads = LayerHeads(0, {"O": np.eye(4)[None, :, :1]}, Norm("none"))
        unembedding = rng.standard_normal((6, 4)) * 0.1
        unembedding[2] += [0, 5, 0, 0]
        shifted_by = np.array([100.0, 0, 0, 0])
        assert np.array_equal(
            patterns.top_tokens([heads], unembedding), patterns.top_tokens([heads], unembedding + shifted_by)
        )

    def test_texts(self):
        found = patterns.Runner(
            torch.nn.Identity(), lambda *_: [], Windows(np.zeros((1, 1), int), None), np.arange(3), np.eye(3),
            lambda tokens: ["aé🙂"[token] for token in tokens], None,
        )  # fmt: skip
        texts = patterns.token_texts(np.array([[[2, 0], [1, 1]]]), found)
        assert [[one.decode() for one in row] for row in texts[0]] == [["🙂", "a"], ["é", "é"]]
