"""Scores of the stream against explicit products of matrices, under rotations, and between random maps."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.stats import ortho_group

from headspaces.geometry.bases import orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.spaces import READS, Shape
from headspaces.stream.operators import by_heads, gram, rotated_sd, row_operators, unit_trace
from headspaces.stream.scores import Dense, stream_scores

SHAPE = Shape(n_layers=4, d_model=20, n_query_heads=4, n_kv_heads=2, d_head=3)


@dataclass
class Model:
    """Rows of everything, by letter (and layer), and heads without norms: rows are already folded."""

    heads: list[LayerHeads]
    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def arrays(self, shape=SHAPE, parallel=False):
        ends = {letter: row_operators(iter(np.array_split(rows[0], 3))) for letter, rows in self.rows.items()
                if letter in "EXU"}  # fmt: skip
        mlps = {letter: [unit_trace(gram(rows)) for rows in self.rows.get(letter, [])] for letter in "GIM"}
        mlps = {letter: operators for letter, operators in mlps.items() if operators}
        bases = {kind: np.stack([orthonormal_bases(fold(own, kind)).basis for own in self.heads]) for kind in "OQKV"}
        writers, readers = (Dense.of({e: two[:2] for e, two in ends.items()}, mlps, own, "float64")
                            for own in ("EXM", "GIU"))  # fmt: skip
        return stream_scores(shape, self.heads, bases, writers, readers, parallel=parallel)

    def maps(self, letter):
        """By layer and head the maps F (D x n) of a letter."""
        if letter in "OQKV":
            return [list(fold(own, letter)) for own in self.heads]
        return [[rows.T] for rows in self.rows[letter]]


def random_model(rng, shape=SHAPE, neurons=7, tokens=31):
    heads = [
        LayerHeads(
            layer,
            {kind: rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head)) for kind in "OQKV"},
            Norm("none"),
        )
        for layer in range(shape.n_layers)
    ]
    rows = {letter: [rng.standard_normal((tokens, shape.d_model)) + 0.5] for letter in "EXU"}
    rows |= {letter: [rng.standard_normal((neurons, shape.d_model)) for _ in heads] for letter in "GIM"}
    return Model(heads, rows)


def is_later(writer, reader, i, j, parallel):
    if writer in "EX" or reader == "U":
        return True
    return j >= i if writer == "O" and reader in "GI" and not parallel else j > i


@pytest.mark.parametrize("parallel", [False, True])
def test_every_score_is_that_of_explicit_products(rng, parallel):
    model = random_model(rng)
    arrays = model.arrays(parallel=parallel)
    seen = 0
    for writer in "EXOM":
        for reader in "QKVGIU":
            if writer == "O" and reader in READS:
                continue  # the overlaps have these
            found = arrays[f"score/{writer}{reader}"]
            for i, write in enumerate(model.maps(writer)):
                for j, read in enumerate(model.maps(reader)):
                    for a, left in enumerate(write):
                        for b, right in enumerate(read):
                            value = found[i, j, a, b]
                            if not is_later(writer, reader, i, j, parallel):
                                assert np.isnan(value)
                                continue
                            products = np.trace(left @ left.T @ right @ right.T)
                            expected = SHAPE.d_model * products / np.trace(left @ left.T) / np.trace(right @ right.T)
                            np.testing.assert_allclose(value, expected, rtol=1e-12)
                            seen += 1
    assert seen == np.sum([np.isfinite(values).sum() for name, values in arrays.items() if name.startswith("score/")])


def test_centred_ends_are_rows_without_their_mean(rng):
    model = random_model(rng)
    centred = Model(model.heads, model.rows | {end: [model.rows[end][0] - model.rows[end][0].mean(0)] for end in "EXU"})
    found, expected = model.arrays(), centred.arrays()
    names = [name for name in found if name.startswith("centred_score/")]
    assert len(names) == 14  # E and X with six readers each, O and M with the unembedding
    for name in names:
        np.testing.assert_allclose(found[name], expected[name.removeprefix("centred_")], rtol=1e-10)
        assert np.nanmax(np.abs(found[name] - found[name.removeprefix("centred_")])) > 1e-3


def test_energy_fractions_are_traces_with_projections(rng):
    model = random_model(rng)
    arrays = model.arrays()
    embedding, basis = model.rows["E"][0], np.linalg.qr(model.heads[2].factors["K"][1])[0]
    expected = np.linalg.norm(embedding @ basis) ** 2 / np.linalg.norm(embedding) ** 2
    np.testing.assert_allclose(arrays["fraction/EK"][0, 2, 0, 1], expected, rtol=1e-12)
    up, basis = model.rows["I"][3], np.linalg.qr(model.heads[1].factors["O"][2])[0]
    expected = np.linalg.norm(up @ basis) ** 2 / np.linalg.norm(up) ** 2
    np.testing.assert_allclose(arrays["fraction/OI"][1, 3, 2, 0], expected, rtol=1e-12)
    assert {name for name in arrays if name.startswith("fraction/")} == {
        *(f"fraction/{writer}{reader}" for writer in "EXM" for reader in READS), "fraction/OG", "fraction/OI",
        "fraction/OU",
    }  # fmt: skip


def test_a_rotation_of_the_stream_changes_nothing(rng):
    model, turn = random_model(rng), ortho_group.rvs(SHAPE.d_model, random_state=1)
    turned = Model(
        [
            LayerHeads(own.layer, {kind: turn @ f for kind, f in own.factors.items()}, Norm("none"))
            for own in model.heads
        ],
        {letter: [rows @ turn.T for rows in layers] for letter, layers in model.rows.items()},
    )
    found, expected = turned.arrays(), model.arrays()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-10, err_msg=name)


def test_scores_of_random_maps_are_one_on_average(rng):
    """The mean over all pairs within 3 standard errors of 1, these from the purities in closed form."""
    shape = Shape(n_layers=12, d_model=64, n_query_heads=4, n_kv_heads=4, d_head=8)
    model = random_model(rng, shape, neurons=50, tokens=200)
    model.rows |= {end: [model.rows[end][0] - 0.5] for end in "EXU"}
    arrays = model.arrays(shape)
    for name in ("MQ", "MK", "MG", "MU", "OG", "OI", "OU", "EV", "XQ"):
        found = arrays[f"score/{name}"]
        purities = [np.atleast_2d(arrays[f"purity/{letter}"]) for letter in name]
        sd = rotated_sd(purities[0][:, None, :, None], purities[1][None, :, None, :], shape.d_model)
        there = np.isfinite(found)
        error = np.sqrt(np.sum(np.broadcast_to(sd, found.shape)[there] ** 2)) / there.sum()
        assert abs(found[there].mean() - 1) < 3 * error, name
        assert 0 < error < 0.2


def test_the_deviation_in_closed_form_is_that_of_rotated_operators(rng):
    writes, reads = rng.standard_normal((9, 16)), rng.standard_normal((5, 16)) * np.arange(1, 17)
    a, b = unit_trace(gram(writes)), unit_trace(gram(reads))
    drawn = [16 * np.vdot(a, turn @ b @ turn.T) for turn in ortho_group.rvs(16, size=20_000, random_state=0)]
    sd = rotated_sd(np.array(np.vdot(a, a)), np.array(np.vdot(b, b)), 16)
    assert abs(np.mean(drawn) - 1) < 4 * sd / np.sqrt(20_000)
    np.testing.assert_allclose(np.std(drawn), sd, rtol=0.02)


def test_operators_have_the_same_bits_for_any_threads_and_blocks_agree(rng, monkeypatch):
    rows = rng.standard_normal((700, 300))
    whole, centred, mean = row_operators([rows])
    np.testing.assert_allclose(whole, rows.T @ rows / np.sum(rows**2), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(row_operators(iter(np.array_split(rows, 5)))[0], whole, rtol=1e-12, atol=1e-16)
    factors = rng.standard_normal((6, 300, 40))
    once = by_heads(np.stack([whole, centred]), factors)
    expected = [[np.trace(f.T @ operator @ f) for f in factors] for operator in (whole, centred)]
    np.testing.assert_allclose(once, expected, rtol=1e-11)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert np.array_equal(by_heads(np.stack([whole, centred]), factors), once)
    assert np.array_equal(gram(rows), gram(rows).T)


def test_a_map_of_zeros_has_no_score():
    assert np.isnan(unit_trace(np.zeros((3, 3)))).all()
