"""The atlas: what the page holds, and what it does in a real browser opened from disk."""

from __future__ import annotations

import base64
import csv
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from support.browser import cut_texts, is_dark, press, settle, show, text

from headspaces.nulls.significance import pair_scores
from headspaces.report import atlas
from headspaces.report.html import SCRIPTS, TEMPLATES, script_json
from headspaces.report.results import ModelResults
from headspaces.store import write_arrays
from headspaces.text_tables import write_text

LAYERS, HEADS, GROUPS, WIDTH, OWN = 5, 4, 2, 24, 4
NAME = "<script>window.hacked=1</script>"
ATTRIBUTES: dict[str, Any] = {
    "model": NAME, "source": "</script><b>&", "revision": "abc", "n_layers": LAYERS, "n_query_heads": HEADS,
    "n_kv_heads": GROUPS, "d_model": WIDTH, "d_head": OWN, "norm": "rmsnorm", "fold": True, "rank_rtol": 1e-6,
}  # fmt: skip


def random_bases(rng: np.random.Generator) -> dict[str, np.ndarray]:
    counts = {"O": HEADS, "Q": HEADS, "K": GROUPS, "V": GROUPS}
    shared = rng.normal(size=(WIDTH, OWN))
    # Spaces that lean towards a common one by a different amount each: overlaps of every size.
    return {
        kind: np.linalg.qr(
            rng.normal(size=(LAYERS, count, WIDTH, OWN)) + 2 * rng.random((LAYERS, count, 1, 1)) ** 3 * shared
        )[0]
        for kind, count in counts.items()
    }


