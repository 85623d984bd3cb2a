from itertools import permutations

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import headspaces as hs
from headspaces.command_line import main
from headspaces.errors import InputError
from headspaces.library.matching import match_heads, matched_layer


def shuffled(rng, groups=4, size=1, noise=0.05):
    """A model and the same with its groups, and the heads inside each, in another order in every layer."""
    n_layers, d_model, d_head, n_heads = 3, 24, 4, groups * size
    counts = {"O": n_heads, "Q": n_heads, "K": groups, "V": groups}
    one = {kind: rng.normal(size=(n_layers, n, d_model, d_head)) for kind, n in counts.items()}
    queries, keys = [], []
    for _ in range(n_layers):
        order = rng.permutation(groups)
        keys.append(order)
        queries.append(np.concatenate([group * size + rng.permutation(size) for group in order]))
    placed = {"O": queries, "Q": queries, "K": keys, "V": keys}
    other = {
        kind: np.stack([stack[layer][np.argsort(placed[kind][layer])] for layer in range(n_layers)])
        + noise * rng.normal(size=stack.shape)
        for kind, stack in one.items()
    }
    return hs.load(one, name="one"), hs.load(other, name="other"), np.stack(queries), np.stack(keys)


@pytest.mark.parametrize(("groups", "size"), [(5, 1), (3, 2), (1, 4)])
def test_a_planted_order_is_found(rng, groups, size):
    one, other, queries, keys = shuffled(rng, groups, size)
    found = match_heads(one, other)
    np.testing.assert_array_equal(found.queries, queries)
    np.testing.assert_array_equal(found.groups, keys)
    assert found.n_moved == (queries != np.arange(groups * size)).sum()


def test_overlaps_of_matched_heads_against_scipy(rng):
    one, other, *_ = shuffled(rng, noise=0.5)
    found = match_heads(one, other)
    bases = {model: model.spaces("O")["basis"].values for model in (one, other)}
    for layer, head in np.ndindex(found.rho["O"].shape):
        angles = subspace_angles(bases[one][layer, head], bases[other][layer, found.queries[layer, head]])
        assert found.rho["O"][layer, head] == pytest.approx(np.mean(np.cos(angles) ** 2))


@pytest.mark.parametrize("size", [1, 2])
def test_no_other_order_has_a_larger_sum(rng, size):
    groups, n = 3, 3 * size
    writes, values = rng.uniform(size=(n, n)), rng.uniform(size=(groups, groups))
    queries, keys = matched_layer(writes, values)

    def score(queries, keys):
        return writes[np.arange(n), queries].sum() + size * values[np.arange(groups), keys].sum()

    every = []
    for order in permutations(range(groups)):
        for inside in np.ndindex(*[len(list(permutations(range(size))))] * groups):
            choices = [list(permutations(range(size)))[at] for at in inside]
            heads = [group * size + head for group, chosen in zip(order, choices, strict=True) for head in chosen]
            every.append(score(heads, list(order)))
    assert score(queries, keys) == pytest.approx(max(every))


def test_compare_takes_the_order_and_says_so(rng):
    one, other, queries, _ = shuffled(rng, noise=1e-9)
    by_number, matched = hs.compare(one, other), hs.compare(one, other, match=True)
    assert by_number["max_abs_difference"].max() > 0.05
    assert matched["max_abs_difference"].max() < 1e-6
    assert by_number.attrs == {}
    said = matched.attrs["matching"]
    assert said["order"] == queries.tolist()
    assert said["mean_rho"] == pytest.approx({"O": 1.0, "V": 1.0})


def test_a_model_is_matched_with_itself(rng):
    one, *_ = shuffled(rng)
    assert match_heads(one, one).n_moved == 0
    plain, matched = hs.compare(one, one), hs.compare(one, one, match=True)
    assert plain.equals(matched)


def test_heads_are_matched_by_o_and_v(rng):
    model = hs.load({"O": rng.normal(size=(2, 3, 16, 2))}, name="writes")
    with pytest.raises(InputError, match="writes: holds no heads of kind V; heads are matched by O and V"):
        hs.compare(model, model, match=True)


def test_the_command_line_says_it(tmp_path, capsys):
    from support.workflow_runs import save_tiny

    model = save_tiny(tmp_path / "tiny")
    assert main(["compare", str(model), str(model), "--match", "--spaces", "O"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "matched" in line)
    assert line.endswith("0 of 12 in another place; mean ρ O 1.0000, V 1.0000 (random 0.2500)")
