"""Flat messages: one kind of data each, growing in place until they are done.

A message that grows is its own snapshot: appending a piece costs O(1); reading `content` joins the pieces and caches the
result. Once its `status` is no longer `in_progress` a message never changes; `copy()` preserves the present state of one
that still grows. The static form (`to_dict`) is Open Interpreter's flat message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import msgspec

from ..errors import UsageError
from .fields import Status, check_field

if TYPE_CHECKING:
    from ..events import Created, Delta, Done
    from .json_tree import JsonTree

__all__ = [
    "CLASSES",
    "COMPACT_AT",
    "FIELDS",
    "JOINING",
    "OUTPUT_RETRY",
    "ROLES",
    "Annotation",
    "Message",
    "Status",
    "is_from_user",
    "message_class",
]

ROLES = ("assistant", "computer", "user", "system")
"""The roles of messages that have a class of their own. A message with any other role is a `Message`."""

OUTPUT_RETRY = "output_retry"
"""The key in the metadata of a user's message by which an agent asks for its output once more."""

COMPACT_AT = 30  # separate pieces that are held before they are joined: each takes 50 bytes more than its text

_NO_PIECES: Any = ()  # of messages that are done, to which nothing is added

# Held while the pieces of any message are joined, for microseconds: another thread may read its content then. One lock for all,
# because each takes memory. It is an RLock, because a signal handler may read in the thread that joins. `typed_json.py` holds it
# while a decoder is made, which happens once for each class, because this lock is free in a process that is forked.
JOINING = threading.RLock()

# The classes of messages that have one of their own, by type or by type and format. `kinds.py` fills it in.
CLASSES: dict[str, type[Message]] = {}


