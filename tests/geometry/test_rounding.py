"""Directions that the storage's rounding may have made, and those that it leaves."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from scipy.linalg import subspace_angles
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.geometry.bases import block_bases, orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.geometry.rounding import (
    UNKNOWN,
    directions_within_rounding,
    drawn_norm,
    rounding_norms,
    rounding_steps,
    without_rounding,
)

TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}


def stored(factors, dtype):
    return torch.from_numpy(factors).to(TORCH[dtype]).double().numpy()


def exact_rank(rng, n_heads, rank, d_model, d_head):
    return rng.standard_normal((n_heads, d_model, rank)) @ rng.standard_normal((n_heads, rank, d_head))


@pytest.mark.parametrize(("dtype", "rank", "noise"), [("BF16", 16, 8.8e-4), ("F16", 16, 1.1e-4), ("F32", 8, 0)])
def test_the_rounding_of_a_factor_of_exact_rank_8_is_seen(dtype, rank, noise, rng):
    """64 x 16 of rank 8: rank 16 at 1e-6 in 16 bits, of which 8 are rounding; rank 8 in more bits."""
    found = stored(exact_rank(rng, 30, 8, 64, 16), dtype)
    bases = orthonormal_bases(found, 1e-6)
    assert bases.rank.tolist() == [rank] * 30
    if noise:
        ratios = bases.singular_values[:, 8] / bases.singular_values[:, 0]
        assert np.median(ratios) == pytest.approx(noise, rel=0.1)
    assert directions_within_rounding(found, "Q", dtype, 1e-6).tolist() == [rank - 8] * 30


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize(("d_model", "d_head"), [(256, 32), (768, 64)])
def test_a_spectrum_over_three_orders_loses_nothing(dtype, d_model, d_head, rng):
    """Beneath a tolerance at bfloat16's precision, 2^-8, a third of these directions would be lost."""
    left = np.linalg.qr(rng.standard_normal((8, d_model, d_head)))[0]
    right = np.linalg.qr(rng.standard_normal((8, d_head, d_head)))[0]
    spectrum = np.geomspace(1, 1e-3, d_head)
    found = stored((left * spectrum) @ right, dtype)
    assert np.sum(spectrum < 2**-8) > d_head / 6
    assert directions_within_rounding(found, "Q", dtype, 1e-6).tolist() == [0] * 8


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_steps_are_the_distances_of_neighbouring_numbers(dtype, rng):
    values = stored(np.concatenate([rng.standard_normal(200), 1e-7 * rng.standard_normal(50)]), dtype)
    values = values[values != 0]
    plain = torch.from_numpy(np.abs(values)).to(TORCH[dtype])
    above = torch.nextafter(plain, torch.full_like(plain, torch.inf)).double().numpy() - plain.double().numpy()
    np.testing.assert_array_equal(rounding_steps(np.abs(values)[None, :, None], "Q", dtype)[0, :, 0], above)


def test_the_estimate_is_the_norm_of_the_errors(rng):
    weights = rng.standard_normal((20, 256, 32))
    errors = np.linalg.norm(stored(weights, "BF16") - weights, 2, axis=(1, 2))
    steps = rounding_steps(stored(weights, "BF16"), "Q", "BF16")
    np.testing.assert_allclose([drawn_norm(one) for one in steps], errors, rtol=0.1)
    assert np.all(errors < rounding_norms(steps))


@pytest.mark.parametrize("kind", ["O", "Q"])
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q5_0", "Q4_1", "Q5_1"])
def test_quantised_blocks(name, kind, rng):
    """Blocks lie along stored rows: over the residual stream for reads, over the heads for writes."""
    weights = exact_rank(rng, 4, 8, 256, 32)
    rows = weights.transpose(1, 0, 2).reshape(256, -1) if kind == "O" else weights.swapaxes(1, 2).reshape(-1, 256)
    number = GGMLQuantizationType[name]
    found = dequantize(quantize(rows.astype("float32"), number), number).astype(float)
    found = found.reshape(256, 4, 32).transpose(1, 0, 2) if kind == "O" else found.reshape(4, 32, 256).swapaxes(1, 2)
    steps = rounding_steps(found, kind, f"ggml:{name}")
    # Q4_0 and Q5_0 cut off weights opposite to the largest one of a block.
    assert np.mean(np.abs(found - weights) < 0.51 * steps + 1e-3) > 0.97
    assert np.sqrt(np.mean((found - weights) ** 2 / steps**2)) == pytest.approx(12**-0.5, rel=0.12)
    assert directions_within_rounding(found, kind, f"ggml:{name}", 1e-6).tolist() == [32 - 8] * 4


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quants(name):
    """Bytes that ggml's own quantiser made of a factor of rank 8, read by gguf: the error is what is estimated."""
    with np.load(ROOT / "tests" / "fixtures" / "k_quants.npz") as fixture:
        weights = fixture["left"].astype(float) @ fixture["right"]
        rows = dequantize(fixture[name], GGMLQuantizationType[name]).astype(float)
    found = rows.reshape(2, 16, 256).swapaxes(1, 2)
    steps = rounding_steps(found, "Q", f"ggml:{name}")
    errors = np.linalg.norm(found - weights, 2, axis=(1, 2))
    np.testing.assert_allclose(np.sqrt(np.mean((found - weights) ** 2 / steps**2)), 12**-0.5, rtol=0.15)
    np.testing.assert_allclose([drawn_norm(one) for one in steps], errors, rtol=0.2)
    assert orthonormal_bases(found, 1e-6).rank.tolist() == [16] * 2
    assert directions_within_rounding(found, "Q", f"ggml:{name}", 1e-6).tolist() == [8] * 2


