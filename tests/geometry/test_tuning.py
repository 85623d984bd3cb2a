"""Two models of one shape: which are compared, and how far their overlaps differ."""

from types import SimpleNamespace

import numpy as np
import pytest

from headspaces.geometry.tuning import SHAPE, of_one_shape, rho_differences


def test_differences_by_hand():
    one, other = np.array([[0.1, 0.2], [0.4, 0.0]]), np.array([[0.11, 0.2], [0.3, 0.0]])
    found = rho_differences(one, other)
    assert found["n_pairs"] == 4
    assert found["max_abs_difference"] == pytest.approx(0.1)
    assert found["median_abs_difference"] == pytest.approx(0.005)
    assert found["max_relative_difference"] == pytest.approx(0.25)
    # The relative difference is to the first model's.
    assert rho_differences(other, one)["max_relative_difference"] == pytest.approx(1 / 3)


def test_undefined_pairs_are_left_out():
    one, other = np.array([0.1, np.nan, 0.3]), np.array([0.2, 0.5, np.nan])
    assert rho_differences(one, other)["n_pairs"] == 1
    nothing = rho_differences(np.array([np.nan]), np.array([0.1]))
    assert nothing["n_pairs"] == 0
    assert np.isnan(nothing["max_abs_difference"])


def test_a_change_from_zero_is_infinite_relative():
    assert rho_differences(np.array([0.0, 0.5]), np.array([0.1, 0.5]))["max_relative_difference"] == np.inf


def test_pairs_of_one_shape_in_order():
    models = [SimpleNamespace(name=name) for name in "abcd"]
    shapes = {name: dict.fromkeys(SHAPE, 2) for name in "abcd"}
    shapes["b"] = {**shapes["b"], "d_head": 3}
    found = [(one.name, other.name) for one, other in of_one_shape(models, shapes)]
    assert found == [("a", "c"), ("a", "d"), ("c", "d")]
