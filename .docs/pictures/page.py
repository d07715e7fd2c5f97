"""Draws page.png: what `streamkit serve` shows in a browser once the first question that it offers has its answer.

    python .docs/pictures/page.py

It needs chromium, playwright and matplotlib, which the extra `test` brings.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
SIZE = {"width": 1100, "height": 1190}


def main() -> None:
    """Serve, ask, approve, and take the picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "streamkit", "serve", "--fast", "--offline"]
        command += ["--data", f"{folder}/conversations.sqlite"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                browser = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=["--no-sandbox"]
                )
                page = browser.new_page(viewport=SIZE)
                assert server.stdout is not None
                found = re.search(r"http://\S+", server.stdout.readline())
                assert found is not None
                show(page, found[0])
                page.screenshot(path=HERE / "page.png")
            finally:
                server.terminate()
    print(HERE / "page.png")


def show(page: Page, address: str) -> None:
    """Ask the first question, let the code run, and scroll to the code."""
    page.goto(address)
    page.locator(".suggestions button").first.click()
    page.get_by_role("button", name=re.compile("^Run")).click()
    page.get_by_text("I am a scripted model").wait_for()
    page.get_by_role("img").last.wait_for()
    page.locator("#scroller").evaluate("scroller => scroller.scrollTo(0, 0)")
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
