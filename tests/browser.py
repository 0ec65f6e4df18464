"""A headless Chromium for tests, one for all of a process; without one they are skipped, and say
how to get it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip


def require_browser() -> tuple[str, str]:
    """Returns the paths of browser and driver, or skips the test."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no headless browser: apt-get install -y chromium chromium-driver")
    pytest.importorskip("selenium", reason="no browser driver: pip install selenium")
    return browser, driver


# Of this process, once there is one: to start it takes as long as most tests of a page.
_started: list[Any] = []


@contextmanager
def open_browser(width: int = 1200, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Yields selenium's driver of the browser on an empty page, without what other pages have
    said.
    """
    if not _started or not _is_alive(_started[0]):
        close()
        _started.append(_start())
    (driver,) = _started
    driver.get("about:blank")
    driver.get_log("browser")
    view(driver, width, height, dark)
    yield driver


def close() -> None:
    while _started:
        with suppress(Exception):  # its driver may have died
            _started.pop().quit()


def _is_alive(driver: Any) -> bool:
    with suppress(Exception):
        return driver.current_url is not None
    return False


def _start() -> Any:
    path, driver_path = require_browser()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = path
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver_path))


def view(driver: Any, width: int, height: int, dark: bool = False) -> None:
    """Sets the size of the page's window and its colour scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def screenshot(driver: Any, path: Path, whole_page: bool = True) -> None:
    """Writes a picture of the window, or of the whole page."""
    import base64

    data = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole_page}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data["data"]))


def errors(driver: Any) -> list[str]:
    """What the page wrote on the console as an error."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def rows(driver: Any, table: str) -> list[list[str]]:
    """The texts of the cells of a table's rows that are shown."""
    return driver.execute_script(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows].filter(r => !r.hidden)"
        ".map(r => [...r.cells].map(c => c.innerText))",
        table,
    )


def check_look(driver: Any, picture: Path, width: int, dark: bool, contrast: float = 4.5) -> None:
    """Fails where the page is wider than a window of `width`, hard to read or broken; leaves a
    picture of it.
    """
    view(driver, width, 900, dark)
    screenshot(driver, picture)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    worst = driver.execute_script(_CONTRAST)
    assert worst["ratio"] >= contrast, worst
    assert picture.stat().st_size > 20_000
    assert errors(driver) == []


# The lowest contrast (WCAG 2.1) of visible text against the first opaque background behind it, and
# which text it is.
_CONTRAST = """
const parse = (c) => { const n = (c.match(/[\\d.]+/g) || []).map(Number); return c.startsWith("color(") ? n.map((v, i) => i < 3 ? v * 255 : v) : n; };
const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
let worst = { ratio: 99 };
for (const e of document.querySelectorAll("p,td,th button,h1,h2,h3,a,figcaption,summary,.tile div,.legend span,svg text,small,label,.controls button,.scale span,.moments span,#screen span,.token")) {
  if (!e.textContent.trim() || !e.getClientRects().length) continue;
  const style = getComputedStyle(e);
  const ink = parse(e instanceof SVGElement ? style.fill : style.color);
  let p = e, back = null;
  while (p && !back) { const c = parse(getComputedStyle(p).backgroundColor); if (c.length === 3 || c[3] === 1) back = c; p = p.parentElement; }
  const [a, b] = [light(ink), light(back || [255, 255, 255])].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < worst.ratio) worst = { ratio, text: e.textContent.slice(0, 60), tag: e.tagName, ink, back };
}
return worst;
"""
