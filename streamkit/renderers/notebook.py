"""`NotebookDisplay`: shows a stream in the output of a notebook's cell, in one display that is updated in place.

The rule: nothing in a stream is markup of the page, and nothing in it loads or runs anything there (`mimebundle.py`).
"""

from __future__ import annotations

import time
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..answers import Confirmation
from ..errors import UsageError
from ..events import Delta, Run, StreamRetry, StreamWarning
from ..handlers import EventHandler
from ..messages import Message
from ..mimebundle import html_of
from .wording import (
    describe_decision,
    describe_retry,
    describe_run,
    has_field_messages,
    is_shown_by_decision,
    is_shown_by_fields,
)

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = ["NotebookDisplay", "is_notebook"]

_RED, _DIM = "color: #c62828", "opacity: 0.7"


def is_notebook() -> bool:
    """Whether the program runs in the kernel of a notebook."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    shell: Any = get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class NotebookDisplay(EventHandler):
    """Shows a stream in a notebook: one output of the cell, updated in place, with text as Markdown, code, console output,
    pictures, tables and errors.

        sk.stream(source, NotebookDisplay()).until_done()

    It works in cells with `await` too. `LiveDisplay` passes a stream on to it where it runs in a notebook. To approve code put
    `streamkit.asking.Asker()` behind it: it asks with `input`, below what is shown.

    Args:
        updates_per_second: how many times a second the output is updated at most; 5 by default.
        warnings: whether to show the stream's warnings; True by default.
        errors: whether to show the error with which the stream failed; True by default. It is raised all the same.
        run_end: whether to show how each run ended and what it cost; True by default.
        for_assistant: whether to show messages of which the assistant alone is the recipient; False by default.

    Raises:
        UsageError: IPython is not installed, or `updates_per_second` is not above 0.
    """

    def __init__(
        self,
        *,
        updates_per_second: float = 5,
        warnings: bool = True,
        errors: bool = True,
        run_end: bool = True,
        for_assistant: bool = False,
    ) -> None:
        if not updates_per_second > 0:
            raise UsageError(f"updates_per_second has to be above 0, not {updates_per_second!r}")
        if find_spec("IPython") is None:
            raise UsageError("NotebookDisplay needs IPython, which a notebook's kernel has")
        self._interval = 1 / updates_per_second
        self._warnings, self._errors, self._run_end = warnings, errors, run_end
        self._for_assistant = for_assistant
        self._clear()

    def _clear(self) -> None:
        self._display: Any = None
        self._parts: list[Message | str] = []  # messages, and HTML of the rest
        self._done: dict[str, str] = {}  # the HTML of messages that do not change any more, by their ids
        self._questions: dict[str, int] = {}  # where each question is shown, by the id of its confirmation
        self._updated = 0.0

    def bind(self, stream: StreamState) -> None:
        """Begin a stream. Called by the stream."""
        super().bind(stream)
        self._clear()

    def on_message_created(self, message: Message, /) -> None:
        """Show that a message begins."""
        if message.recipient == "assistant" and not self._for_assistant:
            return
        stream = self._streamkit_live
        if not is_shown_by_decision(stream, message) and not is_shown_by_fields(stream, message):
            self._parts.append(message)

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        """Show the message so far, unless that was done just before."""
        if time.monotonic() - self._updated >= self._interval:
            self._update()

    def on_message_done(self, message: Message, /) -> None:
        """Show all of the message; of a call without field messages here for the first time."""
        stream = self._streamkit_live
        if is_shown_by_fields(stream, message) and not has_field_messages(stream, message):
            self._parts.append(message)
        self._done[message.id] = html_of(message)
        self._update()

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        """Show what is waiting, before anybody is asked."""
        self._questions[confirmation.id] = len(self._parts)
        self._add(f"May this {confirmation.subject.type} run?", _DIM)

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        """Show the decision in the place of the question."""
        place = self._questions.pop(confirmation.id, len(self._parts))
        self._parts[place : place + 1] = [_line(describe_decision(confirmation), _DIM)]
        self._update()

    def on_run_done(self, run: Run, /) -> None:
        """Show how the run ended, with `run_end`."""
        if self._run_end:
            self._add(describe_run(run), _DIM)

    def on_retry(self, retry: StreamRetry, /) -> None:
        """Remove the failed answer, and say that it begins again; where nothing of it was shown, only with `warnings`."""
        ids = {*retry.withdrawn}
        self._parts = ["" if isinstance(part, Message) and part.id in ids else part for part in self._parts]
        if ids or self._warnings:
            self._add(describe_retry(retry), _DIM)

    def on_warning(self, warning: StreamWarning, /) -> None:
        """Show the warning, with `warnings`."""
        if self._warnings:
            self._add(str(warning), _DIM)

    def on_exception(self, exception: Exception, /) -> None:
        """Show the error, with `errors`."""
        if self._errors:
            self._add(f"{type(exception).__name__}: {exception}", _RED)

    def on_end(self) -> None:
        """Show everything."""
        self._update()

    def _add(self, text: str, style: str) -> None:
        """Show a line of its own."""
        self._parts.append(_line(text, style))
        self._update()

    def _update(self) -> None:
        import IPython.display

        self._updated = time.monotonic()
        bundle = {"text/html": "".join(map(self._html, self._parts)), "text/plain": self._text()}
        first: Any = vars(IPython.display)["display"]  # which has no types
        show = first if self._display is None else self._display.update
        options = {"display_id": True} if self._display is None else {}
        self._display = show(bundle, raw=True, **options) or self._display

    def _html(self, part: Message | str) -> str:
        return part if isinstance(part, str) else self._done.get(part.id) or html_of(part)

    def _text(self) -> str:
        return "\n\n".join(part.content for part in self._parts if isinstance(part, Message) and part.type == "message")


def _line(text: str, style: str) -> str:
    return f'<div style="{style}; white-space: pre-wrap">{escape(text)}</div>'
