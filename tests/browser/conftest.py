"""What the tests in Chromium share: the browser; in a module, a server and a page."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from .pages import CHROMIUM, FLAGS, Proxy, Tab, new_context, served


@pytest.fixture(scope="package")
def browser() -> Generator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def proxy(folder: Path) -> Generator[Proxy]:
    with served(folder) as proxy:
        yield proxy


@pytest.fixture
def context(browser: Any) -> Generator[Any]:
    context = new_context(browser)
    yield context
    context.close()


@pytest.fixture
def own_tab(context: Any, proxy: Proxy) -> Generator[Tab]:
    """A page that was just opened, for tests that would leave it otherwise than they found it."""
    tab = Tab(context, proxy.address)
    yield tab
    assert tab.faults == []


@pytest.fixture(scope="module")
def open_tabs(browser: Any) -> Generator[list[Tab]]:
    """The page that tests share, unless one of them failed and left it in disorder."""
    tabs: list[Tab] = []
    yield tabs
    for tab in tabs:
        tab.page.context.close()


@pytest.fixture
def tab(browser: Any, proxy: Proxy, open_tabs: list[Tab]) -> Generator[Tab]:
    """A page with a new chat, which tests share: to open one takes longer than what most of them do in it."""
    tab = open_tabs.pop() if open_tabs else Tab(new_context(browser), proxy.address)
    tab.begin()
    yield tab
    if tab.is_at_rest():
        open_tabs.append(tab)
    else:
        tab.page.context.close()
    assert tab.faults == []
