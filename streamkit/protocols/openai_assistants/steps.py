"""The steps of a run: which tool call an entry of a step belongs to.

Calls grow side by side. An entry names its call by `id`, by `index`, by both or, on some servers, by neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...events import Event
from ...messages import Status
from ..final_forms import ItemForm, content_key, match_final
from ..values import WireObject, as_count, as_object, as_objects, as_text
from .calls import TOOLS, AssistantsCall, content_of
from .wire import Warn, kind_of

__all__ = ["AssistantsStep", "match_calls"]


class AssistantsStep:
    """One step of a run, with its tool calls.

    Args:
        warn: makes a warning.
        unused_id: returns an id that no flat message of the stream has, made from the wanted one.
        began_here: whether it begins in this stream; if not, it began in an earlier one.

    Attributes:
        latest: the call that the latest delta was for.
    """

    def __init__(self, id: str, warn: Warn, unused_id: Callable[[str], str], *, began_here: bool = True) -> None:
        self.id = id
        self.began_here = began_here
        self.is_done = False
        self._warn = warn
        self._unused_id = unused_id
        self._calls: dict[int, AssistantsCall] = {}  # by index
        self._calls_by_id: dict[str, AssistantsCall] = {}
        self.latest: AssistantsCall | None = None
        self._next_index = 0

    @property
    def calls(self) -> list[AssistantsCall]:
        """Its calls, by their indexes."""
        return [call for _, call in sorted(self._calls.items())]

    def begin(self, details: WireObject) -> Iterator[Event]:
        """Create the step, perhaps with calls already."""
        if not self._calls:
            for position, entry in enumerate(as_objects(details.get("tool_calls"))):
                yield from self.add_delta(position, entry, is_initial=True)

    def add_delta(self, position: int, entry: WireObject, *, is_initial: bool = False) -> Iterator[Event]:
        """Add an entry of a delta to its call."""
        before, count = self.latest, len(self._calls)
        call = self._call_of(position, entry, is_initial=is_initial)
        if call is not None:
            self.latest = call
            if before is not None and len(self._calls) > count:
                yield from before.passed()
            yield from call.add_delta(entry, is_initial=is_initial)

    def end_with(self, details: WireObject, status: Status) -> Iterator[Event]:
        """End the step, with the final form of its calls."""
        entries = as_objects(details.get("tool_calls"))
        for entry, call in zip(entries, match_calls(entries, self.calls), strict=True):
            yield from self.end_call_with(entry, call, status)
        yield from self.close(status)

    def end_call_with(self, entry: WireObject, call: AssistantsCall | None, status: Status) -> Iterator[Event]:
        """End a call of this step with its final form; it is a new one if `call` is None."""
        call = call or self._add_call(self._next_index, entry)
        if call is not None:
            yield from call.end_with(entry, status)

    def close(self, status: Status) -> Iterator[Event]:
        """End the calls that are open."""
        for call in self._calls.values():
            yield from call.close(status)
        self.is_done = True

    def _call_of(self, position: int, entry: WireObject, *, is_initial: bool) -> AssistantsCall | None:
        """Return the call that an entry belongs to, perhaps a new one; None if the entry is not a call."""
        id, index = as_text(entry.get("id")), as_count(entry.get("index"))
        with_id = self._calls_by_id.get(id) if id else None
        if with_id is not None and (index is None or self._calls.get(index) is with_id):
            return with_id
        if index is None:
            if id or is_initial:
                return self._add_call(self._next_index, entry)
            if self.latest is not None and not position:
                return self.latest
            index = position
        call = self._calls.get(index)
        if call is None:
            return self._add_call(index, entry)
        if id and call.call_id and call.call_id != id:  # a server that sends the same index for every call
            return with_id or self._add_call(self._next_index, entry)
        if id:
            self._calls_by_id.setdefault(id, call)
        return call

    def _add_call(self, index: int, entry: WireObject) -> AssistantsCall | None:
        """Return a new call; None if the entry has no kind of call."""
        kind = kind_of(entry, TOOLS)
        if not kind:
            return None
        index = self._next_index if index in self._calls else index
        self._next_index = max(self._next_index, index + 1)
        call_id = as_text(entry.get("id"))
        id = self._unused_id(call_id or f"{self.id or 'step'}.{index}")
        call = AssistantsCall(id, call_id, kind, (self.id or None) if self.began_here else None, index, self._warn)
        self._calls[index] = call
        if call_id:
            self._calls_by_id.setdefault(call_id, call)
        return call


def match_calls(entries: Sequence[WireObject], calls: Sequence[AssistantsCall]) -> list[AssistantsCall | None]:
    """Return the calls that these final forms belong to; None for those that were not streamed."""
    indexes = match_final([_form_of(entry) for entry in entries], [call.form for call in calls])
    return [None if index is None else calls[index] for index in indexes]


def _form_of(entry: WireObject) -> ItemForm:
    kind = kind_of(entry, TOOLS)
    body = as_object(entry.get(kind))
    name = as_text(body.get("name")) if kind == "function" else kind
    return ItemForm(kind, as_text(entry.get("id")), name=name, content=content_key(content_of(kind, body)))