class Annotation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A citation in a text.

    Attributes:
        type: the provider's kind of citation, for example `url_citation`.
        url: the cited page.
        file_id: the cited file.
        title: the title of the page or file.
        quote: the cited words.
        start: where the cited part of the text begins, in characters of the complete text.
        end: where it ends, exclusive.
        raw: the provider's own object.
    """

    type: str
    url: str | None = None
    file_id: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    raw: Any = None


class Message:
    """One message: a role, a type and a content. While it streams it grows in place, so it is its own snapshot.

    Only the stream's engine changes a message. Two messages are equal if their static forms are.

    Args:
        id: unique in the stream: the provider's, else `message-1`, `message-2` ….
        role: `assistant`, `computer`, `user` or `system`.
        type: `message`, `reasoning`, `code`, `console`, `image` … (the README has the table) or a provider's own.
        format: what the content is in: the language of code, the codec of audio ….
        recipient: `user` or `assistant` where only one of them is meant to see it.
        content: the text, code, path or base64 data; None where it is not there yet (it then reads as "").
        name: the tool's name.
        call_id: the provider's id of the tool call that it is, or that it belongs to.
        parent_id: the call id of the tool call, if a sub-agent produced it for that call; None if it is of the stream's own agent.
        status: `in_progress` while it grows, then `completed`, `incomplete`, `cancelled` or `failed`.
        created_at: when it began, in Unix seconds.
        group: the id of the provider's own message or item that this one is a part of.
        index: its place in that group, from 0.
        choice: which of several alternative answers it belongs to, from 0.
        run_id: the id of its run.
        step_id: the id of its run step.
        metadata: what one provider has alone: signatures, log probabilities ….
    """

    __slots__ = (
        "_compacted",
        "_has_content",
        "_json",
        "_read",
        "_text",
        "call_id",
        "choice",
        "created_at",
        "format",
        "group",
        "id",
        "index",
        "metadata",
        "name",
        "parent_id",
        "pieces",
        "recipient",
        "role",
        "run_id",
        "status",
        "step_id",
        "type",
    )
    # The events of such a message. Each event class enters itself here when it is declared.
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
        parent_id: str | None = None,
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
        self.parent_id = parent_id
        self.status: Status = status
        self.created_at = created_at
        self.group = group
        self.index = index
        self.choice = choice
        self.run_id = run_id
        self.step_id = step_id
        self.metadata: Mapping[str, Any] = metadata or {}
        self._has_content = content is not None
        self._text = content or ""  # without the pieces that are new
        self.pieces: list[str] = []
        self._read = 0  # the pieces that are in the text already, because it was read
        self._compacted = 0
        self._json: Any = None  # what reads the content as JSON, at the first use of that

    @property
    def content(self) -> str:
        """The content so far. Reading it joins the pieces that are new since the last reading. Any thread may read it."""
        if self.pieces is _NO_PIECES:
            return self._text
        with JOINING:
            if new := self.pieces[self._read :]:
                self._read += len(new)  # the engine counts and drops them
                self._add(new)
            return self._text

    @property
    def has_content(self) -> bool:
        """Whether there is a content, even if it is empty. A decoder's done message may have none."""
        return self._has_content

    # -- for the engine, the only one that changes a message

    def compact(self) -> int:
        """Add the pieces to the text and drop them, so that the memory stays near its size. Returns how many deltas there were."""
        pieces = self.pieces
        with JOINING:
            text, self._text = self._text, ""
            text += "".join(pieces[self._read :])  # as in `_add`, without a call
            self._text = text
            self._compacted += len(pieces)
            pieces.clear()
            self._read = 0
            return self._compacted

    def _add(self, pieces: list[str]) -> None:
        """Add pieces to the text. CPython extends a string in place if nothing else refers to it, so reading the content at
        each delta does not copy it each time."""
        text, self._text = self._text, ""
        text += "".join(pieces)
        self._text = text

    def finish(self) -> None:
        """End the content, which does not grow any more: it is joined, so that it takes no more memory than it needs."""
        self._has_content = True
        if self.pieces:
            self.compact()
        self.pieces = _NO_PIECES

    def replace_content(self, content: str) -> None:
        """Replace all content."""
        with JOINING:
            self._compacted += len(self.pieces) + 1
            self._text = content
            self._json = None
            if self.pieces:
                self.pieces.clear()
                self._read = 0

    def json_tree(self, new: Callable[[], JsonTree]) -> JsonTree:
        """Return what reads the content as JSON, after it has read all that there is. A replaced content has another one.

        Args:
            new: makes one.
        """
        tree: JsonTree | None = self._json
        if tree is None:
            tree = self._json = new()
        tree.advance(self.content)
        return tree

    def to_dict(self) -> dict[str, Any]:
        """Return the static form: a dict for JSON, without fields that are unset. `Message.from_dict(m.to_dict()) ==
        m`."""
        out: dict[str, Any] = {"id": self.id, "role": self.role, "type": self.type}
        for key in _OPTIONAL:
            if value := getattr(self, key):
                out[key] = value
        if self.status != "completed":
            out["status"] = self.status
        if self.metadata:
            out["metadata"] = dict(self.metadata)
        if self._has_content or self._text or self.pieces:
            out["content"] = self.content
        return out

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Message:
        """Return the message of a dict, as `to_dict` returns it, in the class of its `type`, `format` and `role`.
        Unknown keys are put into `metadata`.

        Raises:
            UsageError: a field has a value of the wrong type.
        """
        if not isinstance(cast("object", value), Mapping):
            raise UsageError(f"a message is a `Message` or a dict, not {value!r}")
        kind = message_class(value.get("type", "message"), value.get("format"), value.get("role"))
        names = kind.fields()
        fields: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for key, field in value.items():
            if key not in names:
                other[key] = field
            elif field is not None:
                check_field(key, field)
                fields[key] = field
        if other:
            fields["metadata"] = {**fields.get("metadata", {}), **other}
        try:
            return kind(**fields)
        except ValueError as error:
            raise UsageError(f"a message's 'annotations' cannot be {fields['annotations']!r}: {error}") from error

    @classmethod
    def fields(cls) -> frozenset[str]:
        """Return the keys that the static form of such a message can have."""
        return FIELDS

    def copy(self) -> Self:
        """Return a copy that does not change when this message grows."""
        other = self.header()
        other.status = self.status
        other._has_content = self._has_content
        other._text = self.content
        return other

    def header(self) -> Self:
        """Return the same message without its content, as before its first delta."""
        other = self.__class__.__new__(self.__class__)
        # Written out: a loop over the names takes four times as long.
        other.id = self.id
        other.role = self.role
        other.type = self.type
        other.format = self.format
        other.recipient = self.recipient
        other.name = self.name
        other.call_id = self.call_id
        other.parent_id = self.parent_id
        other.created_at = self.created_at
        other.group = self.group
        other.index = self.index
        other.choice = self.choice
        other.run_id = self.run_id
        other.step_id = self.step_id
        other.metadata = self.metadata
        other.status = "in_progress"
        other._has_content = False
        other._text = ""
        other.pieces = []
        other._read = 0
        other._compacted = 0
        other._json = None
        return other

    @property
    def size(self) -> int:
        """The characters of its deltas so far, without joining them."""
        with JOINING:
            return len(self._text) + sum(map(len, self.pieces[self._read :]))

    @property
    def delta_count(self) -> int:
        """How many deltas were added."""
        with JOINING:
            return self._compacted + len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # a message is equal by its content, which changes

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return its forms for a notebook. Called by IPython."""
        from ..mimebundle import mimebundle

        return mimebundle([self])

    def __repr__(self) -> str:
        content = str(self.content)  # an application may have put another value there
        shown = content if len(content) <= 60 else content[:57] + "…"
        return f"<{type(self).__name__} {self.id} {self.role} {self.status} {shown!r}>"


# The fields that a message has before its first delta.
_HEADER = tuple(key for key in Message.__slots__ if not key.startswith("_") and key not in ("pieces", "status"))
_OPTIONAL = tuple(key for key in _HEADER if key not in ("id", "role", "type", "metadata"))
FIELDS = frozenset((*_HEADER, "content", "status"))


def message_class(type: Any, format: Any = None, role: Any = None) -> type[Message]:
    """Return the class of messages with this type, format and role; `Message` itself where there is no class for
    them."""
    if type == "code" and role == "computer":
        return Message  # a document to display, not code to run
    if type == "tool_output" and role == "tool":
        return CLASSES[type]  # which reads that role as the computer's
    if role is not None and role not in ROLES:
        return Message
    if type == "message" and format is not None:
        return CLASSES["message/refusal"] if format == "refusal" else Message
    return CLASSES.get(type, Message) if isinstance(type, str) else Message


def is_from_user(message: Message) -> bool:
    """Whether the user wrote a message, and not an agent, which asks for its output once more in the user's name."""
    return message.role == "user" and OUTPUT_RETRY not in message.metadata
