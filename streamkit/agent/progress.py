"""Progress: what a tool reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["current_progress", "progress"]

current_progress: ContextVar[Callable[[str], None] | None] = ContextVar("current_progress", default=None)
"""Where `progress` sends its text: set for each tool call, in the context that the tool runs in. Internal."""


def progress(text: str) -> None:
    """Report from inside a tool how far it is. Works in any thread or task that the tool runs in.

    The text reaches `on_tool_output_delta` at once. The model never sees it: when the tool returns, a delta with
    `replace` puts the returned value in its place. Outside of an agent's tool this does nothing, so a function that
    calls it can be used anywhere.

        def download(urls: list[str]) -> str:
            for number, url in enumerate(urls, 1):
                fetch(url)
                progress(f"{number} of {len(urls)}\\n")
            return "done"

    Args:
        text: added to the progress reported so far; "" reports nothing.

    Raises:
        Stopped: the stream was closed or cancelled. This is a `BaseException`; leave it alone, so that the tool ends.
    """
    report = current_progress.get()
    if report is not None and text:
        report(text)
