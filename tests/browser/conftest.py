"""What the tests in Chromium share: the browser, and a server for each module."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .pages import CHROMIUM, FLAGS, TOKEN, Proxy, Tab, served


@pytest.fixture(scope="package")
def browser() -> Generator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def proxy(folder: Any) -> Generator[Proxy]:
    with served(folder) as proxy:
        yield proxy


@pytest.fixture
def context(browser: Any) -> Generator[Any]:
    # What pulses would be drawn sixty times a second, as long as an answer goes on.
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture(scope="module")
def shared_tab(browser: Any, proxy: Proxy) -> Generator[Tab]:
    context = browser.new_context(reduced_motion="reduce")
    yield Tab(context, f"{proxy.url}/#token={TOKEN}")
    context.close()


@pytest.fixture
def modules(shared_tab: Tab) -> Generator[Tab]:
    """A page, one for each module, of tests that only evaluate what the page's modules do, and leave it as it is."""
    shared_tab.faults.clear()
    yield shared_tab
    assert shared_tab.faults == []


@pytest.fixture
def tab(context: Any, proxy: Proxy) -> Generator[Tab]:
    tab = Tab(context, f"{proxy.url}/#token={TOKEN}")
    yield tab
    assert tab.faults == []
