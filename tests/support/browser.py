"""A real browser for the tests of pages: how the fixture ``browser`` opens it, and what tests do with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def open_browser() -> Iterator[Any]:
    """Debian's chromium without a window; the test is skipped where it is not."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    service = shutil.which("chromedriver")
    if not program or not service:
        pytest.skip("no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield driver
    driver.quit()


def show(browser: Any, file: Path, width: int = 1280, place: str = "", scheme: str = "light") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")
    browser.get(f"file://{file}{place}")
    settle(browser)


def settle(browser: Any) -> None:
    """Wait until the layout and the observers that redraw for it are done."""
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 60));")


def text(browser: Any, name: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", name))


def press(browser: Any, name: str, *keys: str) -> None:
    browser.execute_script("document.getElementById(arguments[0]).focus()", name)
    for key in keys:
        for step in ("keyDown", "keyUp"):
            browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": step, "key": key, "code": key})


def cut_texts(browser: Any, width: int, scrolling: str = "") -> list[Any]:
    """Return the elements that stick out of the page, of their own box or of their figure.

    What is inside a box of the class ``scrolling`` may be wider than the page.
    """
    browser.execute_script("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    settle(browser)
    cut: list[Any] = browser.execute_script(
        """
      const cut = [], scrolling = arguments[1], wide = document.documentElement.scrollWidth;
      if (wide > arguments[0]) cut.push(["page", wide]);
      for (const node of document.querySelectorAll("body *")) {
        if (node.closest("script, style, noscript, #tip, option") || !node.getClientRects().length) continue;
        const box = node.getBoundingClientRect();
        const isText = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        const mayScroll = scrolling && node.parentElement.closest(`.${scrolling}`);
        const isOutside = box.left < -0.5 || box.right > innerWidth + 0.5;
        if (isOutside && !mayScroll) cut.push([node.tagName, node.id, "outside"]);
        else if (isText && !(node instanceof SVGElement) && node.scrollWidth > node.clientWidth + 1 && node.clientWidth)
          cut.push([node.tagName, node.id, node.textContent, "overflows"]);
        if (node.tagName === "text") {
          const frame = node.ownerSVGElement.getBoundingClientRect();
          if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
            cut.push(["text", node.textContent, "outside its figure"]);
        }
      }
      return cut;
    """,
        width,
        scrolling,
    )
    return cut


def is_dark(browser: Any) -> bool:
    """Whether the page's background is dark."""
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", background)[:3]) / 3 < 60
