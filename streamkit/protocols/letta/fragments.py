"""Which message a fragment of a Letta stream belongs to: the merge rules, without events.

A text is identified by its kind and its otid, else by its kind and its id: the reasoning, answer and calls of one model call
share an id. A call is identified by its tool_call_id alone, however its fragments interleave.
"""

from __future__ import annotations

import re
from collections import OrderedDict

import msgspec

__all__ = ["LettaCall", "LettaCalls", "LettaTextPart", "TextParts"]


_is_uuid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch


# -- texts


class LettaTextPart(msgspec.Struct, kw_only=True, eq=False):
    """A text, reasoning or hidden reasoning that may grow.

    `kind` is its item's `message_type`, `id` and `otid` are the wire's, `metadata` is that of its done message, `number` counts
    the texts of the stream.
    """

    kind: str
    message_id: str
    id: str
    otid: str
    is_open: bool = True
    metadata: dict[str, object] = {}
    number: int = 0


class TextParts:
    """The texts of a stream, by otid and by id. A fragment may have both keys, either, or none.

    Attributes:
        open: the texts that are open, in the order in which they began.
    """

    def __init__(self) -> None:
        self.open: dict[LettaTextPart, None] = {}
        self._open_by_message: dict[str, dict[int | str, dict[LettaTextPart, None]]] = {}  # by id, and head of the otid
        self._count = 0
        self._by_otid: dict[tuple[str, str], LettaTextPart] = {}
        self._by_id: dict[tuple[str, str], LettaTextPart] = {}
        self._newest: dict[str, LettaTextPart] = {}  # by kind

    def find(self, kind: str, id: str, otid: str) -> LettaTextPart | None:
        """Return the open text that a fragment belongs to, None if it begins another one."""
        if otid:
            part = self._by_otid.get((kind, otid)) or self._without_otid(kind, id)
        elif id:
            part = self._by_id.get((kind, id)) or self._without_keys(kind)
        else:
            part = self._newest.get(kind)
        if part is None or not part.is_open:
            return None
        if (part.id, part.otid) != (part.id or id, part.otid or otid):
            self._close_key(part)
            part.id, part.otid = part.id or id, part.otid or otid
            self._open_key(part)
        self._enter(part, id)
        return part

    def add(self, part: LettaTextPart) -> None:
        """A text begins."""
        self._count += 1
        part.number = self._count
        self.open[part] = None
        self._open_key(part)
        self._enter(part, part.id)

    def ended_by(self, id: str, otid: str) -> list[LettaTextPart]:
        """Return the open texts that end where another part of the message with this id begins. The server's parts
        follow each other, and are numbered by their otids. Other servers' otids only distinguish parts, which may
        interleave."""
        parts = self._open_by_message.get(id, {})
        head, number = _numbering(otid)
        if not otid:
            ended = [part for some in parts.values() for part in some]
        else:
            ended = [*parts.get("", ()), *(part for part in parts.get(head, ()) if _numbering(part.otid)[1] < number)]
        return sorted(ended, key=lambda part: part.number)

    def close(self, part: LettaTextPart) -> None:
        """A text ends."""
        part.is_open = False
        del self.open[part]
        self._close_key(part)

    def _open_key(self, part: LettaTextPart) -> None:
        head, _ = _numbering(part.otid)
        self._open_by_message.setdefault(part.id, {}).setdefault(head, {})[part] = None

    def _close_key(self, part: LettaTextPart) -> None:
        parts = self._open_by_message[part.id]
        head, _ = _numbering(part.otid)
        del parts[head][part]
        if not parts[head]:
            del parts[head]
        if not parts:
            del self._open_by_message[part.id]

    def _enter(self, part: LettaTextPart, id: str) -> None:
        self._newest[part.kind] = part
        if part.otid:
            self._by_otid[part.kind, part.otid] = part
        if id:
            self._by_id[part.kind, id] = part

    def _without_otid(self, kind: str, id: str) -> LettaTextPart | None:
        """Return the text of the fragments that had only this id so far, or neither key."""
        part = self._by_id.get((kind, id)) if id else None
        part = part or self._without_keys(kind)
        return part if part is not None and not part.otid else None

    def _without_keys(self, kind: str) -> LettaTextPart | None:
        part = self._newest.get(kind)
        return part if part is not None and not part.id and not part.otid else None


