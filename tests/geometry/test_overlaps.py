import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from headspaces.geometry.bases import block_bases, random_condition
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.geometry.overlaps import composition_scores, observed_overlaps

HEADS = {"O": 4, "Q": 4, "K": 2, "V": 2}
D_MODEL, D_HEAD, N_LAYERS = 48, 5, 4


@pytest.fixture
def layers(rng):
    def factors():
        return {kind: rng.standard_normal((n, D_MODEL, D_HEAD)) for kind, n in HEADS.items()}

    return [LayerHeads(i, factors(), Norm("layernorm", rng.uniform(0.5, 2, D_MODEL))) for i in range(N_LAYERS)]


def test_every_pair_against_scipy(layers):
    blocks = [block_bases(part, fold_norms=True) for part in (layers[:3], layers[3:])]
    arrays = observed_overlaps(iter(blocks))
    assert {name.split("/")[0] for name in arrays} == {"within", "cross", "rank", "direct_sum", "sources"}
    for kind, n in HEADS.items():
        room = D_MODEL - (kind != "O")  # LayerNorm's reads have mean zero
        assert arrays[f"direct_sum/{kind}/random_condition"] == random_condition(n, room, D_HEAD)
        assert arrays[f"direct_sum/{kind}/condition"].shape == (N_LAYERS,)
        for layer, i, j in np.ndindex(N_LAYERS, n, n):
            one, two = (fold(layers[layer], kind)[head] for head in (i, j))
            angles = subspace_angles(one, two)
            assert arrays[f"within/{kind}/rho"][layer, i, j] == pytest.approx(np.mean(np.cos(angles) ** 2), abs=1e-12)
            assert arrays[f"within/{kind}/angle"][layer, i, j] == pytest.approx(np.degrees(angles[-1]), abs=1e-6)
        assert arrays[f"rank/{kind}"].tolist() == [[D_HEAD] * n] * N_LAYERS
    for reader in "QKV":
        rho, angle = arrays[f"cross/O{reader}/rho"], arrays[f"cross/O{reader}/angle"]
        assert rho.shape == angle.shape == (N_LAYERS, N_LAYERS, 4, HEADS[reader])
        for first, later, i, j in np.ndindex(*rho.shape):
            if later <= first:
                assert np.isnan([rho[first, later, i, j], angle[first, later, i, j]]).all()
                continue
            angles = subspace_angles(layers[first].factors["O"][i], fold(layers[later], reader)[j])
            assert rho[first, later, i, j] == pytest.approx(np.mean(np.cos(angles) ** 2), abs=1e-12)
            assert angle[first, later, i, j] == pytest.approx(np.degrees(angles[-1]), abs=1e-6)


@pytest.mark.parametrize(("dtype", "rho", "degrees"), [("float64", 1e-12, 1e-9), ("float32", 1e-5, 1e-2)])
def test_torch_gives_the_same_numbers(dtype, rho, degrees, layers):
    """What a GPU would run, on the CPU."""
    blocks = [block_bases(part, fold_norms=True, dtype=dtype) for part in (layers[:3], layers[3:])]
    found = observed_overlaps(iter(blocks), torch.asarray) | composition_scores(lambda: layers, dtype, torch.asarray)
    expected = observed_overlaps(iter(blocks)) | composition_scores(lambda: layers, dtype)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert isinstance(found[name], np.ndarray)
        assert found[name].dtype == values.dtype
        np.testing.assert_allclose(found[name], values, atol=degrees if name.endswith("angle") else rho)


def test_composition_scores_by_their_formulas(layers):
    arrays = composition_scores(lambda: layers)
    for reader in "QKV":
        write = layers[1].factors["O"][2]
        bare, folded = layers[3].factors[reader][1], fold(layers[3], reader)[1]
        simple = np.linalg.norm(bare.T @ write) / (np.linalg.norm(bare) * np.linalg.norm(write))
        assert arrays[f"cross/O{reader}/simple_composition"][1, 3, 2, 1] == pytest.approx(simple, rel=1e-12)
        weighted = np.linalg.norm(folded.T @ write) ** 2 / (np.linalg.norm(folded) * np.linalg.norm(write)) ** 2
        assert arrays[f"cross/O{reader}/weighted"][1, 3, 2, 1] == pytest.approx(D_MODEL * weighted, rel=1e-12)
        assert np.isnan(arrays[f"cross/O{reader}/weighted"][3, 1]).all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_composition_scores_do_not_depend_on_scale(scale, layers):
    scaled = [
        LayerHeads(one.layer, {kind: scale * stack for kind, stack in one.factors.items()}, one.read_norm)
        for one in layers
    ]
    for name, expected in composition_scores(lambda: layers).items():
        np.testing.assert_allclose(composition_scores(lambda: scaled)[name], expected, rtol=1e-12)


def test_a_zero_map_has_no_score(layers):
    layers[3].factors["K"][1] = 0
    arrays = composition_scores(lambda: layers)
    assert np.isnan(arrays["cross/OK/weighted"][0, 3, :, 1]).all()
    assert np.isfinite(arrays["cross/OK/weighted"][0, 3, :, 0]).all()


def test_weighted_score_is_about_one_for_gaussian_maps(rng):
    """RW appendix G."""
    layers = [
        LayerHeads(i, {kind: rng.standard_normal((40, 64, 8)) for kind in "OQ"}, Norm("none", None)) for i in range(2)
    ]
    arrays = composition_scores(lambda: layers)
    assert arrays["cross/OQ/weighted"][0, 1].mean() == pytest.approx(1, abs=0.01)


def test_writes_only(layers):
    only = [LayerHeads(one.layer, {"O": one.factors["O"]}, one.read_norm) for one in layers]
    arrays = observed_overlaps([block_bases(only, fold_norms=True)])
    assert not any(name.startswith("cross") for name in arrays)
    assert arrays["within/O/rho"].shape == (N_LAYERS, 4, 4)


def test_one_layer_and_one_head(rng):
    layer = LayerHeads(0, {kind: rng.standard_normal((1, 20, 3)) for kind in "OQKV"}, Norm("rmsnorm", None))
    arrays = observed_overlaps([block_bases([layer], fold_norms=True)])
    assert arrays["cross/OQ/rho"].shape == (1, 1, 1, 1)
    assert np.isnan(arrays["cross/OQ/rho"]).all()
    assert arrays["within/O/rho"].item() == pytest.approx(1)
