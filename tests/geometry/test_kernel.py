import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from headspaces.geometry.angles import smallest_angles
from headspaces.geometry.kernel import cheaper_algorithm, operation_counts, squared_overlaps
from headspaces.geometry.pairs import layer_overlaps, normalised, smaller_ranks


def orthonormal(rng, *shape):
    return np.linalg.qr(rng.standard_normal(shape))[0]


def rotated_pair(rng, d_model, left, right):
    """The same spaces in another position."""
    rotation = orthonormal(rng, d_model, d_model)
    return rotation @ left, rotation @ right


def axes(d_model, *numbers):
    return np.eye(d_model)[:, list(numbers)]


def tilted(d_model, angle):
    """Two planes that share a direction up to the angle, and another one exactly."""
    left = axes(d_model, 0, 1)
    right = left.copy()
    right[:, 0] = np.cos(angle) * left[:, 0] + np.sin(angle) * np.eye(d_model)[:, 2]
    return left, right


def zero_padded(basis, width):
    return np.pad(basis, ((0, 0), (0, width - basis.shape[1])))


PAIRS = {
    "random": lambda rng: (orthonormal(rng, 60, 8), orthonormal(rng, 60, 8)),
    "unequal": lambda rng: (orthonormal(rng, 60, 3), orthonormal(rng, 60, 11)),
    "unequal_swapped": lambda rng: (orthonormal(rng, 60, 11), orthonormal(rng, 60, 3)),
    "nearly_parallel": lambda rng: rotated_pair(rng, 60, *tilted(60, 1e-9)),
    "identical": lambda rng: (lambda u: (u, u @ orthonormal(rng, 5, 5)))(orthonormal(rng, 60, 5)),
    "nested": lambda rng: (lambda u: (u[:, :3], u @ orthonormal(rng, 7, 7)))(orthonormal(rng, 60, 7)),
    "orthogonal": lambda rng: rotated_pair(rng, 60, axes(60, 0, 1, 2), axes(60, 3, 4, 5)),
    "one_shared": lambda rng: rotated_pair(rng, 60, axes(60, 0, 1, 2), axes(60, 0, 1, 4)),
    "larger_than_half": lambda rng: (orthonormal(rng, 20, 15), orthonormal(rng, 20, 12)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rho_and_angle_agree_with_scipy(name, rng):
    left, right = PAIRS[name](rng)
    angles = subspace_angles(left, right)
    ranks = np.array([left.shape[1]]), np.array([right.shape[1]])
    for algorithm in ("gram", "operator"):
        squared = squared_overlaps(left[None], right[None], algorithm=algorithm)
        rho = normalised(squared, smaller_ranks(*ranks))
        assert rho[0, 0] == pytest.approx(np.mean(np.cos(angles) ** 2), abs=1e-12)
    angle = smallest_angles(left[None], right[None])[0, 0]
    assert angle == pytest.approx(np.degrees(angles[-1]), abs=1e-6)
    tensors = torch.from_numpy(left)[None], torch.from_numpy(right)[None]
    assert smallest_angles(*tensors)[0, 0] == pytest.approx(np.degrees(angles[-1]), abs=1e-6)


@pytest.mark.parametrize("swap", [False, True])
def test_zero_columns_change_nothing(swap, rng):
    """A head of lower rank keeps its true dimension."""
    space = orthonormal(rng, 40, 6)
    left, right = zero_padded(space[:, :2] @ orthonormal(rng, 2, 2), 6), space @ orthonormal(rng, 6, 6)
    if swap:
        left, right = right, left
    assert squared_overlaps(left[None], right[None])[0, 0] == pytest.approx(2, abs=1e-12)
    assert smallest_angles(left[None], right[None])[0, 0] < 1e-12
    other = zero_padded(orthonormal(rng, 40, 3), 6)
    expected = np.degrees(subspace_angles(space, other[:, :3])[-1])
    assert smallest_angles(space[None], other[None])[0, 0] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("angle", [1e-12, 1e-9, 1e-8, 1e-6, 1e-3, 0.99e-2, 1.01e-2, 0.1, 1.0, np.pi / 2 - 1e-9])
def test_angles_near_zero_are_exact_to_1e_14(angle, rng):
    left, right = tilted(64, angle)
    left, right = rotated_pair(rng, 64, left[:, :1], right[:, :1])
    assert np.radians(smallest_angles(left[None], right[None])[0, 0]) == pytest.approx(angle, abs=2e-14)


def test_identical_spaces_give_no_nan(rng):
    """Cosines that round above one, many times."""
    spaces = np.linalg.qr(rng.standard_normal((100, 30, 4)))[0]
    turned = spaces @ np.linalg.qr(rng.standard_normal((100, 4, 4)))[0]
    angles = np.array([smallest_angles(u[None], v[None])[0, 0] for u, v in zip(spaces, turned, strict=True)])
    assert np.all(np.radians(angles) <= 1e-14)


def test_empty_space_has_no_overlap_and_no_angle(rng):
    left = np.zeros((1, 20, 3))
    right = orthonormal(rng, 20, 3)[None]
    assert np.isnan(smallest_angles(left, right)[0, 0])
    assert np.isnan(normalised(squared_overlaps(left, right), smaller_ranks(np.array([0]), np.array([3]))))[0, 0]


def test_both_algorithms_agree_and_the_cheaper_is_taken(rng):
    left, right = rng.standard_normal((7, 150, 16)), rng.standard_normal((9, 150, 24))
    gram, operator = (squared_overlaps(left, right, algorithm=name) for name in ("gram", "operator"))
    expected = [[np.linalg.norm(f.T @ g) ** 2 for g in right] for f in left]
    np.testing.assert_allclose(gram, expected, rtol=1e-12)
    np.testing.assert_allclose(operator, expected, rtol=1e-12)
    # By hand: 2 D a b a pair against D^2 a pair and D^2 a head column.
    assert operation_counts([left, right], [(slice(0, 7), slice(7, 16))]) == {
        "gram": 2 * 150 * 7 * 16 * 9 * 24,
        "operator": 150**2 * (7 * 9 + 7 * 16 + 9 * 24),
    }
    assert cheaper_algorithm([left, right], [(slice(0, 7), slice(7, 16))]) == "gram"
    many = np.zeros((100, 150, 16))
    assert cheaper_algorithm([many], [(slice(0, 50), slice(50, 100))]) == "operator"


@pytest.mark.parametrize("algorithm", ["gram", "operator"])
def test_float32_and_torch(algorithm, rng):
    left, right = rng.standard_normal((5, 200, 8)), rng.standard_normal((6, 200, 8))
    exact = squared_overlaps(left, right, algorithm=algorithm)
    single = squared_overlaps(left.astype(np.float32), right.astype(np.float32), algorithm=algorithm)
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, exact, rtol=1e-5)
    tensors = squared_overlaps(torch.from_numpy(left), torch.from_numpy(right), algorithm=algorithm)
    np.testing.assert_allclose(tensors, exact, rtol=1e-13)


@pytest.mark.parametrize("work_bytes", [2**30, 2**19, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_torch_in_tiles_of_any_size(dtype, work_bytes, rng, monkeypatch):
    """What a GPU runs, on the CPU, in tiles of 256, 64 and 32 rows; the last ones are narrower."""
    monkeypatch.setattr("headspaces.devices.WORK_BYTES", work_bytes)
    left, right = orthonormal(rng, 5, 600, 7), orthonormal(rng, 6, 600, 9)
    expected = [[np.linalg.norm(f.T @ g) ** 2 for g in right] for f in left]
    found = squared_overlaps(*(torch.from_numpy(stack.astype(dtype)) for stack in (left, right)), algorithm="operator")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 if dtype == np.float64 else 1e-5 * 7)


@pytest.mark.parametrize("batch_bytes", [2**27, 1])
def test_torch_in_batches_of_gram_matrices(batch_bytes, rng, monkeypatch):
    monkeypatch.setattr("headspaces.geometry.kernel.BATCH_BYTES", batch_bytes)
    left, right = rng.standard_normal((5, 40, 3)), rng.standard_normal((4, 40, 6))
    expected = [[np.linalg.norm(f.T @ g) ** 2 for g in right] for f in left]
    found = squared_overlaps(torch.from_numpy(left), torch.from_numpy(right), algorithm="gram")
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_torch_angles_in_batches_on_threads(rng, monkeypatch):
    left, right = orthonormal(rng, 7, 50, 4), orthonormal(rng, 5, 50, 6)
    left[2], left[3, :, 2:], right[4, :, :4] = 0, 0, left[0]
    right[4] = np.linalg.qr(right[4])[0]
    expected = smallest_angles(left, right)
    monkeypatch.setattr("headspaces.geometry.kernel.GRAM_BYTES", 2**12)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    np.testing.assert_allclose(smallest_angles(torch.from_numpy(left), torch.from_numpy(right)), expected, atol=1e-9)
    assert np.isnan(expected[2]).all()
    assert expected[0, 4] < 1e-12


def test_change_of_basis_and_common_rotation_leave_overlaps(rng):
    left, right = orthonormal(rng, 4, 80, 6), orthonormal(rng, 5, 80, 6)
    expected, angles = squared_overlaps(left, right), smallest_angles(left, right)
    turned = left @ orthonormal(rng, 4, 6, 6), right @ orthonormal(rng, 5, 6, 6)
    np.testing.assert_allclose(squared_overlaps(*turned), expected, atol=1e-13)
    rotation = orthonormal(rng, 80, 80)
    np.testing.assert_allclose(squared_overlaps(rotation @ left, rotation @ right), expected, atol=1e-13)
    np.testing.assert_allclose(smallest_angles(rotation @ left, rotation @ right), angles, atol=1e-9)


def test_the_number_of_threads_changes_no_bit(rng, monkeypatch):
    left, right = rng.standard_normal((11, 300, 20)), rng.standard_normal((13, 300, 20))
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        results.append((squared_overlaps(left, right, algorithm="operator"), smallest_angles(left, right)))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("n_layers", [1, 2, 5])
@pytest.mark.parametrize("algorithm", ["gram", "operator"])
@pytest.mark.parametrize("leaf_heads", [1, 8, 64])
def test_layer_overlaps_are_the_pairs_that_they_name(n_layers, algorithm, leaf_heads, rng, monkeypatch):
    monkeypatch.setattr("headspaces.geometry.pairs.LEAF_HEADS", leaf_heads)
    heads = {"O": 4, "Q": 4, "K": 2, "V": 2}
    factors = {kind: rng.standard_normal((n_layers, n, 90, 5)) for kind, n in heads.items()}
    pairs = layer_overlaps(factors, algorithm=algorithm)
    assert set(pairs.within) == set("OQKV")
    for kind, n in heads.items():
        for layer in range(n_layers):
            expected = [[np.linalg.norm(f.T @ g) ** 2 for g in factors[kind][layer]] for f in factors[kind][layer]]
            np.testing.assert_allclose(pairs.within[kind][layer], expected, rtol=1e-11)
            assert pairs.within[kind].shape == (n_layers, n, n)
    for source, target in np.ndindex(n_layers, n_layers):
        for spaces, values in pairs.across.items():
            block = values[source, target]
            if target <= source:
                assert np.isnan(block).all()
                continue
            expected = [
                [np.linalg.norm(f.T @ g) ** 2 for g in factors[spaces[1]][target]] for f in factors[spaces[0]][source]
            ]
            np.testing.assert_allclose(block, expected, rtol=1e-11)
    assert set(pairs.across) == {"OQ", "OK", "OV"}


@pytest.mark.parametrize("leaf_heads", [1, 8, 256])
@pytest.mark.parametrize("kinds", [("O", "QKV"), ("OQKV", "OQKV"), ("", "")])
def test_layer_overlaps_where_torch_is(kinds, leaf_heads, rng, monkeypatch):
    """Placed once they are side by side, whichever of them are compared."""
    monkeypatch.setattr("headspaces.geometry.pairs.GPU_LEAF_HEADS", leaf_heads)
    heads = {"O": 4, "Q": 4, "K": 2, "V": 2}
    factors = {kind: rng.standard_normal((5, n, 90, 5)) for kind, n in heads.items()}
    named = {"sources": kinds[0], "targets": kinds[1]}
    expected, found = (layer_overlaps(factors, **named, **where) for where in ({}, {"to_device": torch.asarray}))
    for name in ("within", "across"):
        assert getattr(expected, name).keys() == getattr(found, name).keys()
        for key, values in getattr(expected, name).items():
            np.testing.assert_allclose(getattr(found, name)[key], values, rtol=1e-12)


def test_layer_overlaps_of_all_kind_pairs(rng):
    factors = {kind: rng.standard_normal((3, n, 70, 4)) for kind, n in (("O", 3), ("Q", 3), ("K", 1), ("V", 1))}
    pairs = layer_overlaps(factors, within="", sources="OQKV", targets="OQKV")
    assert len(pairs.across) == 16
    for spaces, values in pairs.across.items():
        expected = np.linalg.norm(factors[spaces[0]][0, -1].T @ factors[spaces[1]][2, 0]) ** 2
        assert values[0, 2, -1, 0] == pytest.approx(expected, rel=1e-12)


def test_layer_overlaps_with_writes_only(rng):
    pairs = layer_overlaps({"O": rng.standard_normal((2, 3, 40, 4))})
    assert pairs.across == {}
    assert pairs.within["O"].shape == (2, 3, 3)
