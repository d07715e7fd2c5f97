"""The kinds of messages, each a class. What has no class of its own is a `Message`."""

# pyright: reportPrivateUsage=false
# A kind of message reads what a message is made of.

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from ..errors import UsageError
from .message import CLASSES, FIELDS, Annotation, Message

if TYPE_CHECKING:
    from ..answers import Answer

__all__ = [
    "AudioMessage",
    "CodeMessage",
    "ConsoleMessage",
    "FileMessage",
    "ImageMessage",
    "ReasoningMessage",
    "RefusalMessage",
    "TextMessage",
    "ToolCallMessage",
    "ToolOutputMessage",
    "output_text",
]


class TextMessage(Message):
    """Text for the reader. `value` is its content, by the name that the Assistants API used."""

    __slots__ = ("annotations",)

    def __init__(self, id: str = "", *, annotations: Sequence[Any] = (), **fields: Any) -> None:
        super().__init__(id, **fields)
        self.annotations: list[Annotation] = [
            a if isinstance(a, Annotation) else msgspec.convert(a, Annotation) for a in annotations
        ]

    @property
    def value(self) -> str:
        return self.content

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        if self.annotations:
            out["annotations"] = [msgspec.to_builtins(a) for a in self.annotations]
        return out

    @classmethod
    def fields(cls) -> frozenset[str]:
        return FIELDS | {"annotations"}

    def header(self) -> Self:
        other = super().header()
        other.annotations = []
        return other

    def copy(self) -> Self:
        other = super().copy()
        other.annotations = list(self.annotations)
        return other


class RefusalMessage(Message):
    """The model's refusal; never part of `text_deltas`."""

    __slots__ = ()
    default_format = "refusal"


class ReasoningMessage(Message):
    """Reasoning text. `format` is None, `summary`, or `redacted` (encrypted: no text)."""

    __slots__ = ()
    default_type = "reasoning"


class CodeMessage(Message):
    """Code that the assistant wrote, to be run. `format` is its language."""

    __slots__ = ()
    default_type = "code"

    @property
    def language(self) -> str | None:
        return self.format


class ConsoleMessage(Message):
    """What running code printed. `active_line` is the line (from 1) that runs now, None when none does."""

    __slots__ = ("active_line",)
    default_role = "computer"
    default_type = "console"
    default_format = "output"

    def __init__(self, id: str = "", **fields: Any) -> None:
        super().__init__(id, **fields)
        self.active_line: int | None = None

    def header(self) -> Self:
        other = super().header()
        other.active_line = None
        return other


class ImageMessage(Message):
    """An image. `format` says what the content is: `path`, `base64.png`, `base64.jpeg`, `url` or `file_id`."""

    __slots__ = ()
    default_type = "image"


class FileMessage(Message):
    """A file. `format` says what the content is: `path` or `file_id`."""

    __slots__ = ()
    default_type = "file"


class AudioMessage(Message):
    """Audio. `format` is the codec; `content` is base64 of `data`, the bytes of all pieces joined."""

    __slots__ = ("_joined",)
    default_type = "audio"

    _joined: int  # how much of the content is joined already

    @property
    def data(self) -> bytes:
        return _decode_piece(self.content)

    def _gather(self) -> None:
        """Join all that there is: what is joined already is not decoded again."""
        text = self._chunks[0]
        if len(text) != getattr(self, "_joined", -1):
            text = self._join([text])  # as it was given
        rest = self._chunks[1:]
        self._chunks.clear()
        whole = len(text) - 4 if text.endswith("=") else len(text)  # the last quantum takes what comes
        more = self._join([text[whole:], *rest])
        text = text[:whole] if whole < len(text) else text
        text += more
        self._joined = len(text)
        self._chunks.append(text)

    def replace_content(self, content: str) -> None:
        super().replace_content(content)
        self._joined = -1

    def _join(self, pieces: list[str]) -> str:
        # Each piece has padding of its own, so the text cannot be joined: the bytes can.
        return base64.b64encode(b"".join(_decode_piece(piece) for piece in pieces)).decode("ascii")


