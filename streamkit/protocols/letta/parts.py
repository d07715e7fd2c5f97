"""Which message a piece of a Letta stream belongs to: the merge rules, and nothing of events.

A text is told apart by its kind and its otid, else by its kind and its id: reasoning, answer and calls of one model
call share an id. A call is told apart by its tool_call_id alone, however its fragments interleave.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from ...core.unique_ids import UniqueIds
from .dates import time_of
from .wire import Wire, text

__all__ = ["Call", "Calls", "MessageIds", "Places", "TextPart", "TextParts"]


_is_uuid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch


class MessageIds:
    """Message ids: the wire's, made unique."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._ids = UniqueIds()
        self._whole: dict[tuple[str, str], str] = {}

    def unused(self, *wanted: str) -> str:
        """The first of these that there is, or, where that is used already, the next of `id.2`, `id.3` …."""
        return self._ids.unused(next(filter(None, wanted), "") or self._new_id())

    def of_whole(self, kind: str, *wanted: str) -> str:
        """The same, for what is told whole: told again, it has the same id."""
        key = (kind, next(filter(None, wanted), ""))
        if not key[1]:
            return self.unused()
        if key not in self._whole:
            self._whole[key] = self.unused(*wanted)
        return self._whole[key]


class Places:
    """Where messages are: a message of Letta's own is a group of ours."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, wire: Wire) -> dict[str, Any]:
        """What the next message of an item has of it."""
        group = text(wire.get("id"))
        place = self._counts.get(group, 0)
        if group:
            self._counts[group] = place + 1
        known = {"group": group or None, "step_id": text(wire.get("step_id")) or None}
        return {**known, "index": place, "created_at": time_of(wire.get("date"))}


class TextPart(msgspec.Struct, kw_only=True, eq=False):
    """A text, reasoning or hidden reasoning that may grow. `metadata` is what its done message will have."""

    kind: str
    message_id: str
    id: str
    otid: str
    open: bool = True
    metadata: dict[str, object] = {}


class TextParts:
    """The texts, by either of their keys: fragments may have both, or one."""

    def __init__(self) -> None:
        self._by_otid: dict[tuple[str, str], TextPart] = {}
        self._by_id: dict[tuple[str, str], TextPart] = {}
        self._newest: dict[str, TextPart] = {}
        self.open: list[TextPart] = []

    def find(self, kind: str, id: str, otid: str) -> TextPart | None:
        """The open part that a fragment belongs to, None if it begins another one."""
        if otid:
            part = self._by_otid.get((kind, otid)) or self._without_otid(kind, id)
        elif id:
            part = self._by_id.get((kind, id)) or self._nameless(kind)
        else:
            part = self._newest.get(kind)
        if part is None or not part.open:
            return None
        part.id = part.id or id
        part.otid = part.otid or otid
        self._enter(part, id)
        return part

    def add(self, part: TextPart) -> None:
        self.open.append(part)
        self._enter(part, part.id)

    def ended_by(self, id: str, otid: str) -> list[TextPart]:
        """The open parts that are over where another part of the message with this id begins. The server's parts
        follow each other, and its otids number them; others' otids only tell parts apart, which may interleave."""
        return [part for part in self.open if part.id == id and _is_over(part.otid, otid)]

    def close(self, part: TextPart) -> None:
        part.open = False
        self.open.remove(part)

    def _enter(self, part: TextPart, id: str) -> None:
        self._newest[part.kind] = part
        if part.otid:
            self._by_otid[part.kind, part.otid] = part
        if id:
            self._by_id[part.kind, id] = part

    def _without_otid(self, kind: str, id: str) -> TextPart | None:
        """The part that had this id alone so far, or neither."""
        part = self._by_id.get((kind, id)) if id else None
        part = part or self._nameless(kind)
        return part if part is not None and not part.otid else None

    def _nameless(self, kind: str) -> TextPart | None:
        part = self._newest.get(kind)
        return part if part is not None and not part.id and not part.otid else None


