"""The kinds of messages, each a class. A message of any other type is a plain `Message`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Self, cast

import msgspec

from ..errors import UsageError
from .answer import Answer
from .arguments import read_arguments
from .json_text import has_surrogates, well_formed
from .message import CLASSES, FIELDS, Annotation, Message
from .typed_json import converter

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


_as_annotation = converter(Annotation)


class TextMessage(Message):
    """Text for the reader.

    Attributes:
        annotations: the citations in the text, in the order of their arrival.
    """

    __slots__ = ("annotations",)

    def __init__(self, id: str = "", *, annotations: Sequence[Any] = (), **fields: Any) -> None:
        super().__init__(id, **fields)
        self.annotations: list[Annotation] = (
            [a if isinstance(a, Annotation) else _as_annotation(a) for a in annotations] if annotations else []
        )

    @property
    def value(self) -> str:
        """The same as `content`, by the name that the Assistants API used."""
        return self.content

    def to_dict(self) -> dict[str, Any]:
        """As `Message.to_dict`, with `annotations`."""
        out = super().to_dict()
        if self.annotations:
            out["annotations"] = [msgspec.to_builtins(a) for a in self.annotations]
        return out

    @classmethod
    def fields(cls) -> frozenset[str]:
        """Return the keys that the static form of such a message can have."""
        return FIELDS | {"annotations"}

    def header(self) -> Self:
        """Return the same message before its first delta."""
        other = super().header()
        other.annotations = []
        return other

    def copy(self) -> Self:
        """Return a copy that does not change when this message grows."""
        other = super().copy()
        other.annotations = list(self.annotations)
        return other


class RefusalMessage(Message):
    """The model's refusal of the request. `text_deltas` of a stream leaves it out."""

    __slots__ = ()
    default_format = "refusal"


class ReasoningMessage(Message):
    """The model's reasoning. `format` is None, `summary`, or `redacted`: encrypted, without text."""

    __slots__ = ()
    default_type = "reasoning"


class CodeMessage(Message):
    """Code that the assistant wrote to be run. `format` is its language."""

    __slots__ = ()
    default_type = "code"

    @property
    def language(self) -> str | None:
        """The same as `format`: the code's language, None if it is not known."""
        return self.format


class ConsoleMessage(Message):
    """The output of running code.

    Attributes:
        active_line: the line of the code that runs now, counted from 1; None when none does.
    """

    __slots__ = ("active_line",)
    default_role = "computer"
    default_type = "console"
    default_format = "output"

    def __init__(self, id: str = "", **fields: Any) -> None:
        super().__init__(id, **fields)
        self.active_line: int | None = None

    def header(self) -> Self:
        """Return the same message before its first delta."""
        other = super().header()
        other.active_line = None
        return other


class ImageMessage(Message):
    """An image. `format` says what the content is: `path`, `base64.png`, `base64.jpeg`, `url` or `file_id`."""

    __slots__ = ()
    default_type = "image"


class FileMessage(Message):
    """A file. `format` says what the content is: `path`, `file_id`, `url`, or `base64.pdf` and its like."""

    __slots__ = ()
    default_type = "file"


class AudioMessage(Message):
    """Audio. `format` is the codec; `content` is base64 of `data`, the bytes of all pieces joined."""

    __slots__ = ("_joined",)
    default_type = "audio"

    _joined: int  # the length of the content that is joined already

    @property
    def data(self) -> bytes:
        """The audio's bytes so far, decoded from `content`."""
        return _decode_piece(self.content)

    def compact(self) -> int:
        """Add the pieces to the content, and drop them."""
        _ = self.content
        return super().compact()

    def _add(self, pieces: list[str]) -> None:
        """Add pieces to what is joined, which is not decoded again."""
        text = self._text
        if text and len(text) != getattr(self, "_joined", -1):
            text = _joined([text])
        # Four characters stand for three bytes. A last quantum with padding is encoded again together with what follows.
        end = len(text) - 4 if text.endswith("=") else len(text)
        more = _joined([text[end:], *pieces])
        self._text = ""
        text = text[:end] if end < len(text) else text
        text += more
        self._text, self._joined = text, len(text)

    def replace_content(self, content: str) -> None:
        """Replace all content. For the engine."""
        super().replace_content(content)
        self._joined = -1


