"""The strongest neurons and tokens of a head, against a plain sort of all shares."""

import numpy as np

from headspaces.stream.strongest import Strongest, StrongestNeurons, strongest_tokens


def bases_of(rng, n_layers=3, n_heads=2, d_model=12, d_head=3):
    return np.linalg.qr(rng.standard_normal((n_layers, n_heads, d_model, d_head)))[0]


def shares_of(rows, basis):
    return np.linalg.norm(rows @ basis, axis=1) ** 2 / np.linalg.norm(rows, axis=1) ** 2


def test_tokens_are_those_of_a_plain_sort(rng):
    bases, rows = bases_of(rng), rng.standard_normal((40, 12)) + 1
    found = strongest_tokens(np.array_split(rows, 4), rows.mean(0), {"Q": bases})
    for layer in range(3):
        for head in range(2):
            expected = shares_of(rows - rows.mean(0), bases[layer, head])
            order = np.argsort(-expected)[:10]
            assert found["tokens/Q/token"][layer, head].tolist() == order.tolist()
            np.testing.assert_allclose(found["tokens/Q/share"][layer, head], expected[order], rtol=1e-5)


def test_neurons_of_later_mlps_read_and_those_of_earlier_ones_write(rng):
    """In sequence the MLP of a head's own layer reads its write, too; its reads see earlier MLPs only."""
    bases = {kind: bases_of(rng) for kind in "OQ"}
    mlps = [{letter: rng.standard_normal((5, 12)) for letter in "GIM"} for _ in range(3)]
    for parallel in (False, True):
        neurons = StrongestNeurons(bases, parallel=parallel)
        for layer, mlp in enumerate(mlps):
            neurons.add_layer(layer, mlp)
        found = neurons.arrays()
        for layer in range(3):
            first = layer + parallel
            every = [
                (later, neuron, matrix, mlps[later][letter][neuron])
                for later in range(first, 3) for matrix, letter in enumerate("GI") for neuron in range(5)
            ]  # fmt: skip
            check(found, "O", layer, bases["O"][layer, 1], every, ("layer", "neuron", "matrix"))
            every = [(before, n, rows) for before in range(layer) for n, rows in enumerate(mlps[before]["M"])]
            check(found, "Q", layer, bases["Q"][layer, 1], every, ("layer", "neuron"))


def check(found, kind, layer, basis, every, names):
    expected = shares_of(np.array([one[-1] for one in every]).reshape(-1, 12), basis)
    order = np.argsort(-expected)[:10]
    for at, name in enumerate(names):
        labels = [every[i][at] for i in order] + [-1] * (10 - len(order))
        assert found[f"neurons/{kind}/{name}"][layer, 1].tolist() == labels
    np.testing.assert_allclose(found[f"neurons/{kind}/share"][layer, 1][: len(order)], expected[order], rtol=1e-5)
    assert np.isnan(found[f"neurons/{kind}/share"][layer, 1][len(order) :]).all()


def test_rows_of_zeros_come_last(rng):
    bases = bases_of(rng)
    found = Strongest(bases, 3)
    found.show(np.concatenate([np.zeros((4, 12)), rng.standard_normal((2, 12))]), [np.arange(6)])
    arrays = found.arrays(["token"])
    assert set(arrays["token"][0, 0][:2].tolist()) == {4, 5}
    assert np.isnan(arrays["share"][0, 0, 2])
