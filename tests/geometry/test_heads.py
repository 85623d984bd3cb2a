"""Folding the norm's linear part into the factors (RW 2.2)."""

import numpy as np
import pytest

from headspaces.geometry.heads import LayerHeads, Norm, fold

RANDOM = np.random.default_rng(0)


def heads_of(rows, norm: Norm, kind: str = "Q", write_norm: Norm | None = None) -> LayerHeads:
    """One head whose map has the given rows (out, in)."""
    return LayerHeads(0, {kind: np.asarray(rows, float).T[None]}, norm, write_norm)


def test_gain_comes_before_centring():
    gain = np.array([1.0, 2.0, 1.0])
    folded = fold(heads_of([[1, 2, 3]], Norm("layernorm", gain)), "Q")[0, :, 0]
    np.testing.assert_allclose(folded, [-5 / 3, 4 / 3, 1 / 3], atol=1e-15)
    np.testing.assert_array_equal(fold(heads_of([[1, 2, 3]], Norm("rmsnorm", gain)), "Q")[0, :, 0], [1, 4, 3])


def test_parameter_free_and_absent_norms():
    np.testing.assert_allclose(fold(heads_of([[1, 2, 6]], Norm("layernorm")), "Q")[0, :, 0], [-2, -1, 3])
    np.testing.assert_array_equal(fold(heads_of([[1, 2, 6]], Norm("none")), "Q")[0, :, 0], [1, 2, 6])


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_the_folded_map_is_the_linear_part_of_reading_through_the_norm(kind):
    weight, gain, bias, x = (RANDOM.normal(size=size) for size in ((4, 16), 16, 16, 16))
    centred = x - x.mean() if kind == "layernorm" else x
    sigma = np.sqrt(np.mean(centred**2))  # of a LayerNorm: the standard deviation with ddof 0
    computed = weight @ (gain * centred / sigma + bias) - weight @ bias
    folded = fold(heads_of(weight, Norm(kind, gain)), "Q")[0]
    np.testing.assert_allclose(folded.T @ x / sigma, computed, atol=1e-12)
    if kind == "layernorm":
        assert sigma == pytest.approx(np.std(x), abs=1e-14)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_the_folded_write_is_the_linear_part_of_writing_through_the_norm(kind):
    weight, gain, y = RANDOM.normal(size=(16, 4)), RANDOM.normal(size=16), RANDOM.normal(size=4)
    heads = LayerHeads(0, {"O": weight[None]}, Norm("none"), Norm(kind, gain))
    written = weight @ y
    centred = written - written.mean() if kind == "layernorm" else written
    sigma = np.sqrt(np.mean(centred**2))
    np.testing.assert_allclose(fold(heads, "O")[0] @ y / sigma, gain * centred / sigma, atol=1e-12)


def test_writes_know_nothing_of_the_norm_before_the_attention():
    weight = RANDOM.normal(size=(2, 6, 3))
    heads = LayerHeads(0, {"O": weight}, Norm("layernorm", RANDOM.normal(size=6)))
    np.testing.assert_array_equal(fold(heads, "O"), weight)


def test_an_offset_gain_of_zero_leaves_the_head_alone():
    weight = RANDOM.normal(size=(3, 8))
    stored = np.zeros(8)
    folded = fold(heads_of(weight, Norm("rmsnorm", stored + 1)), "Q")
    np.testing.assert_array_equal(folded[0].T, weight)