class ToolCallMessage(Message):
    """A call of a tool. `name` is the tool, `content` the arguments' JSON text (of a custom tool: any text).

    Where `waiting` is true, answer with `respond(output)`, or call `defer()` and respond later.

    Attributes:
        provider_executed: whether the provider runs the tool itself and takes no answer.
        answer_slot: where the output is put; None if the stream takes none. For streamkit itself.
    """

    __slots__ = ("answer_slot", "provider_executed")
    default_type = "tool_call"

    def __init__(self, id: str = "", *, provider_executed: bool = False, **fields: Any) -> None:
        super().__init__(id, **fields)
        self.provider_executed = provider_executed
        self.answer_slot: Answer | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments; {} if the content is not a JSON object.

        While they stream it is what has come of them, exactly: a live dict that grows in place when this is read, and {} before it
        begins. Reading it at every delta takes linear time in all.
        """
        held: Any = self._json
        if isinstance(held, dict):
            return cast("dict[str, Any]", held)
        read = None if held is None and self.status == "completed" else self._live_arguments()
        if self.status == "completed":
            whole = read_arguments(self.content) or {}
            read = read if read == whole else whole
            self._json = read
        return read or {}

    def _live_arguments(self) -> dict[str, Any] | None:
        from .json_tree import JsonTree  # only where arguments are read while they stream

        held: Any = self._json  # read once: another thread may put the whole arguments in the place of the tree
        if held is None:
            held = self._json = JsonTree()
        if isinstance(held, JsonTree):
            held.advance(self.content)
            held = held.value
        return cast("dict[str, Any]", held) if isinstance(held, dict) else None

    @property
    def malformed(self) -> bool:
        """Whether the call is complete, but its content is not the JSON object that its arguments should be.

        `arguments` then is {}, or of a call that was cut short what could be read of it: a tool whose parameters all have
        defaults would run with those. No content at all stands for no arguments.
        """
        is_over = self.status != "in_progress" and self.metadata.get("custom") is not True
        return is_over and bool(self.content.strip()) and read_arguments(self.content) is None

    @property
    def waiting(self) -> bool:
        """Whether the stream would take an output now."""
        return self.answer_slot is not None and self.answer_slot.open

    def respond(self, output: object) -> None:
        """Answer the call with the tool's output. Thread-safe; the first answer counts.

        Args:
            output: a str, any value that JSON can hold, or on async streams an awaitable of one, which runs beside the
                stream.

        Raises:
            UsageError: this stream takes no output, the call has one already, or JSON cannot hold the output.
        """
        slot = self._open_slot()
        if not inspect.isawaitable(output):
            output = output_text(output)
        slot.give(output)

    def defer(self, timeout: float | None = None) -> None:
        """Make the stream wait: the output comes later, from any thread, in at most `timeout` seconds.

        None waits without a limit. It does nothing if another thread has responded already. Raises as `respond`.
        """
        self._open_slot().defer(timeout)

    def _open_slot(self) -> Answer:
        """Return where the output is put. Raises `UsageError` if the stream takes none."""
        if self.answer_slot is None:
            raise UsageError(
                f"tool call {self.call_id or self.id!r} cannot be answered: "
                + (
                    "its provider runs it"
                    if self.provider_executed
                    else "the stream has no `then=`, which would send the answer"
                )
            )
        return self.answer_slot

    def to_dict(self) -> dict[str, Any]:
        """As `Message.to_dict`, with `provider_executed`."""
        out = super().to_dict()
        if self.provider_executed:
            out["provider_executed"] = True
        return out

    @classmethod
    def fields(cls) -> frozenset[str]:
        """Return the keys that the static form of such a message can have."""
        return FIELDS | {"provider_executed"}

    def header(self) -> Self:
        """Return the same message before its first delta."""
        other = super().header()
        other.provider_executed = self.provider_executed
        other.answer_slot = None
        return other


class ToolOutputMessage(Message):
    """The output of a tool. `call_id` is the id of the call. The role `tool`, which other libraries have for it, is read as
    `computer`."""

    __slots__ = ()
    default_role = "computer"
    default_type = "tool_output"

    def __init__(self, id: str = "", *, role: str | None = None, **fields: Any) -> None:
        super().__init__(id, role=None if role == "tool" else role, **fields)


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


def output_text(output: object) -> str:
    """Return a tool's output as text: a str unchanged, any other value as JSON. Half of a surrogate pair, as the names
    of files have for bytes that are not UTF-8, is U+FFFD.

    Raises:
        UsageError: JSON cannot hold it.
    """
    try:
        if isinstance(output, str):
            return well_formed(output).value if has_surrogates(output) else output
        try:
            text = msgspec.json.encode(output, enc_hook=_plain)
        except UnicodeEncodeError:
            text = msgspec.json.encode(well_formed(msgspec.to_builtins(output, enc_hook=_plain)).value)
        return text.decode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a tool's output is text or what JSON can hold, not {type(output).__name__}: {error}"
        ) from error


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        raise TypeError(f"{value!r} is not a JSON value")
    return dump(mode="json")


def _joined(pieces: list[str]) -> str:
    """Base64 of the bytes of all pieces. Each piece has its own padding, so the bytes are joined and not the texts."""
    import base64  # only for audio

    return base64.b64encode(b"".join(map(_decode_piece, pieces))).decode("ascii")


def _decode_piece(piece: str) -> bytes:
    """Return the bytes of one base64 piece. Other characters are dropped, and so is an incomplete last byte."""
    import base64

    text = piece.rstrip("=")
    text = re.sub(r"[^A-Za-z0-9+/]+", "", text)
    if len(text) % 4 == 1:
        text = text[:-1]
    return base64.b64decode(text + "=" * (-len(text) % 4))
