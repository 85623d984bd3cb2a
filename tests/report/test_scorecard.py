"""The table of published numbers, and the verdicts on it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.geometry.statistics import isotropic_mean, isotropic_sd
from headspaces.report.document import markdown, read_sections
from headspaces.report.scorecard import (
    DIFFERS,
    MATCHES,
    NOT_RUN,
    OTHER_SETTINGS,
    OTHER_WEIGHTS,
    difference,
    measure,
    read_tables,
    scorecard,
    setting_texts,
    verdict,
)
from headspaces.report.scorecard_pages import sections, summary, write_scorecard
from headspaces.report.tables.registry import TABLES as TABLES_BY_NAME
from headspaces.study.models import read_models
from headspaces.study.published import (
    COLUMNS,
    IN_HOUSE,
    Published,
    compared_as,
    of_models,
    parse_address,
    published_models,
    read_published,
)

PUBLISHED = read_published(ROOT / "config" / "published.tsv")
BY_ID = {row.id: row for row in PUBLISHED}
REFERENCE = read_published(ROOT / "config" / "reference.tsv")

ROW = Published(
    "rw-x", "RW", "table 4", "qwen2.5-7b", "table4:r_median?model=qwen2.5-7b&spaces=OQ", "equal", "6.4", "", "ratio",
    "0.05", "stated", "half a unit of the last printed digit",
)  # fmt: skip
TABLE4 = pd.DataFrame({
    "model": ["gpt2", "gpt2", "qwen2.5-7b", "qwen2.5-7b"],
    "scope": ["within", "across", "within", "across"],
    "spaces": ["Q", "OQ", "Q", "OQ"],
    "layer": [0.0, 1.0, 2.0, math.nan],
    "n_above_all": [12, 65, 28, 378],
    "r_median": [5.3, 3.7, 7.02, 6.43],
})  # fmt: skip
TABLES = {"table4": TABLE4}


def of(row: Published, measured: float) -> str:
    return verdict(row, (float(measured), float(measured)))


# --- verdicts


def test_a_perturbed_measured_value_turns_the_verdict() -> None:
    card = scorecard([ROW], TABLES)
    assert card.loc[0, "verdict"] == MATCHES
    assert card.loc[0, "measured_low"] == 6.43
    assert card.loc[0, "difference"] == pytest.approx(0.03)
    perturbed = TABLE4.assign(r_median=TABLE4["r_median"] + 0.03)
    assert scorecard([ROW], {"table4": perturbed}).loc[0, "verdict"] == DIFFERS


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(6.3500001, MATCHES), (6.4499999, MATCHES), (6.4500001, DIFFERS), (6.3499999, DIFFERS), (math.nan, DIFFERS),
     (math.inf, DIFFERS)],
)  # fmt: skip
def test_a_number_matches_within_half_its_last_digit(measured: float, expected: str) -> None:
    assert of(ROW, measured) == expected


def test_the_edge_of_the_tolerance_is_not_decided_by_binary_fractions() -> None:
    # 0.3 - 0.2 is 0.09999999999999998, 0.7 + 0.1 is 0.7999999999999999: both are exactly on the edge.
    assert of(replace(ROW, low="0.2", tolerance="0.1"), 0.3) == MATCHES
    assert of(replace(ROW, low="0.7", tolerance="0.1"), 0.8) == MATCHES


def test_both_ends_of_a_range_count() -> None:
    row = replace(ROW, low="0.024", high="0.026", tolerance="0.0005")
    assert verdict(row, (0.0243, 0.0261)) == MATCHES
    assert verdict(row, (0.0250, 0.0261)) == DIFFERS
    assert verdict(row, (0.0243, 0.0270)) == DIFFERS
    assert difference(row, (0.0243, 0.0270)) == pytest.approx(0.001)
    assert difference(row, (0.0210, 0.0270)) == pytest.approx(-0.003)


def test_counts_are_exact() -> None:
    row = replace(ROW, low="378", tolerance="0", quantity="table4:n_above_all?model=qwen2.5-7b&spaces=OQ")
    assert scorecard([row], TABLES).loc[0, "verdict"] == MATCHES
    assert of(row, 377) == DIFFERS


@pytest.mark.parametrize(
    ("relation", "measured", "expected"),
    [
        ("at_most", (1.0, 3.04), MATCHES), ("at_most", (1.0, 3.06), DIFFERS),
        ("at_least", (2.96, 9.0), MATCHES), ("at_least", (2.94, 9.0), DIFFERS),
        ("within", (2.96, 4.04), MATCHES), ("within", (3.5, 3.6), MATCHES),
        ("within", (2.90, 3.5), DIFFERS), ("within", (3.5, 4.06), DIFFERS),
    ],
)  # fmt: skip
def test_bounds_are_one_sided(relation: str, measured: tuple[float, float], expected: str) -> None:
    row = replace(ROW, relation=relation, low="3.0", high="4.0" if relation == "within" else "")
    assert verdict(row, measured) == expected


def test_the_difference_of_a_bound_is_that_of_its_own_end() -> None:
    within = replace(ROW, relation="within", low="3", high="4")
    assert difference(within, (3.2, 3.9)) == 0
    assert difference(within, (2.5, 3.9)) == -0.5
    assert difference(within, (2.9, 4.5)) == 0.5
    assert difference(replace(ROW, relation="at_most", low="3"), (1.0, 2.5)) == -0.5
    assert difference(replace(ROW, relation="at_least", low="3"), (3.5, 9.0)) == 0.5
    assert math.isnan(difference(within, (3.2, math.nan)))


def test_a_power_of_ten_matches_by_a_factor() -> None:
    row = replace(ROW, low="1e-10", tolerance="x3.2")
    assert of(row, 3e-10) == MATCHES
    assert of(row, 3.5e-11) == MATCHES
    assert of(row, 3.3e-10) == DIFFERS
    assert of(row, 0.0) == DIFFERS


@pytest.mark.parametrize("model", [IN_HOUSE, f"{IN_HOUSE}+qwen2.5-7b", f"qwen2.5-7b+{IN_HOUSE}"])
def test_other_weights_never_match_however_close(model: str) -> None:
    row = replace(ROW, model=model, low="3.7", quantity="table4:r_median?model=gpt2&spaces=OQ")
    card = scorecard([row], TABLES)
    assert card.loc[0, "verdict"] == OTHER_WEIGHTS
    assert card.loc[0, "difference"] == 0
    assert card.loc[0, "measured_model"] == "gpt2"
    assert verdict(row, None) == NOT_RUN


# --- addresses


@pytest.mark.parametrize(
    ("quantity", "relation", "expected"),
    [
        ("table4:r_median?model=gpt2&spaces=Q", "equal", (5.3, 5.3)),
        ("table4:r_median?model=gpt2", "at_most", (3.7, 5.3)),
        ("table4:r_median,n_above_all?model=gpt2&spaces=Q", "at_most", (5.3, 12)),
        ("table4:n_above_all?scope=across|sum", "equal", (443, 443)),
        ("table4:n_above_all?model=gpt2,qwen2.5-7b&spaces=Q|sum", "equal", (40, 40)),
        ("table4:r_median|median", "equal", (5.865, 5.865)),
        ("table4:r_median?model=qwen2.5-7b|mean", "equal", (6.725, 6.725)),
        ("table4:r_median|min", "equal", (3.7, 3.7)),
        ("table4:r_median|max", "equal", (7.02, 7.02)),
        ("table4:spaces?model=gpt2&spaces=Q|count", "equal", None),
        ("table4:n_above_all?model=gpt2|count", "equal", (2, 2)),
        ("table4:r_median?layer=1", "equal", (3.7, 3.7)),
        ("table4:r_median?layer=0..1|max", "equal", (5.3, 5.3)),
        # What has another name is not run, and neither is a part of what was asked for.
        ("table4:r_median?model=gpt2,pythia-70m|max", "equal", None),
        ("table4:r_median?model=qwen2.5-7b&spaces=OK", "equal", None),
        ("table4:r_median?model=gpt2", "equal", None),
        ("table4:layer?scope=across|max", "equal", None),
        ("table4:spread?model=gpt2", "equal", None),
        ("table5:r_median?model=gpt2", "equal", None),
        ("table4:r_median?null=rotation", "equal", None),
        ("-", "equal", None),
    ],
)
def test_an_address_finds_its_number(quantity: str, relation: str, expected: tuple[float, float] | None) -> None:
    measured, _ = measure(replace(ROW, quantity=quantity, relation=relation), TABLES)
    assert measured == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("quantity", "measured"),
    [
        ("table4:r_median?model=gpt2&layer=3", (math.nan, math.nan)),
        ("table4:r_median?layer=1..3|max", (math.nan, math.nan)),
        ("table4:r_median?layer=3&spaces=Q|count", (0.0, 0.0)),
    ],
)
def test_a_layer_that_is_absent_from_what_was_measured_differs(quantity: str, measured: tuple[float, float]) -> None:
    """An edge that is not among the strongest is an answer; of a model or kind that was not run it is none."""
    row = replace(ROW, quantity=quantity, low="1", tolerance="0.5")
    found, reason = measure(row, TABLES)
    assert found == pytest.approx(measured, nan_ok=True)
    assert "table4 holds no such row with layer 3" in reason or "layer 2" in reason
    for relation in ("equal", "at_most", "at_least"):
        assert verdict(replace(row, relation=relation), measured) in {DIFFERS, MATCHES}
    assert scorecard([row], TABLES).loc[0, "verdict"] == DIFFERS
    assert verdict(replace(row, relation="at_most"), (math.nan, math.nan)) == DIFFERS
    assert measure(replace(row, quantity="table4:r_median?model=mine&layer=3"), TABLES)[0] is None
    assert measure(replace(row, quantity="table4:r_median?spaces=K&layer=3"), TABLES)[0] is None


def test_an_address_divides_as_the_paper_does() -> None:
    row = replace(ROW, quantity="table4:r_median?model=gpt2&spaces=Q|max/0.5", low="10.6")
    assert measure(row, TABLES)[0] == pytest.approx((10.6, 10.6))
    assert compared_as([row], {"own": "gpt2"})[0].quantity == "table4:r_median?model=own&spaces=Q|max/0.5"


# --- settings


def test_a_number_of_other_settings_neither_matches_nor_differs() -> None:
    asks = replace(ROW, settings="fold=true nulls.samples=30")
    for value in (6.43, 9.9):
        tables = {"table4": TABLE4.assign(r_median=value)}
        same = setting_texts({"fold": True, "nulls": {"samples": 30}})
        assert scorecard([asks], tables, same).loc[0, "verdict"] == (MATCHES if value == 6.43 else DIFFERS)
        card = scorecard([asks], tables, setting_texts({"fold": False, "nulls": {"samples": 30}}))
        assert card.loc[0, "verdict"] == OTHER_SETTINGS
        assert card.loc[0, "reason"] == "fold is false, there true"
    assert scorecard([replace(asks, quantity="-")], {}, {"fold": "false"}).loc[0, "verdict"] == NOT_RUN
    assert scorecard([replace(asks, model=IN_HOUSE)], TABLES, {"fold": "false"}).loc[0, "verdict"] == OTHER_WEIGHTS


def test_settings_are_written_as_the_rows_name_them() -> None:
    settings = {"fold": True, "rank_rtol": 1.0e-6, "nulls": {"samples": 30, "swap": {"sweeps": 1}}}
    assert setting_texts(settings) == {
        "fold": "true", "rank_rtol": "1e-06", "nulls.samples": "30", "nulls.swap.sweeps": "1",
    }  # fmt: skip


def test_rows_ask_for_settings_that_there_are() -> None:
    known = setting_texts(yaml.safe_load((ROOT / "config" / "config.yaml").read_text())) | {"python": "3.11"}
    for row in (*PUBLISHED, *REFERENCE):
        assert set(row.asked_settings) <= set(known), row.id
    # Numbers of the null models ask for their samples, folded reads for the fold, writes for neither.
    assert BY_ID["rw-t4-7b-q-within-r_median"].settings == "fold=true nulls.samples=30"
    assert BY_ID["rw-t5-7b-mean_range"].settings == "-"
    assert BY_ID["pk-f8-kl-qq"].settings == "affinity.fold=false"


def test_a_number_that_was_not_run_says_why() -> None:
    quantities = {
        "table5:r_median?model=gpt2": "no table table5 in this report",
        "identity:identity_score?model=gpt2": "no table identity in this report: it needs the stage attention",
        "table4:spread?model=gpt2": "table4 has no column spread",
        "table4:r_median?model=pythia-70m": "table4 holds no such row with model pythia-70m",
        "table4:r_median?model=gpt2": "2 numbers where one is expected",
        "table4:layer?scope=across|max": "table4 has an empty cell there",
        "table4:spaces?model=gpt2&spaces=Q": "table4 has text in spaces",
        "-": "no table holds this number",
    }
    rows = [replace(ROW, id=f"rw-{index}", quantity=quantity) for index, quantity in enumerate(quantities)]
    card = scorecard(rows, TABLES)
    assert card["verdict"].tolist() == [NOT_RUN] * len(rows)
    assert card["reason"].tolist() == list(quantities.values())


def test_only_an_empty_cell_is_missing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("model,value\nNA,1.5\nnan,\n", encoding="utf-8")
    tables = read_tables({"t": tmp_path / "t.csv"})
    assert measure(replace(ROW, quantity="t:value?model=NA"), tables)[0] == (1.5, 1.5)
    assert measure(replace(ROW, quantity="t:value?model=nan"), tables)[0] is None


# --- a published model under another name


def test_an_own_model_answers_for_a_published_one() -> None:
    house = replace(ROW, id="rw-house", model=IN_HOUSE, low="9", quantity="table4:r_median?model=gpt2&spaces=OQ")
    asked = [
        ROW,
        house,
        replace(house, id="rw-gpt2", model="gpt2", low="3.7"),
        replace(house, id="rw-instruct", quantity="model_pairs:r?model=gpt2&other=gpt2-xl,gpt2|max"),
    ]
    own = {"table4": TABLE4.assign(model=TABLE4["model"].replace("gpt2", "my-weights"))}
    assert set(scorecard(asked[1:], own)["verdict"]) == {NOT_RUN}
    rows = compared_as(asked, {"my-weights": "gpt2"})
    card = scorecard(rows, own).set_index("id")
    assert card.loc[["rw-x", "rw-gpt2", "rw-house"], "verdict"].tolist() == [MATCHES, MATCHES, OTHER_WEIGHTS]
    assert card.loc["rw-gpt2", ["model", "measured_model"]].tolist() == ["gpt2", "my-weights"]
    assert rows[0] == ROW
    assert rows[3].quantity == "model_pairs:r?model=my-weights&other=gpt2-xl,my-weights|max"
    assert compared_as(asked, {}) == asked


def test_the_scorecard_says_in_words_what_was_compared_as_what(tmp_path: Path) -> None:
    card = scorecard([ROW], TABLES)
    write_scorecard(card, tmp_path / "s.csv", tmp_path / "s.md", tmp_path / "s.json", {"my_weights": "gpt2"})
    page = (tmp_path / "s.md").read_text(encoding="utf-8")
    assert "my\\_weights was compared as gpt2:" in page
    assert "was compared as" not in markdown(sections(card))


def test_the_published_models_are_those_that_can_be_measured() -> None:
    assert published_models(PUBLISHED) == [
        "gpt2", "pythia-70m", "qwen2.5-7b", "qwen2.5-7b-instruct", "qwen3-235b-a22b",
    ]  # fmt: skip


# --- reading published.tsv

GOOD = "\t".join(getattr(ROW, name) for name in COLUMNS)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("id", ""), ("paper", "XY"), ("place", " table 4"), ("model", ""), ("quantity", "table4"),
        ("quantity", "table4:r_median?model"), ("quantity", "table4:r_median?model=gpt2|mode"), ("relation", "about"),
        ("low", "1,190"), ("low", "6,4"), ("low", "0x10"), ("low", "nan"), ("low", "1_000"), ("low", "６"),
        ("low", ".5"), ("high", "6.3"),
        ("tolerance", "-0.1"), ("tolerance", "x"), ("tolerance", "inf"), ("status", "guessed"), ("why", ""),
        ("settings", ""), ("settings", "fold"),
    ],
)  # fmt: skip
def test_a_malformed_cell_is_named_by_line_and_column(tmp_path: Path, column: str, cell: str) -> None:
    path = tmp_path / "published.tsv"
    bad = "\t".join(cell if name == column else getattr(ROW, name) for name in COLUMNS)
    path.write_text("\n".join(["\t".join(COLUMNS), GOOD.replace("rw-x", "rw-y"), bad]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"published\.tsv, line 3, column '{column}'"):
        read_published(path)


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "published.tsv"
    header = "\t".join(COLUMNS)
    for text, message in {
        "": "line 1: column 'id'",
        header.replace("unit\t", ""): "line 1: column 'unit'",
        header + "\tnote": "line 1: column 'note'",
        f"{header}\n{GOOD}\textra": "line 2: 14 cells, expected 13",
        f"{header}\n{GOOD}\n": "",
        f"{header}\n{GOOD}\n{GOOD}": "line 3, column 'id': 'rw-x' names an earlier row",
        f"{header}\n{GOOD.replace('equal', 'within')}": "line 2, column 'high'",
    }.items():
        path.write_text(text, encoding="utf-8")
        if message:
            with pytest.raises(InputError, match=re.escape(message)):
                read_published(path)
        else:
            assert read_published(path) == [ROW]


# --- the published numbers themselves


def value(name: str) -> float:
    return float(BY_ID[name].low)


def test_every_row_names_known_things() -> None:
    known = {*read_models(ROOT / "config" / "models.tsv"), IN_HOUSE}
    for row in PUBLISHED:
        assert row.status != "measured", row.id
        assert set(row.model.split("+")) <= known, row.id
        assert re.fullmatch(r"[a-z0-9._-]+", row.id), row.id
        assert row.id.startswith(row.paper.lower() + "-"), row.id
        address = row.address
        if address is not None and address.models:
            measured = {"gpt2" if name == IN_HOUSE else name for name in row.model.split("+")}
            other = set(dict(address.conditions).get("other", ()))
            assert set(address.models) | other == measured, row.id


def test_hundreds_of_numbers_of_both_papers() -> None:
    papers = [row.paper for row in PUBLISHED]
    assert papers.count("RW") > 550
    assert papers.count("PK") > 200
    places = {re.sub(r" \(.*", "", place) for row in PUBLISHED if row.paper == "RW" for place in row.place.split("; ")}
    assert {f"table {number}" for number in range(1, 10)} <= places
    assert {f"figure {number}" for number in range(2, 9)} <= places
    assert {f"appendix {letter}" for letter in "EFGH"} <= places


def test_tolerances_follow_the_printed_digits() -> None:
    for row in PUBLISHED:
        if row.why == "half a unit of the last printed digit":
            digits = re.fullmatch(r"-?\d+(?:\.(\d+))?(?:e(-?\d+))?", row.low)
            assert digits is not None
            last = 10.0 ** (int(digits[2] or 0) - len(digits[1] or ""))
            assert float(row.tolerance) == pytest.approx(last / 2, rel=1e-9), row.id


def test_numbers_that_are_printed_twice_agree() -> None:
    by_address = defaultdict(list)
    for row in PUBLISHED:
        if row.quantity != "-" and not row.tolerance.startswith("x"):
            by_address[row.quantity].append(row)
    repeated = [rows for rows in by_address.values() if len(rows) > 1]
    assert repeated
    for first, *others in repeated:
        for other in others:
            allowed = float(first.tolerance) + float(other.tolerance)
            assert first.ends == pytest.approx(other.ends, abs=allowed + 1e-12), (first.id, other.id)


def test_numbers_of_two_tables_agree() -> None:
    for model in ("124m", "7b"):
        for kind in "qkv":
            assert value(f"rw-t1-{model}-{kind}-min_angle") == value(f"rw-t7-{model}-{kind}-min_angle")
            assert value(f"rw-t4-{model}-o{kind}-across-n_above_all") == value(f"rw-t8-{model}-{kind}-n_spread_above")
            assert value(f"rw-t4-{model}-o{kind}-across-rotation_ratio") == value(
                f"rw-t8-{model}-{kind}-rotation_ratio"
            )
            assert value(f"rw-t2-{model}-{kind}-n_layer_pairs") == value(f"rw-t8-{model}-{kind}-n_layer_pairs")
        for kind in "qk":
            assert value(f"rw-t4-{model}-{kind}-within-n_above_all") == value(f"rw-t7-{model}-{kind}-n_spread_above")
    for model in ("124m", "7b", "235b", "70m"):
        for column in ("d_model", "d_head", "n_layers", "isotropic"):
            assert value(f"rw-t3-{model}-{column}") == value(f"rw-t5-{model}-{column}")
    assert BY_ID["rw-t6-124m-layer1-observed"].low == "9.745"
    assert value("rw-f-124m-k-layer4-min_angle") == value("rw-t1-124m-k-min_angle")
    assert value("rw-t9-7b-23to27-v-max_rho") == value("rw-s5.2-7b-across-max_rho")


def test_shapes_give_the_printed_counts_and_isotropic_values() -> None:
    for model in ("124m", "7b", "235b", "70m"):
        heads, layers = int(value(f"rw-t3-{model}-n_query_heads")), int(value(f"rw-t3-{model}-n_layers"))
        width, own = int(value(f"rw-t3-{model}-d_model")), int(value(f"rw-t3-{model}-d_head"))
        assert value(f"rw-t3-{model}-n_write_pairs") == heads * (heads - 1) // 2
        row = BY_ID[f"rw-t3-{model}-isotropic"]
        assert isotropic_mean(width, own) == pytest.approx(float(row.low), abs=float(row.tolerance) * 1.001)
        sd = BY_ID.get(f"rw-s5.1-{model}-random_sd") or BY_ID[f"rw-t5-{model}-random_sd"]
        assert isotropic_sd(width, own) == pytest.approx(float(sd.low), abs=float(sd.tolerance))
        if model not in ("124m", "7b"):
            continue
        keys = int(value(f"rw-t3-{model}-n_kv_heads"))
        for kind, count in zip("oqkv", (heads, heads, keys, keys)):
            assert value(f"rw-t1-{model}-{kind}-n_pairs") == layers * count * (count - 1) // 2
            if kind != "o":
                pairs = layers * (layers - 1) // 2
                assert value(f"rw-t1-{model}-o{kind}-n_pairs") == pairs * heads * count
                assert value(f"rw-s5.3-{model}-o{kind}-pairs_per_condition") == heads * count
                assert value(f"rw-t4-{model}-o{kind}-across-n_conditions") == pairs


def test_table_4_adds_up_as_the_text_says() -> None:
    def total(column: str, model: str, scope: str = "") -> float:
        name = re.compile(rf"rw-t4-{model}-[a-z]+-({scope or 'within|across'})-{column}")
        parts = [row for row in PUBLISHED if name.fullmatch(row.id)]
        return sum(float(row.low) for row in parts)

    assert (total("n_above_all", "124m"), total("n_conditions", "124m")) == (233, 234)
    assert (total("n_above_all", "7b"), total("n_conditions", "7b")) == (1190, 1190)
    assert total("n_above_all", "124m", "across") == value("rw-s5.3-124m-n_across_above") == 197
    assert total("n_conditions", "124m", "across") == value("rw-s5.3-124m-n_across_conditions") == 198
    across = total("n_conditions", "124m", "across") + total("n_conditions", "7b", "across")
    assert across == value("rw-s5.3-124m-7b-n_across_conditions") == 1332
    medians = [float(row.low) for row in PUBLISHED if re.fullmatch(r"rw-t4-(124m|7b)-.*-r_median", row.id)]
    assert (min(medians), max(medians)) == (
        value("rw-s5.3-124m-7b-r_median_low"),
        value("rw-s5.3-124m-7b-r_median_high"),
    )


def test_the_second_paper_is_complete() -> None:
    count = defaultdict(int)
    for row in PUBLISHED:
        if row.paper == "PK":
            count[re.sub(r"(?<=f1-)(oq|ok|ov|cs-ov)-.*-(rank|pk)$", r"\1-\2", row.id.removeprefix("pk-"))] += 1
    assert [count[f"f1-{kind}-rank"] for kind in ("oq", "ok", "ov", "cs-ov")] == [20] * 4
    assert [count[f"f1-{kind}-pk"] for kind in ("oq", "ok", "ov")] == [19, 6, 20]
    assert sum(name.startswith("f8-kl-") for name in count) == 16
    assert sum(name.startswith("t1-") for name in count) == 20
    assert sum(name.startswith("t2-") for name in count) == 4
    assert sum(name.startswith("f5-") for name in count) == 12
    degrees = [value(f"pk-f1-l4h7-{part}") for part in ("in_ov", "out_oq", "out_ok", "out_ov")]
    assert sum(degrees) == value("pk-f1-l4h7-n_edges") == 19
    edges = [row.id for row in PUBLISHED if re.fullmatch(r"pk-f1-(oq|ok|ov)-.*-rank", row.id)]
    assert sum("-4.7-" in name for name in edges) == 19
    # Each mean of table 1 is the mean of its row, to the printed digits.
    for method in ("pk", "cs", "simple_cs", "cka", "procrustes"):
        mean = sum(value(f"pk-t1-{method}-{kind}") for kind in ("oq", "ok", "ov")) / 3
        assert mean == pytest.approx(value(f"pk-t1-{method}-mean"), abs=0.001)
    # The isotropic mean and deviation of PK are d times those of rho.
    assert 64 * isotropic_mean(768, 64) == pytest.approx(value("pk-reference-mean"), abs=5e-5)
    assert 64 * isotropic_sd(768, 64) == pytest.approx(value("pk-reference-sd"), abs=5e-6)


# --- the files


def test_the_scorecard_orders_counts_and_writes(tmp_path: Path) -> None:
    rows = [
        replace(ROW, id="rw-match"),
        replace(ROW, id="rw-none", quantity="-"),
        replace(ROW, id="rw-house", model=IN_HOUSE, quantity="table4:r_median?model=gpt2&spaces=OQ"),
        replace(ROW, id="rw-range", low="5", high="7", tolerance="0.5", quantity="table4:r_median?model=qwen2.5-7b"),
        replace(ROW, id="pk-bound", paper="PK", low="1", relation="at_most", status="figure", why="a <b>|bar|</b>"),
    ]
    card = scorecard(rows, TABLES)
    assert card["id"].tolist() == ["rw-range", "pk-bound", "rw-match", "rw-house", "rw-none"]
    counts = summary(card).set_index(["paper", "model"])
    assert counts.loc[("RW", "all")].tolist() == [1, 1, 0, 1, 1]
    assert counts.loc[("RW", "qwen2.5-7b")].tolist() == [1, 1, 0, 0, 1]
    assert counts.loc[("PK", "all")].tolist() == [1, 0, 0, 0, 0]

    write_scorecard(card, tmp_path / "s.csv", tmp_path / "s.md", tmp_path / "s.json")
    again = pd.read_csv(tmp_path / "s.csv")
    assert again["verdict"].tolist() == card["verdict"].tolist()
    assert again.loc[0, ["published_low", "published_high", "measured_low", "measured_high"]].tolist() == [
        5,
        7,
        6.43,
        7.02,
    ]
    page = (tmp_path / "s.md").read_text(encoding="utf-8")
    assert page == markdown(sections(card))
    assert "| rw-range | RW table 4 | qwen2.5-7b | 5 – 7 | 6.43 – 7.02 | 1.43 | 0.5 | ratio |" in page
    assert "| pk-bound | PK table 4 (figure) | qwen2.5-7b | ≤ 1 | 6.43 |" in page
    assert "3.7 (gpt2)" in page
    assert "a &lt;b&gt;\\|bar\\|&lt;/b&gt;" in page
    assert page.index("## Differs (2)") < page.index("## Matches (1)") < page.index("## Other weights (1)")
    assert "no table holds this number" in page
    # The page of the report sorts ranges, bounds and remarks by their numbers.
    counted, differs, _, house, absent = read_sections(tmp_path / "s.json")
    assert counted.table.numeric == [False, False, True, True, True, True, True]
    published, measured, difference, tolerance = differs.table.keys[3:7]
    assert published == ["5", "1"]
    assert measured == ["6.43", "6.43"]
    assert [float(key) for key in difference or ()] == pytest.approx([1.43, 5.43])
    assert tolerance == ["0.5", "0.05"]
    assert house.table.rows[0][4] == "3.7 (gpt2)"
    assert house.table.keys[4] == ["3.7"]
    assert absent.table.numeric[3:6] == [True, False, False]


def test_numbers_stand_as_the_paper_prints_them() -> None:
    rows = [
        replace(ROW, low="6.40"),
        replace(ROW, id="rw-count", low="296352", tolerance="0", quantity="table4:n_above_all?spaces=OQ&model=gpt2"),
        replace(ROW, id="rw-range", low="2.040", high="17.0", quantity="table4:r_median?model=gpt2"),
    ]
    frame = TABLE4.assign(n_above_all=TABLE4["n_above_all"].replace(65, 296352))
    page = markdown(sections(scorecard(rows, {"table4": frame})))
    assert "| 6.40 | 6.43 | 0.03 |" in page
    assert "| 296352 | 296352 | 0 |" in page
    assert "| 2.040 – 17.0 | 3.7 – 5.3 | -11.7 |" in page


def test_every_published_number_gets_a_verdict_without_any_table() -> None:
    card = scorecard(PUBLISHED, {})
    assert len(card) == len(PUBLISHED)
    assert set(card["verdict"]) == {NOT_RUN}
    assert (card["reason"] != "").all()
    assert "The papers print no number of the models of this report." in markdown(sections(card))
    assert "The papers print no number" not in markdown(sections(scorecard([ROW], TABLES)))


def test_what_is_circular_or_read_off_is_said() -> None:
    statuses = pd.Series([row.status for row in PUBLISHED if row.paper == "PK"]).value_counts()
    assert statuses.to_dict() == {"figure": 163, "stated": 28, "fitted": 21, "inferred": 1}
    rows = [replace(ROW, id=f"rw-{status}", status=status) for status in ("stated", "figure", "fitted")]
    (said,) = sections(scorecard(rows, TABLES))[0].paragraphs
    assert said.startswith("Of the 3 numbers that match: 1 stated in text or tables, 1 read off figures, 1 circular, ")
    assert said.endswith("since the set of heads that is measured was fitted to them.")


def test_reference_rows_are_of_the_demo_and_have_a_reason_each() -> None:
    demo = set(yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())["models"])
    assert len(REFERENCE) >= 40
    for row in REFERENCE:
        assert (row.paper, row.status) == ("reference", "measured")
        assert row.address is not None
        assert set(row.address.models) == {row.model} <= demo
    assert of_models(REFERENCE, ["two-layer-attention"]) == [row for row in REFERENCE if row.id.startswith("toy-")]
    assert of_models(REFERENCE, ["gpt2"]) == []


def test_the_addresses_name_columns_that_the_tables_have() -> None:
    columns = {name: set(table([]).frame.columns) for name, table in TABLES_BY_NAME.items()}
    checked = 0
    for row in (*PUBLISHED, *REFERENCE):
        if row.address and row.address.table in columns:
            named = {*row.address.columns, *dict(row.address.conditions)}
            assert named <= columns[row.address.table], row.id
            checked += 1
    assert checked > 350


def test_parsed_addresses_keep_their_parts() -> None:
    address = parse_address("right_tail:mean_rho,p95_rho?model=qwen2.5-7b&layer=24..26,3|max", "here")
    assert address.table == "right_tail"
    assert address.columns == ("mean_rho", "p95_rho")
    assert address.conditions == (("model", ("qwen2.5-7b",)), ("layer", ("24", "25", "26", "3")))
    assert address.aggregate == "max"
    with pytest.raises(InputError, match=r"here: 'a:b\?c' is not of the form"):
        parse_address("a:b?c", "here")
