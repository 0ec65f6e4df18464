"""A headless Chromium for tests; without one they are skipped, and say how to get it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def open_browser(folder: Path, width: int = 1200, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Starts a browser with a profile of its own in `folder`; yields selenium's driver."""
    path, driver_path = require_browser()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = path
    profile = folder / "browser"
    profile.mkdir(parents=True, exist_ok=True)
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        view(driver, width, height, dark)
        yield driver
    finally:
        driver.quit()


def view(driver: Any, width: int, height: int, dark: bool = False) -> None:
    """Sets the size of the page's window and its colour scheme."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = "dark" if dark else "light"
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def screenshot(driver: Any, path: Path, whole: bool = True) -> None:
    """Writes a picture of the window, or of the whole page."""
    import base64

    data = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data["data"]))


def errors(driver: Any) -> list[str]:
    """What the page wrote on the console as an error."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
