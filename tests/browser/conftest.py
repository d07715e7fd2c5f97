"""What the tests in Chromium share: the browser, one for each module."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .pages import CHROMIUM, FLAGS


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