def _is_over(otid: str, next: str) -> bool:
    """Whether a part is over where the next one of its message begins: if nothing says that it is not. The server makes
    otids of the message's id, whose last seven bits are then the number of the part."""
    if not (otid and next):
        return True
    if not (_is_uuid(otid) and _is_uuid(next)):
        return False
    (head, number), (same, other) = (divmod(int(one.replace("-", ""), 16), 128) for one in (otid, next))
    return head == same and number < other


class Extent:
    """Finds where a JSON object ends, in text that comes in pieces: where its depth is back at 0. That a piece can be
    parsed alone says nothing. It need be no JSON: models write newlines into strings."""

    _tokens = re.compile(r'\\.|\\|["{}\[\]]', re.DOTALL).finditer

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escape = ""  # one that the end of a piece cut
        self._broken = False

    def ends(self, text: str) -> bool:
        """Whether the object ends with this piece, with nothing but space after it."""
        text = self._escape + text
        self._escape = ""
        for found in self._tokens(text):
            match found[0]:
                case "\\":
                    self._escape = "\\"
                case '"':
                    self._quoted = not self._quoted
                case "{" | "[" if not self._quoted:
                    self._depth += 1
                case "}" | "]" if not self._quoted:
                    self._depth -= 1
                    if self._depth == 0 and not text[found.end() :].strip():
                        return not self._broken
                    self._broken = self._broken or self._depth <= 0
                case _:
                    pass
        return False


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A tool call. `message_id` is "" until its name is known.

    `complete` says that its arguments' JSON ended, `asks` that it waits for an approval, `asked` that it was asked for,
    `answered` that its return came.
    """

    call_id: str = ""
    group: str = ""
    name: str = ""
    message_id: str = ""
    pieces: list[str] = []
    open: bool = True
    complete: bool = False
    asks: bool = False
    asked: bool = False
    answered: bool = False
    extent: Extent = msgspec.field(default_factory=Extent)
    scanned: int = 0

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def take(self, piece: str) -> None:
        """Take in a piece of the arguments."""
        self.pieces.append(piece)
        if "}" in piece:
            fresh, self.scanned = "".join(self.pieces[self.scanned :]), len(self.pieces)
            self.complete = self.extent.ends(fresh)


class Calls:
    """The tool calls, in the order in which they began. `growing` are those whose fragments tell nothing but
    arguments: for the fast path."""

    def __init__(self) -> None:
        self.all: list[Call] = []  # but those that were forgotten
        self.open: list[Call] = []
        self.growing: dict[str, Call] = {}
        self._by_id: dict[str, Call] = {}

    def find(self, call_id: str, group: str, name: str, arguments: str, *, asks: bool) -> Call:
        """The call that a fragment belongs to; a new one where it begins one."""
        call = self._by_id.get(call_id) if call_id else self._going_on(group, name)
        if call is not None and not call.open and name and self._is_another(call, arguments, asks=asks):
            call = None  # some models number their calls anew in each step, or call all of them 0
        if call is None:
            call = Call(call_id=call_id, group=group)
            self.all.append(call)
            self.open.append(call)
            if call_id:
                self._by_id[call_id] = call
        return call

    def answered(self, call_id: str) -> Call | None:
        """The call that a return is for; where it does not say, the first that has none."""
        if call_id:
            return self._by_id.get(call_id)
        return next((call for call in self.all if not call.answered and not call.call_id), None)

    def close(self, call: Call) -> None:
        call.open = False
        self.open.remove(call)
        self.growing.pop(call.call_id, None)

    def forget(self) -> None:
        """Keep what later items may be about: the ids, and the calls without a return."""
        self.all = [call for call in self.all if not call.answered]

    def _going_on(self, group: str, name: str) -> Call | None:
        """The call that a fragment without an id goes on with."""
        last = self.all[-1] if self.all else None
        if last is None or not last.open or last.group != group or (name and last.name):
            return None
        return last

    def _is_another(self, call: Call, arguments: str, *, asks: bool) -> bool:
        if asks and not call.asks and not call.answered:
            return bool(arguments) and arguments != call.arguments
        return call.answered or bool(arguments.strip())
