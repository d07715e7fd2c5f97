"""Which message a fragment of a Letta stream belongs to: the merge rules, without events.

A text is identified by its kind and its otid, else by its kind and its id: the reasoning, answer and calls of one model call
share an id. A call is identified by its tool_call_id alone, however its fragments interleave.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Call", "Calls", "TextPart", "TextParts"]


_is_uuid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch


# -- texts


class TextPart(msgspec.Struct, kw_only=True, eq=False):
    """A text, reasoning or hidden reasoning that may grow.

    `kind` is its item's `message_type`, `id` and `otid` are the wire's, `metadata` is that of its done message.
    """

    kind: str
    message_id: str
    id: str
    otid: str
    is_open: bool = True
    metadata: dict[str, object] = {}


class TextParts:
    """The texts of a stream, by otid and by id. A fragment may have both keys, either, or none.

    Attributes:
        open: the texts that are open, in the order in which they began.
    """

    def __init__(self) -> None:
        self.open: list[TextPart] = []
        self._by_otid: dict[tuple[str, str], TextPart] = {}
        self._by_id: dict[tuple[str, str], TextPart] = {}
        self._newest: dict[str, TextPart] = {}  # by kind

    def find(self, kind: str, id: str, otid: str) -> TextPart | None:
        """The open text that a fragment belongs to, None if it begins another one."""
        if otid:
            part = self._by_otid.get((kind, otid)) or self._without_otid(kind, id)
        elif id:
            part = self._by_id.get((kind, id)) or self._without_keys(kind)
        else:
            part = self._newest.get(kind)
        if part is None or not part.is_open:
            return None
        part.id = part.id or id
        part.otid = part.otid or otid
        self._enter(part, id)
        return part

    def add(self, part: TextPart) -> None:
        """A text begins."""
        self.open.append(part)
        self._enter(part, part.id)

    def ended_by(self, id: str, otid: str) -> list[TextPart]:
        """The open texts that end where another part of the message with this id begins. The server's parts follow each
        other, and are numbered by their otids. Other servers' otids only distinguish parts, which may interleave."""
        return [part for part in self.open if part.id == id and _ends_before(part.otid, otid)]

    def close(self, part: TextPart) -> None:
        """A text ends."""
        part.is_open = False
        self.open.remove(part)

    def _enter(self, part: TextPart, id: str) -> None:
        self._newest[part.kind] = part
        if part.otid:
            self._by_otid[part.kind, part.otid] = part
        if id:
            self._by_id[part.kind, id] = part

    def _without_otid(self, kind: str, id: str) -> TextPart | None:
        """The text whose fragments had only this id so far, or neither key."""
        part = self._by_id.get((kind, id)) if id else None
        part = part or self._without_keys(kind)
        return part if part is not None and not part.otid else None

    def _without_keys(self, kind: str) -> TextPart | None:
        part = self._newest.get(kind)
        return part if part is not None and not part.id and not part.otid else None


def _ends_before(otid: str, next: str) -> bool:
    """Whether a part ends where the next one of its message begins: yes, unless their otids show that both may go on.

    The server makes otids from the message's id. Their last seven bits are then the number of the part.
    """
    if not (otid and next):
        return True
    if not (_is_uuid(otid) and _is_uuid(next)):
        return False
    (head, number), (next_head, next_number) = (divmod(int(id.replace("-", ""), 16), 128) for id in (otid, next))
    return head == next_head and number < next_number


# -- calls


