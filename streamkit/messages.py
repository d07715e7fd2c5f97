"""Flat messages: one kind of data each, growing in place until they are done.

A message that grows is its own snapshot: taking in a piece costs O(1), and `content` joins the pieces when it is
read and keeps the result. Once its `status` is no longer `in_progress` a message never changes; `copy()` keeps a
moment of one that still grows. The static form (`to_dict`) is Open Interpreter's flat message.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

import msgspec

from .errors import UsageError

if TYPE_CHECKING:
    from .answers import Answer
    from .events import Created, Delta, Done

__all__ = [
    "Annotation",
    "AudioMessage",
    "CodeMessage",
    "ConsoleMessage",
    "FileMessage",
    "ImageMessage",
    "Message",
    "ReasoningMessage",
    "RefusalMessage",
    "Status",
    "TextMessage",
    "ToolCallMessage",
    "ToolOutputMessage",
    "message_class",
]

Status = Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]

FOLD = 512  # loose pieces kept before they are joined: bounds what a piece costs over its own characters


class Annotation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A citation in a text. `start` and `end` count characters of the whole text, end exclusive; `raw` is the
    provider's own object."""

    type: str
    url: str | None = None
    file_id: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    raw: Any = None


class Message:
    """One flat message. Only the engine writes to it.

    Args:
        id: unique in the stream: the provider's, else `message-1`, `message-2` ….
        role: `assistant`, `computer`, `user` or `system`.
        type: the README has the table: `message`, `reasoning`, `code`, `console`, `image` … or a provider's own.
        content: the text, code, path or base64 data; None where it is not known (it then reads as "").
        group: the provider's own message or item that this one is a part of, and `index` its place in it.
        metadata: what one provider has alone: signatures, log probabilities ….
    """

    __slots__ = (
        "_chunks",
        "_folded",
        "_known",
        "_tail",
        "call_id",
        "choice",
        "created_at",
        "format",
        "group",
        "id",
        "index",
        "metadata",
        "name",
        "recipient",
        "role",
        "run_id",
        "status",
        "step_id",
        "type",
    )
    # The events that tell of such a message; each event class writes itself in here when it is declared.
    created_event: ClassVar[type[Created]]
    delta_event: ClassVar[type[Delta]]
    done_event: ClassVar[type[Done]]
    default_role: ClassVar[str] = "assistant"
    default_type: ClassVar[str] = "message"
    default_format: ClassVar[str | None] = None

    def __init__(
        self,
        id: str = "",
        *,
        role: str | None = None,
        type: str | None = None,
        format: str | None = None,
        recipient: str | None = None,
        content: str | None = None,
        name: str | None = None,
        call_id: str | None = None,
        status: Status = "completed",
        created_at: float | None = None,
        group: str | None = None,
        index: int = 0,
        choice: int = 0,
        run_id: str | None = None,
        step_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.role = role or self.default_role
        self.type = type or self.default_type
        self.format = format or self.default_format
        self.recipient = recipient
        self.name = name
        self.call_id = call_id
        self.status: Status = status
        self.created_at = created_at
        self.group = group
        self.index = index
        self.choice = choice
        self.run_id = run_id
        self.step_id = step_id
        self.metadata: Mapping[str, Any] = metadata or {}
        self._known = content is not None
        self._chunks: list[str] = [content] if content else []
        self._tail: list[str] = []
        self._folded = 0

    @property
    def content(self) -> str:
        """All that has arrived so far. Reading it joins what is new since the last reading."""
        if self._tail:
            self._fold()
        if len(self._chunks) > 1:
            self._gather()
        return self._chunks[0] if self._chunks else ""

    def _gather(self) -> None:
        """Join all that there is. The first part grows in place where nobody else holds it, so that reading the
        content at each delta does not copy it each time."""
        rest = self._chunks[1:]
        text = self._chunks[0]
        self._chunks.clear()
        text += self._join(rest)
        self._chunks.append(text)

    @property
    def content_known(self) -> bool:
        """Whether the content was ever told. A decoder's done message may leave it open."""
        return self._known

    def _fold(self) -> None:
        """Join the loose pieces into one."""
        self._folded += len(self._tail)
        self._chunks.append(self._join(self._tail))
        self._tail.clear()

    def _join(self, pieces: list[str]) -> str:
        return "".join(pieces)

    def _replace(self, content: str) -> None:
        self._folded += len(self._tail) + 1
        self._chunks[:] = [content]
        self._tail.clear()

    def to_dict(self) -> dict[str, Any]:
        """The static form, without what is unset. `Message.from_dict(m.to_dict()) == m`."""
        out: dict[str, Any] = {"id": self.id, "role": self.role, "type": self.type}
        for key in _OPTIONAL:
            if value := getattr(self, key):
                out[key] = value
        if self.status != "completed":
            out["status"] = self.status
        if self.metadata:
            out["metadata"] = dict(self.metadata)
        if self._known or self._chunks or self._tail:
            out["content"] = self.content
        return out

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Message:
        """The message of a static form. Unknown keys are kept in `metadata`.

        Raises:
            UsageError: a known key has a value of the wrong type.
        """
        if not isinstance(cast("object", value), Mapping):
            raise UsageError(f"a message's static form is a dict, not {value!r}")
        kind = message_class(value.get("type", "message"), value.get("format"), value.get("role"))
        known = {key: value[key] for key in kind.fields() if value.get(key) is not None}
        for key, given in known.items():
            wanted = _TYPES.get(key, str)
            if not isinstance(given, wanted) or (isinstance(given, bool) and wanted is not bool):
                raise UsageError(f"a message's {key!r} cannot be {given!r}: {type(given).__name__}")
        if known.get("status", "completed") not in _STATUSES:
            raise UsageError(f"a message's 'status' cannot be {known['status']!r}; it is one of {_STATUSES}")
        if other := {key: value[key] for key in value if key not in kind.fields()}:
            known["metadata"] = {**known.get("metadata", {}), **other}
        try:
            return kind(**known)
        except ValueError as error:
            raise UsageError(f"a message's 'annotations' cannot be {known['annotations']!r}: {error}") from error

    @classmethod
    def fields(cls) -> frozenset[str]:
        """The keys that this message's static form can have."""
        return _FIELDS

    def copy(self) -> Self:
        """This moment of the message, which stays as it is."""
        other = self.header()
        other.status = self.status
        other._known = self._known
        other._chunks = [self.content] if self.content else []
        return other

    def header(self) -> Self:
        """The same message without its content, before its first delta."""
        other = type(self).__new__(type(self))
        for key in _HEADER:
            setattr(other, key, getattr(self, key))
        other.status = "in_progress"
        other._known = False
        other._chunks = []
        other._tail = []
        other._folded = 0
        return other

    @property
    def delta_count(self) -> int:
        """How many deltas have been taken in."""
        return self._folded + len(self._tail)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which grows

    def __repr__(self) -> str:
        shown = self.content if len(self.content) <= 60 else self.content[:57] + "…"
        return f"<{type(self).__name__} {self.id} {self.role} {self.status} {shown!r}>"


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
        return _FIELDS | {"annotations"}

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

    def _replace(self, content: str) -> None:
        super()._replace(content)
        self._joined = -1

    def _join(self, pieces: list[str]) -> str:
        # Each piece has padding of its own, so the text cannot be joined: the bytes can.
        return base64.b64encode(b"".join(_decode_piece(piece) for piece in pieces)).decode("ascii")


class ToolCallMessage(Message):
    """A call of a tool. `content` is the arguments' JSON text (a custom tool's input: any text).

    `provider_executed` calls run at the provider; the others want our answer, and `waiting` says whether this
    stream can take it now.
    """

    __slots__ = ("_answer", "_parsed", "provider_executed")
    default_type = "tool_call"

    def __init__(self, id: str = "", *, provider_executed: bool = False, **fields: Any) -> None:
        super().__init__(id, **fields)
        self.provider_executed = provider_executed
        self._answer: Answer | None = None
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
        return self._answer is not None and self._answer.open

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
        """Say that the output comes later, from any thread, in at most `timeout` seconds: the stream waits for it."""
        self._asked().defer(timeout)

    def _asked(self) -> Answer:
        if self._answer is None:
            raise UsageError(
                f"tool call {self.call_id or self.id!r} wants no answer here: "
                + ("its provider runs it" if self.provider_executed else "the stream has no `then=` to take it on")
            )
        return self._answer

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        if self.provider_executed:
            out["provider_executed"] = True
        return out

    @classmethod
    def fields(cls) -> frozenset[str]:
        return _FIELDS | {"provider_executed"}

    def header(self) -> Self:
        other = super().header()
        other.provider_executed = self.provider_executed
        other._answer = None
        other._parsed = (-1, {})
        return other


class ToolOutputMessage(Message):
    """What a tool gave. `call_id` names the call."""

    __slots__ = ()
    default_role = "computer"
    default_type = "tool_output"


_HEADER = (
    "call_id",
    "choice",
    "created_at",
    "format",
    "group",
    "id",
    "index",
    "metadata",
    "name",
    "recipient",
    "role",
    "run_id",
    "step_id",
    "type",
)
_OPTIONAL = tuple(key for key in _HEADER if key not in ("id", "role", "type", "metadata"))
_FIELDS = frozenset((*_HEADER, "content", "status"))
_TYPES: dict[str, type | tuple[type, ...]] = {
    "annotations": (list, tuple),
    "choice": int,
    "created_at": (int, float),
    "index": int,
    "metadata": Mapping,
    "provider_executed": bool,
}
_STATUSES: tuple[str, ...] = get_args(Status)
_CLASSES: dict[str, type[Message]] = {
    "message": TextMessage,
    "reasoning": ReasoningMessage,
    "code": CodeMessage,
    "console": ConsoleMessage,
    "image": ImageMessage,
    "file": FileMessage,
    "audio": AudioMessage,
    "tool_call": ToolCallMessage,
    "tool_output": ToolOutputMessage,
}


_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]+")


def message_class(type: Any, format: Any = None, role: Any = None) -> type[Message]:
    """The class of messages with this type, format and role; `Message` itself for what has no family."""
    if type == "code" and role == "computer":
        return Message  # a document to display, not code to run
    if role is not None and role not in ("assistant", "computer", "user", "system"):
        return Message
    if type == "message" and format is not None:
        return RefusalMessage if format == "refusal" else Message
    return _CLASSES.get(type, Message) if isinstance(type, str) else Message


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
