"""A real browser for tests of the report: headless Chromium, offline, with its console and network in view."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-unsafe-swiftshader",
    "--hide-scrollbars",
)


def missing() -> str:
    """Return why no browser can be used, or nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return "" if CHROMIUM and DRIVER else "no chromium with chromedriver is installed"


@contextmanager
def browser(width: int = 1440, height: int = 900) -> Iterator[Any]:
    """Start Chromium with an empty profile and end it afterwards."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


def open_page(driver: Any, path: Path, fragment: str = "") -> None:
    """Open a file and wait until the page says that it is ready."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get("about:blank")
    for log in ("browser", "performance"):
        driver.get_log(log)  # what the empty start page did is not ours
    driver.get(path.resolve().as_uri() + fragment)
    script = "return document.documentElement.dataset.ready === 'yes'"
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(script))


def console_errors(driver: Any) -> list[str]:
    """Return what the page complained about since the last call."""
    return [
        entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def requested_urls(driver: Any) -> list[str]:
    """Return every address that was asked for since the last call, but data and blob ones."""
    urls = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]