class _ObjectEnd:
    """Finds where a JSON object ends, in text that comes in pieces: where its depth is 0 again.

    Parsing would not do: a piece that is valid JSON may still be followed by more, and an object may end that is not valid
    JSON, as models write newlines into strings.
    """

    _tokens = re.compile(r'\\.|\\|["{}\[\]]', re.DOTALL).finditer

    def __init__(self) -> None:
        self._depth = 0
        self._is_quoted = False
        self._escape = ""  # a backslash at the end of the last piece
        self._is_broken = False  # text followed a first object

    def is_in(self, text: str) -> bool:
        """Whether the object ends in this piece, with only white space after it."""
        text = self._escape + text
        self._escape = ""
        for found in self._tokens(text):
            match found[0]:
                case "\\":
                    self._escape = "\\"
                case '"':
                    self._is_quoted = not self._is_quoted
                case "{" | "[" if not self._is_quoted:
                    self._depth += 1
                case "}" | "]" if not self._is_quoted:
                    self._depth -= 1
                    if self._depth == 0 and not text[found.end() :].strip():
                        return not self._is_broken
                    self._is_broken = self._is_broken or self._depth <= 0
                case _:
                    pass
        return False


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A tool call. `group` is the id of the item in which it began; `message_id` is "" until its name is known.

    It is open until its arguments end, or the step does. Then it may need an approval, of which one confirmation is emitted,
    and at last it is answered by a return.
    """

    call_id: str = ""
    group: str = ""
    name: str = ""
    message_id: str = ""
    pieces: list[str] = []  # of its arguments
    is_open: bool = True
    is_complete: bool = False  # the JSON object of its arguments ended
    needs_approval: bool = False
    is_asked: bool = False  # its confirmation was emitted
    is_answered: bool = False
    object_end: _ObjectEnd = msgspec.field(default_factory=_ObjectEnd)
    searched: int = 0  # how many pieces `object_end` has seen

    @property
    def arguments(self) -> str:
        """Its arguments so far."""
        return "".join(self.pieces)

    def append(self, piece: str) -> None:
        """Add a piece to the arguments."""
        self.pieces.append(piece)
        if "}" in piece:
            new, self.searched = "".join(self.pieces[self.searched :]), len(self.pieces)
            self.is_complete = self.object_end.is_in(new)


class Calls:
    """The tool calls of a stream, in the order in which they began.

    Attributes:
        all: the calls, except for those that are answered and forgotten.
        open: the calls that are open.
        growing: for the fast path, by tool_call_id: open calls whose next fragments can only be arguments.
    """

    def __init__(self) -> None:
        self.all: list[Call] = []
        self.open: list[Call] = []
        self.growing: dict[str, Call] = {}
        self._by_id: dict[str, Call] = {}

    def find(self, call_id: str, group: str, name: str, arguments: str, *, needs_approval: bool) -> Call:
        """The call that a fragment belongs to; a new one if it begins one."""
        call = self._by_id.get(call_id) if call_id else self._continued(group, name)
        if call is not None and not call.is_open and name and _is_another(call, arguments, needs_approval):
            call = None  # some models number their calls anew in each step, or give all of them the id 0
        if call is None:
            call = Call(call_id=call_id, group=group)
            self.all.append(call)
            self.open.append(call)
            if call_id:
                self._by_id[call_id] = call
        return call

    def returned(self, call_id: str) -> Call | None:
        """The call that a return is for: without an id, the first call without an id and a return."""
        if call_id:
            return self._by_id.get(call_id)
        return next((call for call in self.all if not call.is_answered and not call.call_id), None)

    def close(self, call: Call) -> None:
        """A call's arguments end."""
        call.is_open = False
        self.open.remove(call)
        self.growing.pop(call.call_id, None)

    def forget(self) -> None:
        """Drop the answered calls from `all`. They are still found by their ids."""
        self.all = [call for call in self.all if not call.is_answered]

    def _continued(self, group: str, name: str) -> Call | None:
        """The call that a fragment without an id continues."""
        last = self.all[-1] if self.all else None
        if last is None or not last.is_open or last.group != group or (name and last.name):
            return None
        return last


def _is_another(call: Call, arguments: str, needs_approval: bool) -> bool:
    """Whether a fragment with a name and the id of a closed call begins another call."""
    if needs_approval and not call.needs_approval and not call.is_answered:
        return bool(arguments) and arguments != call.arguments
    return call.is_answered or bool(arguments.strip())
