"""The output of a run as canonical events.

Console output is one message until something else is displayed; each display is a message of its own. A run that
printed and displayed nothing has one empty console message, so every run is visible exactly once.

A console message that is done has the places that went to stderr in `message.metadata["stderr"]`: a list of `[start, end]` in
characters of its content, 1,000 at most, for who sees only messages.

A displayed image or document has its plain text, where there is one, in `message.metadata["text"]`: what a model reads that
takes no images, and a terminal that cannot show them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..events import ActiveLine, Event
from ..html_text import html_to_text
from ..messages import CodeMessage, ConsoleMessage, ImageMessage, Message, Status
from .background_run import ExecutionStatus
from .output_queue import ActiveLineOutput, DisplayOutput, NoteOutput, OutputItem, TextOutput

__all__ = ["RunEvents"]

# Of a displayed value the first of these MIME types is shown: as a message of this class and format, or as console text.
_REPRESENTATIONS: tuple[tuple[str, type[Message] | None, str], ...] = (
    ("image/png", ImageMessage, "base64.png"),
    ("image/jpeg", ImageMessage, "base64.jpeg"),
    ("text/html", CodeMessage, "html"),
    ("image/svg+xml", CodeMessage, "html"),
    ("application/javascript", CodeMessage, "javascript"),
    ("application/json", None, ""),
    ("text/markdown", None, ""),
    ("text/latex", None, ""),
    ("text/plain", None, ""),
)
_MOST_PLACES = 1000  # of stderr, in a console message
_DEFAULT_REPR = re.compile(r"<[^\n]*>\Z")  # that of an object without a `__repr__` of its own


class RunEvents:
    """Turns the output of one run into events.

    Args:
        id: the id of the first message; those after it get it with a number, as `id.2`.
        call_id: the id of the tool call that the code came from, for all messages; None without one.
    """

    def __init__(self, id: str, call_id: str | None) -> None:
        self._first_id = id
        self._call_id = call_id
        self._number = 1
        self._console: ConsoleMessage | None = None
        self._length = 0  # characters of the console message that is open
        self._stderr: list[list[int]] = []  # its places that went to stderr
        self._line: int | None = None
        self._line_emitted = False  # for the console message that is open, or that opens next
        self._displayed = False

    @property
    def _id(self) -> str:
        return self._first_id if self._number == 1 else f"{self._first_id}.{self._number}"

    def convert(self, items: Iterable[OutputItem]) -> Iterator[Event]:
        """Yield the events of the next output."""
        for item in items:
            match item:
                case TextOutput():
                    yield from self._text(item.stream, "".join(item.parts))
                case ActiveLineOutput():
                    yield from self._active_line(item.line)
                case DisplayOutput():
                    yield from self._display(item.data)
                case NoteOutput():
                    yield from self._text("stderr", item.text)

    def finish(self, status: Status, execution: ExecutionStatus, *, ran: bool = True) -> Iterator[Event]:
        """Yield the last events of the run.

        Args:
            status: of the console message that is open.
            execution: of the run: where it is not `completed`, that message has it as `metadata["execution"]`, so that
                who sees only messages can show that code failed.
            ran: whether the code began.
        """
        if not self._displayed and self._console is None:
            yield from self._open_console()
        if ran:
            yield ActiveLine(self._id, None)
        yield from self._close_console(status, {} if execution == "completed" else {"execution": execution})

    def _active_line(self, line: int) -> Iterator[Event]:
        self._line = line
        self._line_emitted = True
        yield ActiveLine(self._id, line)

    def _open_console(self) -> Iterator[Event]:
        if self._line is not None and not self._line_emitted:
            yield from self._active_line(self._line)
        self._length, self._stderr = 0, []
        self._console = console = ConsoleMessage(self._id, call_id=self._call_id)
        yield console.created_event(console)

    def _close_console(
        self, status: Status = "completed", metadata: Mapping[str, Any] | None = None
    ) -> Iterator[Event]:
        console, self._console = self._console, None
        if console is not None:
            fields = {**({"stderr": self._stderr} if self._stderr else {}), **(metadata or {})}
            ended = ConsoleMessage(console.id, call_id=self._call_id, status=status, metadata=fields)
            yield console.done_event(ended)
        if console is not None or self._line_emitted:  # the id is used
            self._number += 1
            self._line_emitted = False

    def _text(self, stream: str, text: str) -> Iterator[Event]:
        if self._console is None:
            yield from self._open_console()
        start, self._length = self._length, self._length + len(text)
        if stream == "stderr" and text:
            self._add_stderr(start, self._length)
        yield ConsoleMessage.delta_event(self._id, text, metadata={"stream": stream})

    def _add_stderr(self, start: int, end: int) -> None:
        if self._stderr and self._stderr[-1][1] == start:
            self._stderr[-1][1] = end
        elif len(self._stderr) < _MOST_PLACES:
            self._stderr.append([start, end])

    def _display(self, data: Mapping[str, Any]) -> Iterator[Event]:
        for mime_type, kind, format in _REPRESENTATIONS:
            if (value := data.get(mime_type)) is None:
                continue
            if kind is None:
                yield from self._text("stdout", _readable(value) + "\n")
                return
            yield from self._close_console()
            yield from self._display_message(kind, mime_type, format, value, data.get("text/plain"))
            return

    def _display_message(
        self, kind: type[Message], mime_type: str, format: str, value: Any, plain: Any
    ) -> Iterator[Event]:
        text = value if isinstance(value, str) else json.dumps(value)
        content = re.sub(r"\s", "", text) if kind is ImageMessage else text
        readable = plain if isinstance(plain, str) and not _DEFAULT_REPR.match(plain) else ""
        if not readable and mime_type == "text/html":
            readable = html_to_text(text)
        metadata = {"text": readable} if readable else {}
        message = kind(self._id, role="computer", format=format, call_id=self._call_id, metadata=metadata)
        self._number += 1
        self._displayed = True
        yield message.created_event(message)
        if content:
            yield message.delta_event(message.id, content)
        yield message.done_event(message)


def _readable(value: Any) -> str:
    """Return a string unchanged, any other JSON value indented."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
