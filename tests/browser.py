"""A real Chromium for the tests of pages, and Node for those of their scripts."""

import shutil
from pathlib import Path
from typing import cast

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.remote_connection import RemoteConnection

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
)


def installed(*names: str) -> str:
    """The path of the first of these programs that is there."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.fail(
        f"None of {', '.join(names)} is installed. On Debian or Ubuntu: apt-get install chromium "
        'chromium-driver nodejs. Or leave the tests of pages out: pytest -m "not browser".'
    )


def open_browser(profile: Path) -> webdriver.Chrome:
    """Chromium without a window; what pages write to its console can be read."""
    options = webdriver.ChromeOptions()
    options.binary_location = installed("chromium", "chromium-browser", "google-chrome")
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(installed("chromedriver")))
    # A busy machine is no fault of the page.
    connection = cast(RemoteConnection, browser.command_executor)
    connection.client_config.timeout = 600
    browser.set_script_timeout(300)
    return browser
