import json
import time
from itertools import pairwise

import numpy as np
import pytest
from support.browser import cut_texts, settle, show, text
from support.tiny_results import random_model

from headspaces.report.atlas import atlas_page
from headspaces.report.side_by_side import side_by_side_page

CHOICES = {
    "base": {"": "atlas/base.html"},
    "<b>, by step": {str(step): f"atlas/step{step}.html" for step in (0, 30, 100)},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A study's page beside the atlases of a model and of three steps, all of one shape."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "atlas").mkdir()
    for seed, name in enumerate(("base", "step0", "step30", "step100")):
        model = random_model(name, seed=seed)
        ranks = {f"rank/{kind}": np.full((5, n_heads), 4) for kind, n_heads in zip("OQKV", (4, 4, 2, 2), strict=True)}
        page = atlas_page(model.overlaps | ranks, model.attributes | {"model": name})
        (folder / "atlas" / f"{name}.html").write_text(page, encoding="utf-8")
    path = folder / "side_by_side.html"
    path.write_text(side_by_side_page("a & b", CHOICES, "report.html"), encoding="utf-8")
    return path


def wait(browser, condition):
    """Give it ten seconds."""
    for _ in range(100):
        settle(browser)
        if condition():
            return
    raise AssertionError(condition())


def shown(browser, side):
    """Which page a side shows, and which heads."""
    browser.switch_to.frame(side)
    try:
        found = browser.execute_script("return [document.title, location.hash]")
    finally:
        browser.switch_to.default_content()
    return found[0].split(" ")[0], found[1]


def messages(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_names_and_addresses_are_data_and_no_markup():
    page = side_by_side_page("<i>", {"</script>": {"1": "atlas/x.html"}})
    start = page.index('<script type="application/json" id="data">')
    data = page[start:].split(">", 1)[1].split("</script>")[0]
    assert json.loads(data) == [{"name": "</script>", "pages": [["1", "atlas/x.html"]]}]
    assert "<i>" not in page


def test_it_opens_on_two_models_and_a_step_is_chosen_with_a_slider(browser, file):
    messages(browser)
    show(browser, file)
    wait(browser, lambda: shown(browser, "right")[1])
    assert [shown(browser, side)[0] for side in ("left", "right")] == ["base", "step100"]
    hidden = "return [...document.querySelectorAll('.slider')].map((one) => one.hidden)"
    assert browser.execute_script(hidden) == [True, False]
    assert text(browser, "right-text") == "100"
    for place, step in ((0, "step0"), (1, "step30")):
        browser.execute_script(
            "const s = document.getElementById('right-step'); s.value = arguments[0]; s.oninput({ target: s })", place
        )
        wait(browser, lambda step=step: shown(browser, "right")[0] == step)
        assert f"step{text(browser, 'right-text')}" == step
    assert messages(browser) == []


def test_one_side_leads_the_other_to_the_same_heads_unless_told_not_to(browser, file):
    show(browser, file)
    wait(browser, lambda: shown(browser, "right")[1])

    def lead(side, address):
        time.sleep(0.6)  # a side that was led is not heard for a moment
        browser.switch_to.frame(side)
        browser.execute_script("location.hash = arguments[0]", address)
        browser.switch_to.default_content()

    lead("left", "#OQ.0.1.1.0")
    wait(browser, lambda: shown(browser, "right")[1] == "#OQ.0.1.1.0")
    lead("right", "#V.0.0.0.1")
    wait(browser, lambda: shown(browser, "left")[1] == "#V.0.0.0.1")
    browser.execute_script("document.getElementById('together').checked = false")
    lead("left", "#OK.0.0.1.0")
    wait(browser, lambda: shown(browser, "left")[1] == "#OK.0.0.1.0")
    settle(browser)
    assert shown(browser, "right")[1] == "#V.0.0.0.1"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_and_the_sides_stand_below_each_other_where_it_is_narrow(browser, file, width):
    show(browser, file, width)
    assert cut_texts(browser, width) == []
    tops = browser.execute_script(
        "return [...document.querySelectorAll('iframe')].map((one) => one.getBoundingClientRect().top)"
    )
    assert all((one < other) == (width < 700) for one, other in pairwise(tops))


def test_pages_that_open_on_other_heads_do_not_lead_each_other_for_ever(browser, file):
    """Each opens on its own strongest pair: the left one's is what both show, and then nothing moves."""
    show(browser, file)
    wait(browser, lambda: shown(browser, "left")[1] and shown(browser, "left")[1] == shown(browser, "right")[1])
    browser.execute_script("window.heard = 0; addEventListener('message', () => ++heard)")
    time.sleep(1)
    assert browser.execute_script("return heard") == 0