def _numbering(otid: str) -> tuple[int | str, int]:
    """Return the head that the otids of a message's parts share, and the number of this one.

    The server makes otids from the message's id. Their last seven bits are then the number of the part. Of another server's
    otid all is head.
    """
    return divmod(int(otid.replace("-", ""), 16), 128) if _is_uuid(otid) else (otid, 0)


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


class LettaCall(msgspec.Struct, kw_only=True, eq=False):
    """A tool call. `group` is the id of the item in which it began; `message_id` is "" until its name comes.

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
    has_question: bool = False  # its confirmation was emitted
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


class LettaCalls:
    """The tool calls of a stream, in the order in which they began.

    Attributes:
        open: the calls that are open.
        growing: by tool_call_id, open calls that can only get arguments from here on.
    """

    def __init__(self) -> None:
        self.open: dict[LettaCall, None] = {}
        self.growing: dict[str, LettaCall] = {}
        self._by_id: dict[str, LettaCall] = {}
        self._all: OrderedDict[LettaCall, None] = OrderedDict()  # except for those that are answered and forgotten
        self._nameless: OrderedDict[LettaCall, None] = OrderedDict()  # those without an id that are not answered
        self._unasked: dict[LettaCall, None] = {}  # those that need an approval, of which no confirmation was emitted
        self._waiting: dict[tuple[str, str], dict[LettaCall, None]] = {}  # the others of these, by call id and by group
        self._answered: list[LettaCall] = []  # that are not forgotten yet

    def find(self, call_id: str, group: str, name: str, arguments: str, *, needs_approval: bool) -> LettaCall:
        """Return the call that a fragment belongs to; a new one if it begins one."""
        call = self._by_id.get(call_id) if call_id else self._continued(group, name)
        if call is not None and not call.is_open and name and _is_another(call, group, name, arguments, needs_approval):
            call = None  # some models number their calls anew in each step, or give all of them the id 0
        if call is None:
            call = LettaCall(call_id=call_id, group=group)
            self._all[call] = self.open[call] = None
            if call_id:
                self._by_id[call_id] = call
            else:
                self._nameless[call] = None
        if needs_approval and not call.is_answered:
            call.needs_approval = True
            self._unasked[call] = None
        return call

    def returned(self, call_id: str) -> LettaCall | None:
        """Return the call that a return is for: without an id, the first call without an id and a return."""
        if call_id:
            return self._by_id.get(call_id)
        return next(iter(self._nameless), None)

    def close(self, call: LettaCall) -> None:
        """A call's arguments end."""
        call.is_open = False
        del self.open[call]
        self.growing.pop(call.call_id, None)

    def ask(self) -> list[LettaCall]:
        """Return the calls of which a confirmation is to be emitted, each once."""
        unasked, self._unasked = self._unasked, {}
        waiting_for = [call for call in unasked if call.needs_approval and not (call.has_question or call.is_answered)]
        for call in waiting_for:
            call.has_question = True
            for key in (("id", call.call_id), ("group", call.group)):
                self._waiting.setdefault(key, {})[call] = None
        return waiting_for

    def waiting_for(self, call_id: str, group: str) -> list[LettaCall]:
        """Return the calls that an answer is for: those with this call id, without one those of this group."""
        return [*self._waiting.get(("id", call_id) if call_id else ("group", group), ())]

    def answer(self, call: LettaCall) -> None:
        """A call is answered by a return."""
        call.is_answered = True
        call.pieces.clear()
        self._nameless.pop(call, None)
        self._answered.append(call)

    def forget(self) -> None:
        """Drop the answered calls. They are still found by their ids."""
        for call in self._answered:
            self._all.pop(call, None)
            for key in (("id", call.call_id), ("group", call.group)):
                self._waiting.get(key, {}).pop(call, None)
        self._answered.clear()

    def _continued(self, group: str, name: str) -> LettaCall | None:
        """Return the call that a fragment without an id continues."""
        last = next(reversed(self._all), None)
        if last is None or not last.is_open or last.group != group or (name and last.name):
            return None
        return last


def _is_another(call: LettaCall, group: str, name: str, arguments: str, needs_approval: bool) -> bool:
    """Whether a fragment with a name and the id of a closed call begins another call. The same item may come twice."""
    if (group, name, arguments) == (call.group, call.name, call.arguments) and not call.is_answered:
        return False
    if needs_approval and not call.needs_approval and not call.is_answered:
        return bool(arguments) and arguments != call.arguments
    return call.is_answered or bool(arguments.strip())
