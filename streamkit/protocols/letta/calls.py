"""The calls of a Letta stream, told as events: what they are called with, whether they may run, and what they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...events import ToolCallDelta
from ..values import is_list, is_object
from .parts import Call, Calls, MessageIds, Places
from .wire import Wire, json_text, mapping, read_content, text

__all__ = ["Tools"]

_DENIED = "request to call tool denied"  # what the server returns for a call that was declined


class Tools:
    """The calls of one stream.

    Args:
        ends: what is over where a call begins in the item of this id and otid.
        warn: a decoder's.
    """

    def __init__(
        self,
        ids: MessageIds,
        places: Places,
        ends: Callable[[str, str], Iterator[e.Event]],
        warn: Callable[[str, str, Any], e.StreamWarning],
    ) -> None:
        self._ids = ids
        self._places = places
        self._ends = ends
        self._warn = warn
        self._calls = Calls()
        self.growing = self._calls.growing

    def close(self, status: m.Status) -> Iterator[e.Event]:
        """All calls that are open are over."""
        for call in [*self._calls.open]:
            yield from self._end_call(call, status)

    def fragments(self, wire: Wire, *, asks: bool) -> Iterator[e.Event]:
        """Fragments of calls: one, or a list of them. `tool_call` repeats what `tool_calls` says."""
        given = wire.get("tool_calls") or wire.get("tool_call")
        for fragment in given if is_list(given) else [given]:
            if is_object(fragment):
                yield from self._fragment(fragment, wire, asks=asks)
            elif fragment is not None:
                yield self._warn("bad-tool-call", "a tool call is no object; it was skipped", wire.get("message_type"))

    def _fragment(self, fragment: Wire, wire: Wire, *, asks: bool) -> Iterator[e.Event]:
        call_id, name = text(fragment.get("tool_call_id")), text(fragment.get("name"))
        arguments = json_text(fragment.get("arguments"))
        if not (call_id or name or arguments):
            return
        call = self._calls.find(call_id, text(wire.get("id")), name, arguments, asks=asks)
        if asks and not call.answered:
            call.asks = True
        if not call.open:
            if arguments.strip() and not (asks and arguments == call.arguments):
                fault = f"more arguments came for tool call {call.call_id!r}, which was complete; they were dropped"
                yield self._warn("late-arguments", fault, wire.get("message_type"))
            return
        call.name = call.name or name
        if arguments:
            call.take(arguments)
        if call.message_id:
            if arguments:
                yield ToolCallDelta(call.message_id, arguments)
        elif call.name:
            yield from self._begin_call(call, wire)
        if call.complete and call.message_id:
            yield from self._end_call(call, "completed")

    def _begin_call(self, call: Call, wire: Wire) -> Iterator[e.Event]:
        """A call begins once its name is known."""
        yield from self._ends(text(wire.get("id")), text(wire.get("otid")))
        call.message_id = self._ids.unused(call.call_id, text(wire.get("otid")), text(wire.get("id")))
        yield e.ToolCallCreated(self._message(call, **self._places.of(wire)))
        if call.pieces:
            yield ToolCallDelta(call.message_id, call.arguments)
        if call.call_id and not call.asks:
            self._calls.growing[call.call_id] = call

    def _message(self, call: Call, **known: Any) -> m.ToolCallMessage:
        metadata = {"requires_approval": True} if call.asks else None
        ids = {"name": call.name or None, "call_id": call.call_id or None}
        return m.ToolCallMessage(call.message_id, provider_executed=True, metadata=metadata, **ids, **known)

    def _end_call(self, call: Call, status: m.Status) -> Iterator[e.Event]:
        if not call.message_id:
            yield self._warn("no-tool-name", f"tool call {call.call_id!r} never got a name", "tool_call_message")
            yield from self._begin_call(call, {"id": call.group})
        self._calls.close(call)
        yield e.MessageDone(self._message(call, status=status))

    # -- what calls give, and whether they may run

    def returns(self, wire: Wire, item: Wire) -> Iterator[e.Event]:
        listed = wire.get("tool_returns")
        entries = [entry for entry in listed if is_object(entry)] if is_list(listed) else []
        name = text(wire.get("name"))
        for entry in entries or [wire]:
            if "tool_return" not in entry:
                yield e.RawEvent("tool_return_message", item)
                continue
            call = self._calls.answered(text(entry.get("tool_call_id")))
            yield from self._return(entry, wire, call, name if len(entries) < 2 else "")
        self._calls.forget()

    def _return(self, entry: Wire, wire: Wire, call: Call | None, name: str) -> Iterator[e.Event]:
        """What a call printed, and what it gave."""
        given = entry["tool_return"]
        content = read_content(given)
        status = text(entry.get("status"))
        output = content.text or ("" if not content.more else json_text(given))
        call_id = text(entry.get("tool_call_id")) or (call.message_id if call else "")
        of = (call.message_id if call else "") or call_id or text(wire.get("otid")) or text(wire.get("id"))
        known: dict[str, Any] = {"call_id": call_id or None, **self._places.of(wire)}
        if call is not None:
            yield from self._decided(call, approved=not (status == "error" and _DENIED in output))
            call.answered = True
            call.pieces.clear()
            name = name or call.name
        if printed := [(key, line) for key in ("stdout", "stderr") for line in _lines(entry.get(key))]:
            yield from self._console(self._ids.unused(f"{of}.console" if of else ""), printed, known)
        outcome = {"error": True} if status == "error" else {"status": status} if status not in ("", "success") else {}
        id = self._ids.unused(f"{of}.output" if of else "")
        yield e.MessageDone(m.ToolOutputMessage(id, content=output, name=name or None, metadata=outcome, **known))
        for place, (format, data) in enumerate(content.images):
            image = m.ImageMessage(f"{id}.image.{place}", role="computer", format=format, content=data, **known)
            yield e.MessageDone(image)

    def _console(self, id: str, printed: list[tuple[str, str]], known: dict[str, Any]) -> Iterator[e.Event]:
        yield e.ConsoleCreated(m.ConsoleMessage(id, **known))
        for stream, line in printed:
            yield e.ConsoleDelta(id, line, False, {"stream": stream})
        yield e.ConsoleDone(m.ConsoleMessage(id))

    def ask(self) -> Iterator[e.Event]:
        """The questions, once there are no more calls."""
        for call in self._calls.all:
            if call.asks and not call.asked and not call.answered:
                call.asked = True
                subject = self._message(call, content=call.arguments)
                yield e.ConfirmationCreated(Confirmation(call.call_id or call.message_id, subject))

    def _decided(self, call: Call, *, approved: bool, reason: str | None = None) -> Iterator[e.Event]:
        """The outcome of a question; one that was not asked yet is asked no more."""
        if call.asked:
            status: Any = "approved" if approved else "declined"
            asked = Confirmation(call.call_id or call.message_id, self._message(call), status=status, reason=reason)
            yield e.ConfirmationDone(asked)
        call.asks = False

    def responses(self, wire: Wire, item: Wire) -> Iterator[e.Event]:
        """Answers that somebody gave: a yes or no, or what the client's own tool gave."""
        yield from self.ask()
        listed = wire.get("approvals")
        answers = [answer for answer in listed if is_object(answer)] if is_list(listed) else []
        unknown = False
        for answer in answers or [wire]:
            id = text(answer.get("tool_call_id"))
            group = text(answer.get("approval_request_id"))
            calls = [
                call for call in self._calls.all if call.asked and (call.call_id == id if id else call.group == group)
            ]
            unknown = unknown or not calls
            reason = text(answer.get("reason")) or None
            for call in calls:
                if "tool_return" in answer:
                    yield from self._return(answer, wire, call, "")
                elif isinstance(approve := answer.get("approve"), bool):
                    yield from self._decided(call, approved=approve, reason=reason)
        if unknown:
            yield e.RawEvent("approval_response_message", item)


def _lines(value: Any) -> list[str]:
    """What a call printed: a list of texts, or one."""
    listed = value if is_list(value) else [value]
    return [line for one in listed if (line := text(one) or text(mapping(one).get("text")))]
