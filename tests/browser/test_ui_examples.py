"""The examples for user interfaces, built by Vite and driven in Chromium: useChat of `ai` 7, and AG-UI's client.

`npm install --prefix examples/react-usechat` and the same for `ag-ui` bring what they need; or STREAMKIT_UI_EXAMPLES names a
folder that has both, installed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from .pages import CHROMIUM, until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
INSTALLED = Path(os.environ.get("STREAMKIT_UI_EXAMPLES", EXAMPLES))
NAMES = ("react-usechat", "ag-ui")
MISSING = [name for name in NAMES if not (INSTALLED / name / "node_modules" / "vite").exists()]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed by npm in {INSTALLED}: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds an example, once. Returns the folder with the page."""

    @functools.cache
    def dist(name: str) -> Path:
        folder = tmp_path_factory.mktemp("examples") / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
        modules = (INSTALLED / name / "node_modules").resolve()
        (folder / "node_modules").symlink_to(modules)
        vite = [modules / "node" / "bin" / "node", modules / "vite" / "bin" / "vite.js", "build"]
        built = subprocess.run(vite, cwd=folder, capture_output=True, text=True, timeout=300)
        assert built.returncode == 0, built.stdout + built.stderr
        return folder / "dist"

    return dist


@pytest.fixture(scope="module")
def address(request: Any, build: Callable[[str], Path]) -> Generator[str]:
    """That of the example whose name is the test's parameter, built and served."""
    command = [sys.executable, str(EXAMPLES / "_ui_server.py"), str(build(request.param))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.communicate(timeout=300)


@pytest.fixture
def page(context: Any, address: str) -> Generator[Any]:
    """The example's page; at the end without an error in the console."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" and "404" not in one.text else None)
    page.goto(address)
    page.wait_for_selector("form input")
    yield page
    assert faults == []


def say(page: Any, text: str) -> None:
    """Send a message, once the page takes one: it does not while a run goes on."""
    page.wait_for_selector("text=Send")
    page.fill("form input", text)
    page.keyboard.press("Enter")


def wait(page: Any, text: str) -> None:
    page.wait_for_selector(f"text={text}", timeout=60_000)


@pytest.mark.parametrize("address", ["react-usechat"], indirect=True)
def test_use_chat_sends_the_answer_to_one_question_of_two(page: Any) -> None:
    """The agent asks the second after the first code has run. A declined call is one after a reload, too."""
    say(page, "Do it twice.")
    button(page, "Run").click()
    page.wait_for_selector(".output")
    button(page, "Decline").click()
    wait(page, "The code printed Not run")
    states = ["output-available", "output-denied"]
    assert [one.get_attribute("data-state") for one in page.locator(".call").all()] == states
    page.reload()
    wait(page, "The code printed Not run")
    assert [one.get_attribute("data-state") for one in page.locator(".call").all()] == states


@pytest.mark.parametrize("address", ["react-usechat"], indirect=True)
def test_use_chat_approves_declines_stops_and_goes_on_after_a_reload(page: Any) -> None:
    say(page, "Add the numbers up to 100.")
    page.click("text=Run")
    wait(page, "The code printed 5050.")
    assert page.locator(".call .output", has_text="5050").count() == 1
    assert page.locator("article.user").count() == 1
    say(page, "Once more.")
    page.click("text=Decline")
    wait(page, "The code printed Not run")
    say(page, "slow please")
    wait(page, "word10 word11")
    page.reload()
    wait(page, "word20 word21")
    assert page.locator("article.user").count() == 3
    until(lambda: page.locator("article.assistant").last.inner_text().endswith("word59"), page)
    words = page.locator("article.assistant").last.inner_text().split()
    assert words == [f"word{number}" for number in range(60)], "nothing is lost, and nothing comes twice"
    say(page, "slow again")
    wait(page, "word10 word11")
    page.click("text=Stop")
    page.wait_for_selector("text=Send")
    assert "word59" not in page.locator("article.assistant").last.inner_text()


@pytest.mark.parametrize("address", ["ag-ui"], indirect=True)
def test_the_ag_ui_client_is_interrupted_and_resumes(page: Any) -> None:
    say(page, "Add the numbers up to 100.")
    page.click("text=Run")
    wait(page, "The code printed 5050.")
    assert "print(sum(range(101)))" in page.inner_text(".call")
    assert page.locator("article.tool", has_text="5050").count() == 1
    say(page, "Once more.")
    page.click("text=Decline")
    wait(page, "The code printed Not run")
    assert page.locator("article.user").count() == 2
    assert page.is_hidden("#problem")
    say(page, "Do it twice.")
    button(page, "Run").click()
    until(lambda: page.locator("article.tool", has_text="5050").count() == 2, page)
    button(page, "Run").click()
    until(lambda: page.locator("article.tool", has_text="5050").count() == 3, page)


@pytest.mark.parametrize("address", ["ag-ui"], indirect=True)
def test_a_page_of_ag_ui_goes_on_after_a_reload(page: Any) -> None:
    """At a question, which a message takes the place of, and in mid-answer; Stop ends the run."""
    say(page, "Add the numbers up to 100.")
    button(page, "Decline").wait_for()
    page.reload()
    button(page, "Decline").wait_for()
    say(page, "slow please")
    wait(page, "word10 word11")
    page.reload()
    wait(page, "word20 word21")
    assert page.locator("article.user").count() == 2
    until(lambda: page.locator("article.assistant").last.inner_text().endswith("word59"), page)
    words = page.locator("article.assistant").last.inner_text().split()
    assert words == [f"word{number}" for number in range(60)], "nothing is lost, and nothing comes twice"
    say(page, "slow again")
    until(lambda: page.locator("article.assistant", has_text="word10 word11").count() == 2, page)
    button(page, "Stop").click()
    page.wait_for_selector("text=Send")
    assert "word59" not in page.locator("article.assistant").last.inner_text()
    assert page.is_hidden("#problem")


def button(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)