def bases_of(factors, dtype, **settings):
    layer = LayerHeads(0, {"Q": factors}, Norm("none"), dtypes={"Q": dtype})
    return block_bases([layer], fold_norms=True, **settings)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_a_factor_of_exact_rank_8_has_rank_8_where_rounding_is_left_out(dtype, rng):
    exact = exact_rank(rng, 30, 8, 64, 16)
    found = stored(exact, dtype)
    assert bases_of(found, dtype)["rank/Q"].tolist() == [[16] * 30]
    arrays = bases_of(found, dtype, leave_out_rounding=True)
    assert arrays["rank/Q"].tolist() == [[8] * 30]
    assert arrays["within_rounding/Q"].tolist() == [[8] * 30]
    kept, true = arrays["Q/basis"][0], orthonormal_bases(exact).basis
    angles = [subspace_angles(one[:, :8], other[:, :8]).max() for one, other in zip(kept, true, strict=True)]
    assert max(angles) < {"BF16": 2**-6, "F16": 2**-9}[dtype]
    # The other directions are gone from the sums of spaces too.
    assert arrays["direct_sum/Q/rank"] == 64


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(("d_model", "d_head"), [(64, 16), (256, 32)])
def test_a_full_rank_factor_of_condition_1000_keeps_its_directions(dtype, d_model, d_head, rng):
    left = np.linalg.qr(rng.standard_normal((8, d_model, d_head)))[0]
    right = np.linalg.qr(rng.standard_normal((8, d_head, d_head)))[0]
    found = stored((left * np.geomspace(1, 1e-3, d_head)) @ right, dtype)
    arrays = bases_of(found, dtype, leave_out_rounding=True)
    assert arrays["rank/Q"].tolist() == [[d_head] * 8]
    np.testing.assert_array_equal(arrays["Q/basis"], bases_of(found, dtype)["Q/basis"])


def test_norms_are_folded_into_what_rounding_leaves(rng):
    """The gain acts on the map without those directions, so that no direction comes back."""
    gain = rng.uniform(0.1, 10, 64)
    factors = {"Q": stored(exact_rank(rng, 3, 8, 64, 16), "BF16")}
    layer = LayerHeads(0, factors, Norm("layernorm", gain), dtypes={"Q": "BF16"})
    arrays = block_bases([layer], fold_norms=True, leave_out_rounding=True)
    assert arrays["rank/Q"].tolist() == [[8] * 3]
    left = np.linalg.svd(factors["Q"])[0][:, :, :8] * gain[:, None]
    expected = left - left.mean(axis=1, keepdims=True)
    for one, other in zip(arrays["Q/basis"][0], expected, strict=True):
        assert subspace_angles(one[:, :8], other).max() < 1e-9


def test_what_cannot_be_left_out_is_refused():
    layer = LayerHeads(3, {"V": np.ones((2, 32, 4))}, Norm("none"), dtypes={"V": "ggml:IQ2_XXS"})
    with pytest.raises(InputError, match="layer 3: how weights of ggml:IQ2_XXS are rounded is not known, so leave_out"):
        without_rounding(layer)


def test_a_type_whose_rounding_is_not_known_is_said():
    assert directions_within_rounding(np.ones((2, 32, 4)), "Q", "ggml:IQ2_XXS", 1e-6).tolist() == [UNKNOWN] * 2


def test_zero_heads_have_no_direction():
    assert directions_within_rounding(np.zeros((2, 32, 4)), "Q", "BF16", 1e-6).tolist() == [0, 0]


def test_blocks_count_where_types_are_known(rng):
    factors = {"Q": stored(exact_rank(rng, 3, 8, 64, 16), "BF16"), "O": rng.standard_normal((3, 64, 16))}
    layers = [LayerHeads(0, factors, Norm("rmsnorm", rng.uniform(0.5, 2, 64)), dtypes={"Q": "BF16", "O": "BF16"})]
    arrays = block_bases(layers, fold_norms=True)
    assert arrays["within_rounding/Q"].tolist() == [[8, 8, 8]]
    assert arrays["within_rounding/O"].tolist() == [[0, 0, 0]]
    assert not [
        name for name in block_bases([LayerHeads(0, factors, Norm("none"))], fold_norms=True) if "round" in name
    ]