class ToolCallMessage(Message):
    """A call of a tool. `content` is the arguments' JSON text (a custom tool's input: any text).

    `provider_executed` calls run at the provider; the others want our answer, and `waiting` says whether this
    stream can take it now.
    """

    __slots__ = ("_parsed", "answer_slot", "provider_executed")
    default_type = "tool_call"

    def __init__(self, id: str = "", *, provider_executed: bool = False, **fields: Any) -> None:
        super().__init__(id, **fields)
        self.provider_executed = provider_executed
        self.answer_slot: Answer | None = None
        self._parsed: tuple[int, dict[str, Any]] = (-1, {})

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments. While they stream: the part that can be read already, brought up to date each time the
        text has grown by an eighth (so that reading it on every delta stays linear). Text that is no JSON object
        gives {}."""
        count, parsed = self._parsed
        pieces = self.delta_count
        if self.status == "in_progress" and pieces < count + (count >> 3) + 1:
            return parsed
        if pieces != count:
            parsed = _parse_arguments(self.content, partial=self.status != "completed")
            self._parsed = (pieces, parsed)
        return parsed

    @property
    def waiting(self) -> bool:
        """Whether `respond` would be heard."""
        return self.answer_slot is not None and self.answer_slot.open

    def respond(self, output: object) -> None:
        """Give the call's output: a str, any value that JSON can hold, or (async streams) an awaitable of one, which
        runs beside the stream. Thread-safe; the first answer wins.

        Raises:
            UsageError: this stream takes no answer, the call has one already, or JSON cannot hold the output.
        """
        asked = self._asked()
        if not inspect.isawaitable(output):
            output = output_text(output)
        asked.give(output)

    def defer(self, timeout: float | None = None) -> None:
        """Say that the output comes later, from any thread, in at most `timeout` seconds: the stream waits for it.
        When another thread has responded already, it does nothing."""
        self._asked().defer(timeout)

    def _asked(self) -> Answer:
        if self.answer_slot is None:
            raise UsageError(
                f"tool call {self.call_id or self.id!r} wants no answer here: "
                + ("its provider runs it" if self.provider_executed else "the stream has no `then=` to take it on")
            )
        return self.answer_slot

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        if self.provider_executed:
            out["provider_executed"] = True
        return out

    @classmethod
    def fields(cls) -> frozenset[str]:
        return FIELDS | {"provider_executed"}

    def header(self) -> Self:
        other = super().header()
        other.provider_executed = self.provider_executed
        other.answer_slot = None
        other._parsed = (-1, {})
        return other


class ToolOutputMessage(Message):
    """What a tool gave. `call_id` names the call."""

    __slots__ = ()
    default_role = "computer"
    default_type = "tool_output"


CLASSES.update(
    {
        "message": TextMessage,
        "message/refusal": RefusalMessage,
        "reasoning": ReasoningMessage,
        "code": CodeMessage,
        "console": ConsoleMessage,
        "image": ImageMessage,
        "file": FileMessage,
        "audio": AudioMessage,
        "tool_call": ToolCallMessage,
        "tool_output": ToolOutputMessage,
    }
)


_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]+")


def output_text(output: object) -> str:
    """A tool's output as text: a str as it is, any other value as JSON.

    Raises:
        UsageError: JSON cannot hold it.
    """
    try:
        if isinstance(output, str):
            output.encode("utf-8")
            return output
        return msgspec.json.encode(output, enc_hook=_plain).decode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a tool's output is text or what JSON can hold, not {type(output).__name__}: {error}"
        ) from error


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        raise TypeError(f"{value!r} is no JSON value")
    return dump(mode="json")


def _decode_piece(piece: str) -> bytes:
    """The bytes of one base64 piece; what is left over of an incomplete last quantum is dropped, and what is no
    base64."""
    text = piece.rstrip("=")
    if _NO_BASE64.search(text):
        text = _NO_BASE64.sub("", text)
    if len(text) % 4 == 1:
        text = text[:-1]
    return base64.b64decode(text + "=" * (-len(text) % 4))


def _parse_arguments(text: str, *, partial: bool) -> dict[str, Any]:
    import jiter  # used here alone, and not by streams that never ask

    try:
        value = jiter.from_json(text.encode("utf-8", "replace"), partial_mode="trailing-strings" if partial else "off")
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}  # the keys of JSON are str
