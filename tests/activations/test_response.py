"""Responses and energy fractions against explicit Jacobians, principal angles and closed forms (RW 4.2, 5.4, D)."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from headspaces.activations.response import (
    LayerActivations,
    energy_fractions,
    measure,
    normalise,
    responses,
    second_moments,
)
from headspaces.geometry.bases import block_bases, orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm, fold

N_LAYERS, D, WIDTH, N_TOKENS, EPSILON = 3, 20, 3, 40, 0.3
N_HEADS = {"O": 4, "Q": 4, "K": 2, "V": 2}


def random_model(rng, norm="layernorm", d_model=D):
    """Layers with everything random, and activations that have nothing to do with each other."""
    layers, activations = [], []
    for number in range(N_LAYERS):
        factors = {kind: rng.normal(size=(heads, d_model, WIDTH)) for kind, heads in N_HEADS.items()}
        gain = None if norm == "none" else rng.normal(size=d_model)
        layers.append(LayerHeads(number, factors, Norm(norm, gain)))
        z = rng.normal(size=(N_TOKENS, N_HEADS["O"], WIDTH)) + rng.normal(size=WIDTH)
        activations.append(LayerActivations(z, rng.normal(size=(N_TOKENS, d_model)) + 0.5, EPSILON))
    return layers, activations


def read(x, layer, kind, head):
    """What a head reads from residuals through its norm, bias aside: the definition, nothing folded."""
    norm = layer.read_norm
    if norm.kind != "none":
        x = x - x.mean(axis=1, keepdims=True) if norm.kind == "layernorm" else x
        x = norm.gain * x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON)
    return x @ layer.factors[kind][head]


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "none"])
def test_total_is_the_derivative_of_what_the_reader_reads(rng, norm):
    layers, activations = random_model(rng, norm)
    found = responses(layers, activations)
    step = 1e-5
    for kind, n_readers in (("Q", 4), ("K", 2), ("V", 2)):
        assert found[f"{kind}/total"].shape == (N_LAYERS, N_LAYERS, 4, n_readers)
        for writer, reader in ((0, 1), (0, 2), (1, 2)):
            x = activations[reader].residual
            for one in range(4):
                u = activations[writer].head_outputs[:, one] @ layers[writer].factors["O"][one].T
                for other in range(n_readers):
                    ahead, behind = (read(x + sign * step * u, layers[reader], kind, other) for sign in (1, -1))
                    expected = np.mean(np.sum(((ahead - behind) / (2 * step)) ** 2, axis=1))
                    assert found[f"{kind}/total"][writer, reader, one, other] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_each_term_is_that_of_the_equation(rng, norm):
    layers, activations = random_model(rng, norm)
    found = responses(layers, activations)
    reader, writer, kind, one, other = 2, 0, "V", 3, 1
    x = activations[reader].residual
    P = np.eye(D) - (1 / D if norm == "layernorm" else 0)
    W, gain = layers[reader].factors[kind][other].T, layers[reader].read_norm.gain
    linear, normalisation = [], []
    for token in range(N_TOKENS):
        A = W @ np.diag(gain) @ P
        u = layers[writer].factors["O"][one] @ activations[writer].head_outputs[token, one]
        sigma = np.sqrt(np.mean((P @ x[token]) ** 2) + EPSILON)
        xhat = P @ x[token] / sigma
        linear.append(A @ u / sigma)
        normalisation.append(-(xhat @ P @ u) / (D * sigma) * (A @ xhat))
    terms = {"linear": np.array(linear), "normalisation": np.array(normalisation)}
    terms["total"] = terms["linear"] + terms["normalisation"]
    for term, values in terms.items():
        expected = np.mean(np.sum(values**2, axis=1))
        assert found[f"{kind}/{term}"][writer, reader, one, other] == pytest.approx(expected, rel=1e-12)


def test_a_write_outside_the_read_space_still_acts_through_the_norm():
    # RW appendix D: W = (1, 0), x = (1, 1), u = (0, 1), gain 1, epsilon 0: A u = 0, but the response is -1/2.
    reads = {kind: np.array([[[1.0], [0.0]]]) for kind in "QKV"}
    write = np.array([[[0.0], [1.0]]])
    layers = [LayerHeads(number, {"O": write, **reads}, Norm("rmsnorm")) for number in (0, 1)]
    activations = [LayerActivations(np.ones((1, 1, 1)), np.ones((1, 2)), 0.0)] * 2
    found = responses(layers, activations)
    assert [found[f"Q/{term}"][0, 1, 0, 0] for term in ("linear", "normalisation", "total")] == [0.0, 0.25, 0.25]


def test_without_a_norm_the_response_is_linear(rng):
    found = responses(*random_model(rng, "none"))
    np.testing.assert_array_equal(found["K/normalisation"][0, 1:], 0)
    np.testing.assert_array_equal(found["K/total"], found["K/linear"])


def test_only_later_readers_are_defined(rng):
    layers, activations = random_model(rng)
    found = measure(layers, activations, [block_bases(layers, fold_norms=True)])
    later = np.triu(np.ones((N_LAYERS, N_LAYERS), bool), k=1)
    for kind in "QKV":
        for term in ("linear", "normalisation", "total", "energy_fraction"):
            np.testing.assert_array_equal(np.isfinite(found[f"{kind}/{term}"]).all(axis=(2, 3)), later)
            np.testing.assert_array_equal(np.isnan(found[f"{kind}/{term}"]).all(axis=(2, 3)), ~later)


def test_blocks_of_bases_are_put_together_in_order(rng):
    layers, activations = random_model(rng)
    whole = measure(layers, activations, [block_bases(layers, fold_norms=True)])
    parts = measure(layers, activations, [block_bases(layers[cut], fold_norms=True) for cut in (slice(2), slice(2, 3))])
    assert whole.keys() == parts.keys()
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-12)


def test_the_numbers_do_not_depend_on_the_threads(rng, monkeypatch):
    model = random_model(rng)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(responses(*model))
    for name, values in found[0].items():
        np.testing.assert_array_equal(found[1][name], values)


def test_the_energy_fraction_is_the_share_of_the_second_moment(rng):
    layers, activations = random_model(rng)
    found = measure(layers, activations, [block_bases(layers, fold_norms=True)])
    u = activations[0].head_outputs[:, 1] @ layers[0].factors["O"][1].T
    C = u.T @ u / N_TOKENS
    V = np.linalg.qr(fold(layers[2], "K")[1])[0]
    assert found["K/energy_fraction"][0, 2, 1, 1] == pytest.approx(np.trace(V @ V.T @ C) / np.trace(C), rel=1e-12)
    assert found["O/energy"][0, 1] == pytest.approx(np.trace(C), rel=1e-12)
    z = activations[0].head_outputs[:, 1]
    np.testing.assert_allclose(found["O/second_moment"][0, 1], z.T @ z / N_TOKENS, rtol=1e-12)


def test_the_energy_fraction_lies_between_the_squared_cosines_of_the_extreme_angles(rng):
    layers, activations = random_model(rng)
    # One direction of each head carries nearly everything: the bounds are nearly reached.
    for layer in activations:
        layer.head_outputs[:, :, 1:] *= 1e-3
    found = measure(layers, activations, [block_bases(layers, fold_norms=True)])
    for kind, n_readers in (("Q", 4), ("K", 2), ("V", 2)):
        for one in range(4):
            for other in range(n_readers):
                cosines = np.cos(subspace_angles(layers[0].factors["O"][one], fold(layers[1], kind)[other])) ** 2
                assert (
                    cosines.min() - 1e-12 <= found[f"{kind}/energy_fraction"][0, 1, one, other] <= cosines.max() + 1e-12
                )


def spaces(rng, n_layers=2):
    writes = rng.normal(size=(n_layers, 2, D, WIDTH))
    reads = {
        kind: orthonormal_bases(rng.normal(size=(4, D, WIDTH))).basis.reshape(n_layers, 2, D, WIDTH) for kind in "QKV"
    }
    return writes, reads


def rho(write, basis):
    return np.mean(np.cos(subspace_angles(write, basis)) ** 2)


def test_isotropic_writes_have_an_energy_fraction_of_rho(rng):
    writes, reads = spaces(rng)
    # z = R^-1 q for isotropic q makes W z = (W R^-1) q isotropic in the write space.
    R = np.linalg.qr(writes, mode="r")
    moments = np.linalg.inv(R) @ np.swapaxes(np.linalg.inv(R), 2, 3)
    found = energy_fractions(writes, moments, reads)
    for one in range(2):
        for other in range(2):
            expected = rho(writes[0, one], reads["V"][1, other])
            assert found["V/energy_fraction"][0, 1, one, other] == pytest.approx(expected, rel=1e-12)


def test_sampled_isotropic_writes_come_near_rho(rng):
    writes, reads = spaces(rng)
    q = rng.normal(size=(2, 20_000, 2, WIDTH))
    z = np.einsum("lhij,lthj->lthi", np.linalg.inv(np.linalg.qr(writes, mode="r")), q)
    moments = second_moments([LayerActivations(layer, np.zeros((20_000, D)), 0.0) for layer in z])
    found = energy_fractions(writes, moments, reads)["Q/energy_fraction"][0, 1]
    expected = [[rho(write, basis) for basis in reads["Q"][1]] for write in writes[0]]
    np.testing.assert_allclose(found, expected, atol=0.005)


def test_a_head_that_writes_nothing_has_no_energy_fraction(rng):
    writes, reads = spaces(rng)
    moments = np.stack([np.stack([np.eye(WIDTH)] * 2)] * 2)
    moments[0, 1] = 0
    found = energy_fractions(writes, moments, reads)
    assert np.isnan(found["K/energy_fraction"][0, 1, 1]).all()
    assert np.isfinite(found["K/energy_fraction"][0, 1, 0]).all()
    np.testing.assert_allclose(found["O/energy"], [[np.sum(writes[0, 0] ** 2), 0], np.sum(writes[1] ** 2, axis=(1, 2))])


def test_sigma_is_the_norms_own(rng):
    x = rng.normal(size=(5, D)) + 2
    xhat, sigma = normalise(x, Norm("layernorm"), EPSILON)
    np.testing.assert_allclose(sigma, np.sqrt(x.var(axis=1) + EPSILON), rtol=1e-13)
    np.testing.assert_allclose(xhat, (x - x.mean(axis=1, keepdims=True)) / sigma[:, None], rtol=1e-12)
    _, sigma = normalise(x, Norm("rmsnorm"), EPSILON)
    np.testing.assert_allclose(sigma, np.sqrt((x**2).mean(axis=1) + EPSILON), rtol=1e-13)
