"""The events of the tool calls of a Letta stream: their arguments, their approvals, and their returns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...events import ToolCallDelta
from ..values import WireObject, as_object, as_text, is_list, is_object, text_or_json, text_or_none
from .fragments import LettaCall, LettaCalls
from .ids import GroupPositions, LettaMessageIds
from .texts import Texts
from .wire import PlainFragment, check_content, read_content, warning

__all__ = ["LettaToolCalls"]

_DENIED = "request to call tool denied"  # the server's return of a call that was declined


class LettaToolCalls:
    """The tool calls of one stream.

    Attributes:
        growing: by tool_call_id, open calls whose next fragments can only be arguments.
    """

    def __init__(self, ids: LettaMessageIds, positions: GroupPositions, texts: Texts) -> None:
        self._ids = ids
        self._positions = positions
        self._texts = texts
        self._calls = LettaCalls()
        self.growing = self._calls.growing

    def close(self, status: m.Status) -> Iterator[e.Event]:
        """Yield the ends of all open calls."""
        for call in [*self._calls.open]:
            yield from self._end(call, status)

    # -- their arguments

    def plain(self, fragment: PlainFragment | None) -> e.Delta | None:
        """Return the event of a piece of the arguments of a growing call; None where they may end with it."""
        if fragment is None or not fragment.arguments or "}" in fragment.arguments:
            return None
        call = self.growing[fragment.tool_call_id]
        call.pieces.append(fragment.arguments)
        return ToolCallDelta(call.message_id, fragment.arguments)

    def fragments(self, wire: WireObject, *, needs_approval: bool) -> Iterator[e.Event]:
        """Yield the events of fragments of calls. `tool_calls` is one or a list of them, and `tool_call` repeats it."""
        value = wire.get("tool_calls") or wire.get("tool_call")
        fragments: list[Any] = [*value] if is_list(value) else [value]
        if not any(map(is_object, fragments)) and is_object(wire.get("tool_call")):
            fragments.append(wire["tool_call"])
        for fragment in fragments:
            if is_object(fragment):
                yield from self._fragment(fragment, wire, needs_approval)
            elif fragment is not None:
                yield warning("bad-tool-call", "a tool call is not an object and was skipped", wire.get("message_type"))

    def _fragment(self, fragment: WireObject, wire: WireObject, needs_approval: bool) -> Iterator[e.Event]:
        call_id, name = as_text(fragment.get("tool_call_id")), as_text(fragment.get("name"))
        arguments = text_or_json(fragment.get("arguments"))
        if not (call_id or name or arguments):
            return
        group = as_text(wire.get("id"))
        call = self._calls.find(call_id, group, name, arguments, needs_approval=needs_approval)
        if not call.is_open:
            if arguments.strip() and not (name and arguments == call.arguments):
                fault = f"more arguments came for tool call {call.call_id!r}, which was complete; they were dropped"
                yield warning("late-arguments", fault, wire.get("message_type"))
            return
        call.name = call.name or name
        if arguments:
            call.append(arguments)
        if call.message_id:
            if arguments:
                yield ToolCallDelta(call.message_id, arguments)
        elif call.name:
            yield from self._begin(call, wire)
        if call.is_complete and call.message_id:
            yield from self._end(call, "completed")

    def _begin(self, call: LettaCall, wire: WireObject) -> Iterator[e.Event]:
        """Begin a call once its name is known."""
        id, otid = as_text(wire.get("id")), as_text(wire.get("otid"))
        yield from self._texts.end_parts(id, otid)
        call.message_id = self._ids.unused(call.call_id, otid, id)
        yield e.ToolCallCreated(_message_of(call, **self._positions.next_in(wire)))
        if call.pieces:
            yield ToolCallDelta(call.message_id, call.arguments)
        if call.call_id and not call.needs_approval:
            self._calls.growing[call.call_id] = call

    def _end(self, call: LettaCall, status: m.Status) -> Iterator[e.Event]:
        if not call.message_id:
            yield warning("no-tool-name", f"tool call {call.call_id!r} never got a name", "tool_call_message")
            yield from self._begin(call, {"id": call.group})
        self._calls.close(call)
        yield e.MessageDone(_message_of(call, status=status))

    # -- their approvals

    def ask(self) -> Iterator[e.Event]:
        """Yield the confirmations of all calls that need an approval. Called once no more calls can come."""
        for call in self._calls.ask():
            subject = _message_of(call, content=call.arguments)
            yield e.ConfirmationCreated(Confirmation(call.call_id or call.message_id, subject))

    def _decide(self, call: LettaCall, *, approved: bool, reason: str | None = None) -> Iterator[e.Event]:
        """Yield the outcome of a confirmation. Without one, the call needs none any more."""
        if call.has_question:
            status: Any = "approved" if approved else "declined"
            subject = _message_of(call)
            yield e.ConfirmationDone(
                Confirmation(call.call_id or call.message_id, subject, status=status, reason=reason)
            )
        call.needs_approval = False

    def responses(self, wire: WireObject, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of answers: approvals, and returns of the client's own tools."""
        yield from self.ask()
        answers = yield from _entries(wire, "approvals")
        is_unknown = False
        for answer in answers:
            id, group = as_text(answer.get("tool_call_id")), as_text(answer.get("approval_request_id"))
            calls = self._calls.waiting_for(id, group)
            is_unknown = is_unknown or not calls
            approve = answer.get("approve")
            for call in calls:
                if "tool_return" in answer:
                    yield from self._return(answer, wire, call, "")
                elif isinstance(approve, bool):
                    yield from self._decide(call, approved=approve, reason=text_or_none(answer.get("reason")))
                else:
                    fault = f"its answer to tool call {call.call_id!r} is neither true nor false, and was skipped"
                    yield warning("bad-approval", fault, wire.get("message_type"))
        if is_unknown:
            yield e.RawEvent("approval_response_message", item)

    # -- their returns

    def returns(self, wire: WireObject, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of returns. `tool_returns` is a list of them; a single one is in the item itself."""
        entries = yield from _entries(wire, "tool_returns")
        name = as_text(wire.get("name")) if len(entries) < 2 else ""
        for entry in entries:
            if "tool_return" not in entry:
                yield e.RawEvent("tool_return_message", item)
                continue
            call = self._calls.returned(as_text(entry.get("tool_call_id")))
            yield from self._return(entry, wire, call, name)
        self._calls.forget()

    def _return(self, entry: WireObject, wire: WireObject, call: LettaCall | None, name: str) -> Iterator[e.Event]:
        """Yield the console output, the output and the images of one return."""
        value = entry["tool_return"]
        content = read_content(value)
        if content.text:  # else the output is its JSON
            yield from check_content(content, wire.get("message_type"))
        status = as_text(entry.get("status"))
        output = content.text or (text_or_json(value) if content.has_other_parts else "")
        message_id = call.message_id if call else ""
        call_id = as_text(entry.get("tool_call_id")) or message_id
        stem = message_id or call_id or as_text(wire.get("otid")) or as_text(wire.get("id"))
        fields: dict[str, Any] = {"call_id": call_id or None, **self._positions.next_in(wire)}
        if call is not None:
            yield from self._decide(call, approved=not (status == "error" and _DENIED in output))
            self._calls.answer(call)
            name = name or call.name
        if printed := [(stream, line) for stream in ("stdout", "stderr") for line in _lines(entry.get(stream))]:
            yield from _console_events(self._ids.unused(f"{stem}.console" if stem else ""), printed, fields)
        outcome = {"error": True} if status == "error" else {"status": status} if status not in ("", "success") else {}
        id = self._ids.unused(f"{stem}.output" if stem else "")
        yield e.MessageDone(m.ToolOutputMessage(id, content=output, name=name or None, metadata=outcome, **fields))
        for number, (format, data) in enumerate(content.images):
            image = m.ImageMessage(f"{id}.image.{number}", role="computer", format=format, content=data, **fields)
            yield e.MessageDone(image)


def _message_of(call: LettaCall, **fields: Any) -> m.ToolCallMessage:
    metadata = {"requires_approval": True} if call.needs_approval else None
    ids = {"name": call.name or None, "call_id": call.call_id or None}
    return m.ToolCallMessage(call.message_id, provider_executed=True, metadata=metadata, **ids, **fields)


def _entries(wire: WireObject, key: str) -> Generator[e.Event, None, list[WireObject]]:
    """Yield the objects in a list of an item, or the item itself if it has none; with a warning about anything else in
    it."""
    value = wire.get(key)
    entries: list[WireObject] = []
    for entry in value if is_list(value) else filter(None, [as_object(value)]):
        if is_object(entry):
            entries.append(entry)
        else:
            fault = f"an entry of its {key} is not an object and was skipped"
            yield warning(f"bad-{key.replace('_', '-')}", fault, wire.get("message_type"))
    return entries or [wire]


def _console_events(id: str, printed: list[tuple[str, str]], fields: dict[str, Any]) -> Iterator[e.Event]:
    yield e.ConsoleCreated(m.ConsoleMessage(id, **fields))
    for stream, line in printed:
        yield e.ConsoleDelta(id, line, False, {"stream": stream})
    yield e.ConsoleDone(m.ConsoleMessage(id))


def _lines(value: Any) -> list[str]:
    """Return what a call printed to one stream: a list of texts, or one text."""
    parts: list[Any] = value if is_list(value) else [value]
    return [line for part in parts if (line := as_text(part) or as_text(as_object(part).get("text")))]