def overlaps_of(bases: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {f"rank/{kind}": np.full(basis.shape[:2], OWN) for kind, basis in bases.items()}

    def pair(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        angles = subspace_angles(one, other)
        return float(np.mean(np.cos(angles) ** 2)), float(np.degrees(angles.min()))

    for kind, basis in bases.items():
        both = np.array([[[pair(a, b) for b in layer] for a in layer] for layer in basis])
        arrays |= {f"within/{kind}/rho": both[..., 0], f"within/{kind}/angle": both[..., 1]}
    for kind in "QKV":
        shape = (LAYERS, LAYERS, HEADS, bases[kind].shape[1])
        values = np.full((*shape, 2), np.nan)
        for writer in range(LAYERS):
            for reader in range(writer + 1, LAYERS):
                values[writer, reader] = [[pair(a, b) for b in bases[kind][reader]] for a in bases["O"][writer]]
        undefined = np.isnan(values[..., 0])
        arrays |= {f"cross/O{kind}/rho": values[..., 0], f"cross/O{kind}/angle": values[..., 1]}
        arrays[f"cross/O{kind}/simple_composition"] = np.where(undefined, np.nan, rng.random(shape))
        arrays[f"cross/O{kind}/weighted"] = np.where(undefined, np.nan, rng.lognormal(size=shape))
    return arrays


def nulls_of(overlaps: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for place in {name.rsplit("/", 1)[0] for name in overlaps if name.endswith("/rho")}:
        shape = (LAYERS,) if place.startswith("within") else (LAYERS, LAYERS)
        for null in ("rotation", "reassignment"):
            arrays[f"{place}/{null}/spread"] = rng.uniform(0.01, 0.02, size=(7, *shape))
            arrays[f"{place}/{null}/mean"] = rng.uniform(0.15, 0.2, size=(7, *shape))
            if len(shape) == 1:
                pairs = overlaps[f"{place}/rho"].shape[1] * (overlaps[f"{place}/rho"].shape[1] - 1) // 2
                arrays[f"pairs/{place[-1]}/{null}/rho"] = rng.uniform(0.1, 0.3, size=(7, pairs))
                arrays[f"pairs/{place[-1]}/layer"] = np.array(2)
        for name, low, high in (("mean", 0.15, 0.2), ("spread", 0.05, 0.1), ("skewness", 0, 0.5), ("max", 0.3, 0.5)):
            arrays[f"{place}/swap/{name}"] = rng.uniform(low, high, size=(7, *shape))
    return arrays


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    bases = random_bases(rng)
    overlaps = overlaps_of(bases, rng)
    cosines = atlas.principal_cosines(overlaps, ATTRIBUTES, lambda kind, layer: bases[kind][layer])
    # Head 1 of layer 0 attends to the token before, head 2 of layer 3 (of key-value head 1) after an earlier copy.
    attention = {name: np.full((LAYERS, HEADS), 0.1) for name in ("identity", "previous_token", "induction")}
    attention["previous_token"][0, 1], attention["induction"][3, 2] = 0.9, 0.8
    nulls = nulls_of(overlaps, rng)
    return {
        "bases": bases, "overlaps": overlaps, "cosines": cosines, "nulls": nulls, "attention": attention,
        "stream": stream_of(rng), "attribution": effects_of(rng),
    }  # fmt: skip


def stream_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Lists of three places; the writes of the last layer have no later neurons. One token is markup."""
    arrays: dict[str, np.ndarray] = {"purity/I": np.ones((LAYERS, 1))}
    for kind, count in {"O": HEADS, "K": GROUPS}.items():
        shape = (LAYERS, count, 3)
        share = np.sort(rng.random((2, *shape)))[..., ::-1].copy()
        share[0, -1 if kind == "O" else 0] = np.nan
        empty = np.isnan(share[0])
        for name, largest in {"layer": LAYERS, "neuron": 100_000, **({"matrix": 2} if kind == "O" else {})}.items():
            arrays[f"neurons/{kind}/{name}"] = np.where(empty, -1, rng.integers(largest, size=shape))
        arrays |= {f"neurons/{kind}/share": share[0], f"tokens/{kind}/share": share[1]}
        arrays[f"tokens/{kind}/token"] = rng.integers(200_000, size=shape)
        texts = [f" word{number}".encode() for number in range(share[1].size)]
        arrays[f"tokens/{kind}/text"] = np.array(texts).reshape(shape)
    later = np.tril(np.full((LAYERS, LAYERS), np.nan), k=-1)[..., None, None]
    earlier = np.tril(np.full((LAYERS, LAYERS), np.nan))[..., None, None]
    arrays |= {f"score/O{letter}": rng.random((LAYERS, LAYERS, HEADS, 1)) + later for letter in "GI"}
    arrays["score/OK"] = rng.random((LAYERS, LAYERS, HEADS, GROUPS)) + later  # head to head: no other path
    arrays["score/MK"] = rng.random((LAYERS, LAYERS, 1, GROUPS)) + earlier
    arrays |= {
        "centred_score/EK": rng.random((1, LAYERS, 1, GROUPS)),
        "centred_score/OU": rng.random((LAYERS, 1, HEADS, 1)),
    }
    arrays |= {f"purity/{letter}": np.ones((LAYERS, 1)) for letter in "GM"}
    arrays |= {"purity/O": np.ones((LAYERS, HEADS)), "purity/K": np.ones((LAYERS, GROUPS))}
    arrays |= {f"centred_purity/{letter}": np.ones((1, 1)) for letter in "EU"}
    arrays["tokens/O/text"] = arrays["tokens/O/text"].astype("S20")
    arrays["tokens/O/text"][0, 1] = [b"</script><b>", b"\xff\n", b"plain"]
    return arrays


def effects_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Of edges from heads to heads, and to MLPs; none of the unembedding."""
    n_readers = {"Q": HEADS, "K": GROUPS, "V": GROUPS}
    arrays = {f"{kind}/effect": rng.normal(size=(LAYERS, LAYERS, HEADS, n)) for kind, n in n_readers.items()}
    return arrays | {"stream/OM/effect": rng.normal(size=(LAYERS, LAYERS, HEADS, 1))}


def made(model: dict[str, Any]) -> str:
    stages = {stage: model[stage] for stage in ("nulls", "attention", "cosines", "stream", "attribution")}
    return atlas.atlas_page(model["overlaps"], ATTRIBUTES, **stages, report="../report.html")


@pytest.fixture(scope="module")
def page(model: dict[str, Any]) -> str:
    return made(model)


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    raw = base64.b64decode(packed["data"])
    if "low" not in packed:
        return np.frombuffer(raw, "<f4").astype(float)
    codes = np.frombuffer(raw, "<u2")
    values = packed["low"] + codes * (packed["high"] - packed["low"]) / 65534
    return np.where(codes == 65535, np.nan, values)


# --- what the page holds


def test_every_pair_of_a_small_model_is_on_the_page(model: dict[str, Any], page: str) -> None:
    comparisons = embedded(page)["comparisons"]
    assert list(comparisons) == ["O", "Q", "K", "V", "OQ", "OK", "OV"]
    one, other = np.triu_indices(HEADS, 1)
    rho = model["overlaps"]["within/Q/rho"][:, one, other]
    np.testing.assert_allclose(unpacked(comparisons["Q"]["values"]["rho"]).reshape(LAYERS, -1), rho, atol=1e-5)
    writer, reader = np.triu_indices(LAYERS, 1)
    assert comparisons["OK"]["conditions"] == np.stack([writer, reader], 1).tolist()
    assert comparisons["OK"]["kept"] is None
    for name, error in {"rho": 1e-5, "angle": 1e-3, "simple_composition": 1e-5, "weighted": 1e-5}.items():
        expected = model["overlaps"][f"cross/OK/{name}"][writer, reader].ravel()
        np.testing.assert_allclose(unpacked(comparisons["OK"]["values"][name]), expected, atol=error, rtol=1e-6)
    spread = model["overlaps"]["cross/OK/rho"][writer, reader].reshape(len(writer), -1).std(axis=1)
    np.testing.assert_allclose(unpacked(comparisons["OK"]["summary"]["rho"]["spread"]), spread, rtol=1e-6)


def test_principal_angles_are_those_of_scipy(model: dict[str, Any]) -> None:
    results = ModelResults(NAME, ATTRIBUTES, model["overlaps"])
    comparison = results.across("V")
    order = atlas.pairs_with_curves(comparison)
    assert sorted(order) == list(range(comparison.rho.size))
    assert np.all(np.diff(comparison.rho.ravel()[order]) <= 0)
    for place in (0, 17, len(order) - 1):
        condition, pair = divmod(int(order[place]), comparison.n_pairs)
        writer, reader = comparison.layers[condition]
        one, other = model["bases"]["O"][writer, pair // GROUPS], model["bases"]["V"][reader, pair % GROUPS]
        expected = np.cos(subspace_angles(one, other)[::-1])
        np.testing.assert_allclose(model["cosines"]["OV"][place], expected, atol=1e-12)


def test_bases_are_read_from_the_files_of_blocks(model: dict[str, Any], tmp_path: Path) -> None:
    paths = []
    for start, stop in ((0, 2), (2, 3), (3, LAYERS)):
        arrays = {f"{kind}/basis": basis[start:stop] for kind, basis in model["bases"].items()}
        arrays |= {f"rank/{kind}": np.full(basis.shape[:2], OWN)[start:stop] for kind, basis in model["bases"].items()}
        paths.append(tmp_path / f"layers{start:03d}-{stop - 1:03d}.h5")
        write_arrays(paths[-1], "bases", arrays, {"model": "m"})
    read = atlas.stored_bases(paths)
    for kind, layer in (("O", 0), ("V", 1), ("K", 2), ("Q", 3), ("O", 4)):
        np.testing.assert_array_equal(read(kind, layer), model["bases"][kind][layer])


def test_a_space_of_lower_rank_has_fewer_angles(model: dict[str, Any]) -> None:
    bases = {kind: basis.copy() for kind, basis in model["bases"].items()}
    bases["K"][1, 0, :, OWN - 1] = 0
    overlaps = model["overlaps"] | {"rank/K": np.where(np.arange(GROUPS) == 0, OWN - 1, np.full((LAYERS, GROUPS), OWN))}
    cosines = atlas.principal_cosines(overlaps, ATTRIBUTES, lambda kind, layer: bases[kind][layer])["K"]
    assert np.isfinite(cosines).sum(axis=1).tolist() == [OWN - 1] * LAYERS


def test_a_large_model_keeps_its_strongest_pairs(model: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    total = sum(c.rho.size for c in ModelResults(NAME, ATTRIBUTES, model["overlaps"]).compare_all())
    monkeypatch.setattr(atlas, "PAIR_BUDGET", total // 2)
    monkeypatch.setattr(atlas, "ALL_UP_TO", 20)
    monkeypatch.setattr(atlas, "STRONGEST", 15)
    part = embedded(atlas.atlas_page(model["overlaps"], ATTRIBUTES))["comparisons"]["OQ"]
    rho = ModelResults(NAME, ATTRIBUTES, model["overlaps"]).across("Q").rho
    assert part["kept"] == sorted(np.argsort(-rho.max(axis=1))[: len(rho) // 2].tolist())
    np.testing.assert_allclose(unpacked(part["values"]["rho"]), rho[part["kept"]].ravel(), atol=1e-5)
    assert len(unpacked(part["summary"]["rho"]["mean"])) == len(rho)
    strongest = np.frombuffer(base64.b64decode(part["strongest"]["index"]), "<u4")
    assert strongest.tolist() == np.argsort(-rho.ravel(), kind="stable")[:15].tolist()
    np.testing.assert_allclose(unpacked(part["strongest"]["values"]["rho"]), np.sort(rho.ravel())[::-1][:15], atol=1e-5)


def test_null_samples_are_summarised(model: dict[str, Any], page: str) -> None:
    nulls = embedded(page)["comparisons"]["O"]["nulls"]
    samples = model["nulls"]["within/O/rotation/spread"]
    assert nulls["samples"] == 7
    np.testing.assert_allclose(unpacked(nulls["rotation"]["spread_largest"]), samples.max(axis=0), rtol=1e-6)
    np.testing.assert_allclose(unpacked(nulls["rotation"]["spread_mean"]), samples.mean(axis=0), rtol=1e-6)
    assert nulls["pairs"]["layer"] == 2
    pairs = model["nulls"]["pairs/O/reassignment/rho"]
    quantiles = unpacked(nulls["pairs"]["reassignment"])
    np.testing.assert_allclose(quantiles[[0, 500, 1000]], np.quantile(pairs, [0, 0.5, 1]), atol=1e-5)
    assert embedded(atlas.atlas_page(model["overlaps"], ATTRIBUTES))["comparisons"]["O"]["nulls"] is None


def test_names_cannot_become_markup(page: str) -> None:
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<title>&lt;script&gt;window.hacked=1&lt;/script&gt;" in page
    assert "&lt;/script&gt;&lt;b&gt;&amp;" in page
    assert embedded(page)["model"] == NAME
    nasty = {"a": "</script><!--<script>", "b": "&\u2028\u2029", "ρ": 1.5}
    text = script_json(nasty)
    assert json.loads(text) == nasty
    assert not set("<>&\u2028\u2029") & set(text)
    with pytest.raises(ValueError, match="JSON"):
        script_json({"a": float("nan")})


def test_the_page_asks_for_nothing(page: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!#)\w+:""", page)
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_page_repeats_byte_for_byte_and_appears_whole(model: dict[str, Any], page: str, tmp_path: Path) -> None:
    path = tmp_path / "pages" / "model.html"
    again = made(model)
    write_text(again, path)
    assert path.read_text(encoding="utf-8") == page
    assert [file.name for file in path.parent.iterdir()] == ["model.html"]


# --- in a browser


@pytest.fixture(scope="module")
def file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("atlas") / "model.html"
    path.write_text(page, encoding="utf-8")
    return path


def facts(browser: Any) -> dict[str, str]:
    script = (
        "return [...document.querySelectorAll('#pair-facts div')].map((d) => [...d.children].map((c) => c.textContent))"
    )
    return dict(browser.execute_script(script))


def pointer(browser: Any, name: str, row: int, column: int, kind: str) -> None:
    """Move to, or click, a heat map's cell."""
    script = """
      const [name, row, column, kind] = arguments, heat = name === "overview" ? overview : detail;
      heat.canvas.scrollIntoView({ block: "center" });
      const box = heat.canvas.getBoundingClientRect();
      return [box.left + heat.left + (column + 0.5) * heat.size, box.top + heat.top + (row + 0.5) * heat.height];
    """
    x, y = browser.execute_script(script, name, row, column, kind)
    for step in ["mouseMoved"] if kind == "hover" else ["mouseMoved", "mousePressed", "mouseReleased"]:
        event = {"type": step, "x": x, "y": y, "button": "none" if step == "mouseMoved" else "left", "clickCount": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)


def test_it_opens_from_disk_without_a_console_message(browser: Any, file: Path) -> None:
    show(browser, file)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.querySelector('h1').textContent") == NAME
    assert "</script><b>&" in browser.execute_script("return document.querySelector('.facts').textContent")
    assert "The norm's linear part belongs to the read spaces." in text(browser, "notes")


def test_hover_reads_and_click_opens_the_pair(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#OK.0.0.1.0")
    pointer(browser, "overview", 1, 3, "hover")
    strongest = model["overlaps"]["cross/OK/rho"][1, 3].max()
    assert text(browser, "tip") == f"layer 1 → 3: overlap ρ, strongest pair {strongest:.4f}"
    assert text(browser, "overview-text") == text(browser, "tip")
    pointer(browser, "overview", 1, 3, "click")
    writer, reader = np.unravel_index(model["overlaps"]["cross/OK/rho"][1, 3].argmax(), (HEADS, GROUPS))
    assert text(browser, "pair-title") == f"Pair · L1 O{writer} → L3 K{reader}"
    pointer(browser, "detail", 2, 1, "hover")
    rho, angle = (model["overlaps"][f"cross/OK/{name}"][1, 3, 2, 1] for name in ("rho", "angle"))
    assert text(browser, "tip") == f"L1 O2 → L3 K1: overlap ρ {rho:.4f}"
    pointer(browser, "detail", 2, 1, "click")
    shown = facts(browser)
    assert shown["ρ"] == f"{rho:.4f}"
    assert shown["projection kernel (PK)"] == f"{rho * OWN:.2f} of {OWN}"
    assert float(shown["smallest angle"].rstrip("°")) == pytest.approx(angle, abs=0.006)
    composition = model["overlaps"]["cross/OK/simple_composition"][1, 3, 2, 1]
    assert float(shown["simple composition score"]) == pytest.approx(composition, abs=6e-5)
    order = int((model["overlaps"]["cross/OK/rho"] > rho).sum()) + 1
    assert shown["place among all pairs of the comparison"] == f"{order} of {10 * HEADS * GROUPS}"
    spread = model["overlaps"]["cross/OK/rho"][1, 3].std()
    largest = max(model["nulls"][f"cross/OK/{null}/spread"][:, 1, 3].max() for null in ("rotation", "reassignment"))
    assert float(shown["spread in layer 1 → 3 over the largest of 14 null samples (r)"]) == pytest.approx(
        spread / largest, abs=0.006
    )
    press(browser, "angles", "ArrowRight", "ArrowRight")
    angles = np.degrees(subspace_angles(model["bases"]["O"][1, 2], model["bases"]["K"][3, 1]))[::-1]
    number, of, value = re.fullmatch(r"angle (\d) of (\d): ([\d.]+)°", text(browser, "angles-text")).groups()  # type: ignore[union-attr]
    assert (int(number), int(of)) == (2, OWN)
    assert float(value) == pytest.approx(angles[1], abs=0.02)


def test_a_pair_of_the_figure_2_layer_has_its_null_quantile(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#O.2.1.2.2")
    rho = model["overlaps"]["within/O/rho"][2, 1, 2]
    assert text(browser, "pair-title") == "Pair · L2 O1 and L2 O2"
    share = (model["nulls"]["pairs/O/rotation/rho"] < rho).mean()
    found = facts(browser)["quantile among the rotation null's pairs"]
    assert {"below all": 0.0, "above all": 1.0}.get(found) == share or float(found) == pytest.approx(share, abs=0.03)
    show(browser, file, place="#O.1.1.1.2")
    assert "quantile among the rotation null's pairs" not in facts(browser)


def test_it_opens_on_writes_to_keys_and_leads_back(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file)
    assert text(browser, "overview-title") == "Overview · O → K: write to key read spaces"
    assert browser.execute_script("return document.getElementById('comparison').value") == "OK"
    rho = model["overlaps"]["cross/OK/rho"]
    writer, reader, head, other = np.unravel_index(np.nanargmax(rho), rho.shape)
    assert text(browser, "pair-title") == f"Pair · L{writer} O{head} → L{reader} K{other}"
    assert facts(browser)["place among all pairs of the comparison"] == f"1 of {10 * HEADS * GROUPS}"
    links = browser.execute_script("return [...document.links].map((link) => link.getAttribute('href'))")
    assert links == ["../report.html"]
    assert browser.execute_script("return location.hash") == f"#OK.{writer}.{head}.{reader}.{other}"
    browser.execute_script("location.hash = '#OV.1.2.3.1'")
    settle(browser)
    assert text(browser, "pair-title") == "Pair · L1 O2 → L3 V1"


def test_heads_are_marked_by_what_they_do(browser: Any, file: Path) -> None:
    show(browser, file, place="#OK.0.1.3.1")
    shown = facts(browser)
    assert shown["L0 O1 is"] == "Previous Token; attends 0.90 to the token before"
    assert shown["L3 K1 is"] == "Induction; query head 2 attends 0.80 to the one after an earlier copy"
    assert text(browser, "graph-marks") == "Letters: P Previous Token, I Induction (attention patterns)."
    letters = "return [...document.querySelectorAll('#graph text.mark')].map((node) => node.textContent)"
    assert sorted(browser.execute_script(letters)) == ["I", "P"]


def test_a_pair_stands_against_the_swap_null(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#OK.1.2.3.1")
    at = model["overlaps"]["cross/OK/rho"][1, 3, 2, 1]
    moments = [model["nulls"][f"cross/OK/swap/{name}"][:, 1:2, 3] for name in ("mean", "spread", "skewness")]
    z, p = pair_scores(np.array([[at]]), *moments)
    shown = facts(browser)
    assert float(shown["z against the swap null"]) == pytest.approx(z.item(), abs=0.051)
    assert float(shown["p against the swap null"]) == pytest.approx(p.item(), abs=0.00051, rel=0.5)
    values = embedded(file.read_text(encoding="utf-8"))["comparisons"]["OK"]["values"]
    condition = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3]].index([1, 3])
    place = condition * HEADS * GROUPS + 2 * GROUPS + 1
    assert unpacked(values["swap_z"])[place] == pytest.approx(z.item(), rel=1e-6)
    assert unpacked(values["swap_p"])[place] == pytest.approx(p.item(), rel=1e-6)


def test_a_pair_has_its_effect_on_the_loss_where_it_was_measured(
    browser: Any, model: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    effects = {
        f"{kind}/effect": np.where(
            np.isnan(model["overlaps"][f"cross/O{kind}/rho"]), np.nan, rng.normal(size=(LAYERS, LAYERS, HEADS, count))
        )
        for kind, count in {"Q": HEADS, "K": GROUPS, "V": GROUPS}.items()
    }
    stages = {stage: model[stage] for stage in ("nulls", "cosines")}
    page = atlas.atlas_page(model["overlaps"], ATTRIBUTES, **stages, attribution=effects)
    (tmp_path / "model.html").write_text(page, encoding="utf-8")
    show(browser, tmp_path / "model.html", place="#OK.1.2.3.1")
    assert float(facts(browser)["effect on the loss (0.001 nats)"]) == pytest.approx(
        1e3 * effects["K/effect"][1, 3, 2, 1], abs=0.0051
    )
    packed = embedded(page)["comparisons"]
    strongest = unpacked(packed["OK"]["summary"]["effect"]["strongest"])
    by_pair = effects["K/effect"][0, 1].ravel()
    assert strongest[0] == pytest.approx(1e3 * by_pair[abs(by_pair).argmax()], rel=1e-6)
    assert "effect" not in packed["K"]["values"]
    assert "Effect: A, first order" in text(browser, "notes")


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("1.2", lambda writer, reader: writer == (1, 2) or reader == (1, 1)),
        ("3", lambda writer, reader: 3 in (writer[0], reader[0])),
        ("3k1", lambda _, reader: reader == (3, 1)),
        ("induction", lambda writer, reader: writer == (3, 2) or reader == (3, 1)),
        ("9.9", lambda *_: False),
    ],
)
def test_a_head_is_found(browser: Any, file: Path, wanted: str, chosen: Any) -> None:
    show(browser, file, place="#OK.0.0.1.0")
    press(browser, "search")
    browser.execute_cdp_cmd("Input.insertText", {"text": wanted})
    found = browser.execute_script(
        "return [...document.querySelectorAll('#table tbody button')].map((b) => b.textContent)"
    )
    pairs = [tuple(map(int, re.findall(r"\d+", name))) for name in found]
    expected = {
        (layer, i, later, j)
        for layer in range(LAYERS)
        for later in range(layer + 1, LAYERS)
        for i in range(HEADS)
        for j in range(GROUPS)
        if chosen((layer, i), (later, j))
    }
    assert set(pairs) == expected
    assert len(pairs) == len(expected)
    if len(wanted) > 1:
        assert f"pairs on the page with {wanted}" in text(browser, "table-hint")


def test_the_script_is_in_files_that_parse_and_are_short() -> None:
    named = {name for names in SCRIPTS.values() for name in names}
    files = {path.stem: path for path in TEMPLATES.glob("*.js")}
    assert named == set(files)
    for path in files.values():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 300, path
        assert max(map(len, lines)) <= 240, path
        assert not any(word in "\n".join(lines) for word in ("innerHTML", "eval(", "var ", "console.")), path
        if shutil.which("node"):
            subprocess.run(["node", "--check", path], check=True)


def test_the_keyboard_does_what_the_mouse_does(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#OQ.0.0.1.0")
    # The first key shows the chosen cell (0 -> 1); to the right there is 0 -> 2, below it 1 -> 2.
    press(browser, "overview", "ArrowRight", "ArrowRight", "ArrowDown")
    assert text(browser, "overview-text").startswith("layer 1 → 2:")
    press(browser, "overview", "ArrowDown")
    assert text(browser, "overview-text").startswith("layer 1 → 2:")  # 2 -> 2 does not exist
    press(browser, "overview", "Enter")
    assert text(browser, "detail-title") == "Head pairs · layer 1 → 2 · OQ"
    press(browser, "graph", "ArrowRight", "Enter")
    strongest = max(model["overlaps"][f"cross/O{kind}/rho"][np.triu_indices(LAYERS, 1)].max() for kind in "QKV")
    assert facts(browser)["ρ"] == f"{strongest:.4f}"
    press(browser, "depth", "ArrowRight", "ArrowRight")
    mean = model["overlaps"]["within/O/rho"][1][np.triu_indices(HEADS, 1)].mean()
    assert text(browser, "depth-text").startswith(f"layer 1: mean ρ · O: {mean:.4f}")


def test_the_graph_has_the_edges_above_the_threshold(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file)
    script = """
      const range = document.getElementById("threshold");
      range.value = arguments[0];
      range.dispatchEvent(new Event("input"));
      return [+range.value, document.querySelectorAll("#graph path").length];
    """
    rho = {kind: model["overlaps"][f"cross/O{kind}/rho"] for kind in "QKV"}
    counts = []
    for wanted in (0.2, 0.3, 0.4):
        threshold, count = browser.execute_script(script, wanted)
        assert threshold == pytest.approx(wanted)
        # Values on the page are rounded to 1e-5: none of these lies that near to a threshold.
        assert count == sum(int((values >= threshold).sum()) for values in rho.values())
        counts.append(count)
    assert counts[0] > counts[1] > counts[2] > 0
    browser.execute_script("document.querySelector('#graph-kinds input[value=OQ]').click()")
    assert browser.execute_script(script, 0.3)[1] == sum(int((rho[kind] >= 0.3).sum()) for kind in "KV")


def test_the_table_sorts(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#OV.0.0.1.0")
    cells = "return [...document.querySelectorAll('#table tbody tr')].map((r) => +r.children[arguments[0]].textContent)"
    rho = browser.execute_script(cells, 1)
    expected = np.sort(model["overlaps"]["cross/OV/rho"][np.triu_indices(LAYERS, 1)].ravel())[::-1]
    np.testing.assert_allclose(rho, expected[: len(rho)], atol=6e-5)
    browser.execute_script("document.querySelector('#table [data-key=angle]').click()")
    angles = browser.execute_script(cells, 2)
    assert angles == sorted(angles)
    assert angles[0] == pytest.approx(np.nanmin(model["overlaps"]["cross/OV/angle"]), abs=0.006)
    browser.execute_script("document.querySelector('#table [data-key=angle]').click()")
    assert browser.execute_script(cells, 2) == angles[::-1]
    sort = "return document.querySelector('#table [data-key=angle]').parentElement.getAttribute('aria-sort')"
    assert browser.execute_script(sort) == "descending"
    browser.execute_script("document.querySelector('#table tbody button').click()")
    assert facts(browser)["smallest angle"] == f"{angles[-1]:.2f}°"


@pytest.mark.parametrize("button", ["overview", "detail", "pair", "depth", "graph", "table"])
def test_every_figures_numbers_come_as_a_file(
    browser: Any, file: Path, model: dict[str, Any], tmp_path: Path, button: str
) -> None:
    show(browser, file, place="#OK.1.1.3.1")
    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    browser.execute_script("document.getElementById(arguments[0]).click()", f"{button}-csv")
    for _ in range(100):
        found = list(tmp_path.glob("*.csv"))
        if found:
            break
        time.sleep(0.05)
    rows = list(csv.DictReader(found[0].read_text(encoding="utf-8").splitlines()))
    assert {row["model"] for row in rows} == {NAME}
    rho = model["overlaps"]["cross/OK/rho"]
    writer, reader = np.triu_indices(LAYERS, 1)
    layer, later = int(writer[5]), int(reader[5])
    if button == "overview":
        means = [float(row["mean"]) for row in rows if row["quantity"] == "rho"]
        np.testing.assert_allclose(means, rho[writer, reader].mean(axis=(1, 2)), rtol=1e-5)
    elif button == "detail":
        values = [float(row["value"]) for row in rows if row["quantity"] == "rho"]
        np.testing.assert_allclose(values, rho[layer, later].ravel(), atol=1e-5)
    elif button == "pair":
        values = {row["quantity"]: row["value"] for row in rows}
        assert float(values["ρ"]) == pytest.approx(rho[layer, later, 1, 1], abs=6e-5)
        assert sum(float(values[f"cos_{i}"]) ** 2 for i in range(1, OWN + 1)) / OWN == pytest.approx(
            rho[layer, later, 1, 1], abs=1e-4
        )
    elif button == "depth":
        own = model["overlaps"]["within/V/rho"][:, 0, 1]
        np.testing.assert_allclose([float(row["value"]) for row in rows if row["spaces"] == "V"], own, rtol=1e-5)
    elif button == "graph":
        assert len(rows) == browser.execute_script("return document.querySelectorAll('#graph path').length")
        one = rows[0]
        place = tuple(int(one[name]) for name in ("layer", "later_layer", "head", "other_head"))
        assert float(one["rho"]) == pytest.approx(model["overlaps"][f"cross/{one['spaces']}/rho"][place], abs=1e-5)
    else:
        assert len(rows) == rho[writer, reader].size
        assert float(rows[0]["rho"]) == pytest.approx(np.nanmax(rho), abs=1e-5)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_is_cut(browser: Any, file: Path, width: int, scheme: str) -> None:
    show(browser, file, width, "#OQ.0.0.1.0", scheme)
    assert cut_texts(browser, width) == []
    assert is_dark(browser) == (scheme == "dark")
    assert browser.get_log("browser") == []


def test_the_theme_button_overrules_the_system(browser: Any, file: Path) -> None:
    show(browser, file, scheme="dark")
    background = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.execute_script(background)
    browser.execute_script("document.getElementById('theme').click()")
    assert text(browser, "theme") == "Theme: light"
    assert browser.execute_script(background) != dark
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(background) == dark
    browser.execute_script("document.getElementById('theme').click()")
    assert text(browser, "theme") == "Theme: system"


def test_a_model_of_writes_only_and_a_partial_page_open(
    browser: Any, model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = {name: array for name, array in model["overlaps"].items() if name.startswith(("within/O", "rank/O"))}
    write_text(atlas.atlas_page(writes, ATTRIBUTES), tmp_path / "writes.html")
    show(browser, tmp_path / "writes.html")
    assert browser.get_log("browser") == []
    assert text(browser, "overview-title").startswith("Overview · O")
    assert browser.execute_script("return document.getElementById('graph-card').hidden")
    monkeypatch.setattr(atlas, "PAIR_BUDGET", 100)
    monkeypatch.setattr(atlas, "ALL_UP_TO", 0)
    monkeypatch.setattr(atlas, "STRONGEST", 5)
    write_text(atlas.atlas_page(model["overlaps"], ATTRIBUTES), tmp_path / "part.html")
    show(browser, tmp_path / "part.html", place="#OQ.0..1.")
    pointer(browser, "overview", 3, 4, "click")
    assert browser.get_log("browser") == []
    assert "too many pairs for one page" in text(browser, "notes")


def test_neurons_and_tokens_are_those_of_the_chosen_heads(browser: Any, file: Path, model: dict[str, Any]) -> None:
    show(browser, file, place="#OK.0.1.2.1")
    stream = model["stream"]

    def lists() -> list[list[str]]:
        return browser.execute_script(  # type: ignore[no-any-return]
            "return [...document.querySelectorAll('.strongest')].map((list) => [list.querySelector('h3').textContent,"
            " ...[...list.querySelectorAll('tbody td')].map((cell) => cell.textContent)])"
        )

    neurons, paths, tokens, key_neurons, key_paths, key_tokens = lists()
    assert neurons[0] == "L0 O1: neurons of later MLPs that read what it writes"
    at = (0, 1, 0)
    which = ("gate", "up")[stream["neurons/O/matrix"][at]]
    share = stream["neurons/O/share"][at]
    assert neurons[1] == f"L{stream['neurons/O/layer'][at]} neuron {stream['neurons/O/neuron'][at]} ({which})"
    assert float(neurons[2]) == pytest.approx(share, abs=6e-4)
    assert float(neurons[3]) == pytest.approx(share / (OWN / WIDTH), abs=0.06)
    assert tokens[1::3] == ['"</script><b>"', '"\ufffd\\n"', '"plain"']
    at = (2, 1, 2)
    assert key_neurons[0] == "L2 K1: neurons of earlier MLPs that write what its keys read"
    assert key_neurons[-3] == f"L{stream['neurons/K/layer'][at]} neuron {stream['neurons/K/neuron'][at]}"
    assert key_tokens[-3] == json.dumps(stream["tokens/K/text"][at].decode())
    # The strongest first, and effects where they were measured.
    assert paths[0] == "L0 O1: what else reads what it writes"
    names, scores = paths[1::3], [float(score) for score in paths[2::3]]
    assert scores == sorted(scores, reverse=True)
    assert "unembedding" in names
    score, effect = stream["score/OG"], model["attribution"]["stream/OM/effect"]
    largest = int(np.nanargmax(score[0, :, 1, 0]))
    at_largest = names.index(f"L{largest} MLP gate")
    assert scores[at_largest] == pytest.approx(score[0, largest, 1, 0], abs=6e-3)
    assert float(paths[3 + 3 * at_largest]) == pytest.approx(1000 * effect[0, largest, 1, 0], rel=0.006)
    assert paths[3 + 3 * names.index("unembedding")] == "–"
    assert {name.split()[-1] for name in key_paths[1::3]} == {"MLP", "embedding"}
    # By the keyboard to another pair of heads: the lists follow.
    press(browser, "detail", "ArrowLeft", "ArrowLeft", "Enter")
    assert lists()[3][0].startswith("L2 K0")
    show(browser, file, place="#O.4.0.4.1")
    assert lists()[0] == ["L4 O0: neurons of later MLPs that read what it writes"]
    assert browser.get_log("browser") == []


def test_without_the_stage_stream_no_lists_are_shown(browser: Any, model: dict[str, Any], tmp_path: Path) -> None:
    write_text(atlas.atlas_page(model["overlaps"], ATTRIBUTES), tmp_path / "page.html")
    show(browser, tmp_path / "page.html", place="#OK.0.1.2.1")
    assert not browser.execute_script("return document.querySelector('#stream, #stream-csv')")
    assert browser.get_log("browser") == []
