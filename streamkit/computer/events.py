"""What a run told, as canonical events.

Console output is one message until something else is displayed; each display is a message of its own. A run that
showed nothing has one empty console message, so that every run can be seen, once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..events import ActiveLine, Event
from ..messages import CodeMessage, ConsoleMessage, ImageMessage, Message, Status
from .output_queue import Piece, Told

__all__ = ["Telling"]

# The form of a display that is shown, the first that there is; as its message's class and format, or as text.
_FORMS: tuple[tuple[str, type[Message] | None, str], ...] = (
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
_NO_TEXT = re.compile(r"<[^\n]*>\Z")  # what objects are called that have no text of their own


class Telling:
    """The events of one run.

    Args:
        id: of its first message; those after it have it with a number.
    """

    def __init__(self, id: str, call_id: str | None) -> None:
        self._base = id
        self._call_id = call_id
        self._number = 1
        self._console: ConsoleMessage | None = None
        self._line: int | None = None
        self._line_told = False  # in the console that is open or comes next
        self._shown = False

    @property
    def _id(self) -> str:
        return self._base if self._number == 1 else f"{self._base}.{self._number}"

    def events(self, told: Iterable[Piece | Told]) -> Iterator[Event]:
        for item in told:
            if isinstance(item, Piece):
                yield from self._text(item.stream, "".join(item.parts))
            elif item.kind == "line":
                yield from self._at(item.data)
            elif item.kind == "display":
                yield from self._display(item.data)
            else:
                yield from self._text("stderr", item.data)

    def end(self, status: Status, *, ran: bool = True) -> Iterator[Event]:
        """The run is over. `ran` is whether anything ran at all."""
        if not self._shown and self._console is None:
            yield from self._open()
        if ran:
            yield ActiveLine(self._id, None)
        yield from self._close(status)

    def _at(self, line: int) -> Iterator[Event]:
        self._line = line
        self._line_told = True
        yield ActiveLine(self._id, line)

    def _open(self) -> Iterator[Event]:
        if self._line is not None and not self._line_told:
            yield from self._at(self._line)
        self._console = console = ConsoleMessage(self._id, call_id=self._call_id)
        yield console.created_event(console)

    def _close(self, status: Status = "completed") -> Iterator[Event]:
        console, self._console = self._console, None
        if console is not None:
            yield console.done_event(ConsoleMessage(console.id, call_id=self._call_id, status=status))
        if console is not None or self._line_told:
            self._number += 1
            self._line_told = False

    def _text(self, stream: str, text: str) -> Iterator[Event]:
        if self._console is None:
            yield from self._open()
        yield ConsoleMessage.delta_event(self._id, text, metadata={"stream": stream})

    def _display(self, data: Mapping[str, Any]) -> Iterator[Event]:
        for type, kind, format in _FORMS:
            if (value := data.get(type)) is None:
                continue
            if kind is None:
                yield from self._text("stdout", _readable(value) + "\n")
                return
            yield from self._close()
            yield from self._shown_as(kind, format, value, data.get("text/plain"))
            return

    def _shown_as(self, kind: type[Message], format: str, value: Any, plain: Any) -> Iterator[Event]:
        text = value if isinstance(value, str) else json.dumps(value)
        content = re.sub(r"\s", "", text) if kind is ImageMessage else text
        metadata = {"text": plain} if isinstance(plain, str) and not _NO_TEXT.match(plain) else {}
        message = kind(self._id, role="computer", format=format, call_id=self._call_id, metadata=metadata)
        self._number += 1
        self._shown = True
        yield message.created_event(message)
        if content:
            yield message.delta_event(message.id, content)
        yield message.done_event(message)


def _readable(value: Any) -> str:
    """Text as it is; what is no text as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
