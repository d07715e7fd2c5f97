"""The events of an agent session, as those of one run: the turn that begins with the first `turn.created` of the session's own agent.

Terminal rule: the run is complete with `agent.session.idle` after that turn has ended, or with `agent.session.failed`. The connection may
stay open, and is read no further. An `error` event ends nothing.

A session may wait for the application (`requires_action`): the turn goes on in the same stream once the application has sent what it
waits for, as from `on_tool_call_done`. Turns of sub-agents come in between; what they say has the call that began them as its
`parent_id`. An event may come twice: its id shows it. A call comes in one piece, with its arguments.

No event says how a question about a call of an MCP server was decided: it counts as approved where the call has an output, else as
declined, with the call's error as the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias, cast

from ...answers import Confirmation, Outcome
from ...events import (
    ConfirmationCreated,
    ConfirmationDone,
    Event,
    RawEvent,
    Run,
    RunCreated,
    RunRequiresAction,
    RunStatus,
)
from ...messages import CodeMessage, ConsoleMessage, ReasoningMessage, TextMessage, ToolCallMessage
from .. import base
from ..frameworks.decoder import FrameworkDecoder
from ..values import (
    WireObject,
    as_count,
    as_list,
    as_object,
    as_text,
    error_object,
    text_or_json,
    text_or_none,
    usage_of,
    without_keys,
)
from .shape import recognises

__all__ = ["Decoder"]

_RECENT = 1024  # event ids that are remembered, as the SDK's helper does
_ITEM_KEYS = ("id", "type", "status", "turn_id")
_OUTPUT_KEYS = ("output", "error")
_Key: TypeAlias = tuple[str, str, bool, int]  # of a part: its turn, its item, whether it is reasoning, its index


class Decoder(FrameworkDecoder):
    """Decodes the events of one turn, and of the turns of its sub-agents."""

    name = "openai_agent_sessions"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    item_of = base.Decoder.item_of  # the SDK's objects are JSON

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._turn_id: str | None = None  # that of the run's turn
        self._end: tuple[RunStatus, WireObject | None] | None = None  # how that turn has ended
        self._parents: dict[str, str] = {}  # the calls that began sub-agents, by the ids of these and of their turns
        self._starting: deque[str] = deque()  # the calls whose sub-agents were not created yet
        self._reported: set[Hashable] = set()  # ids of calls and commands, (id, "output") of outputs
        self._ended: set[_Key] = set()  # parts whose text is final, of turns that have not ended
        self._questions: dict[str, ToolCallMessage] = {}  # calls that wait for a decision, by the id of the question
        self._decided: set[str] = set()

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item is an event of a session."""
        return recognises(item)

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one item, unless it came before."""
        if id := as_text(item.get("event_id")):
            if id in self._recent:
                return
            self._recent.append(id)
        self._enter_turn(text_or_none(item.get("turn_id")))
        yield from super().feed(item)

    # -- the session and its turns

    def _enter_turn(self, turn_id: str | None) -> None:
        """Set the turn of the items from here on. Its id is the group of their messages."""
        self._group, self.parent_id = turn_id, self._parents.get(turn_id or "")

    def _read_turn_created(self, item: WireObject) -> Iterator[Event]:
        turn, turn_id = as_object(item.get("turn")), as_text(item.get("turn_id"))
        subagent = as_text(turn.get("subagent_id"))
        if not subagent and self._turn_id is None:
            self._turn_id = turn_id
            metadata = {"session_id": item.get("session_id")}
            yield RunCreated(Run(id=turn_id, created_at=turn.get("created_at"), metadata=metadata))
        elif subagent:
            self._parents[turn_id] = self._parents.get(subagent, subagent)

    def _read_turn_end(self, item: WireObject) -> Iterator[Event]:
        """The end of a turn. That of the run's own turn is the run's, once the session is idle."""
        turn, turn_id = as_object(item.get("turn")), as_text(item.get("turn_id"))
        status = as_text(item.get("type")).rpartition(".")[2]
        for key in [*self._open]:
            if cast("_Key", key)[0] == turn_id:
                yield from self._close(key, "completed" if status == "completed" else "failed")
        self._ended = {key for key in self._ended if key[0] != turn_id}
        if self.parent_id is None and self._turn_id in (None, turn_id):
            for id in [*self._questions]:
                yield from self._decide(id, "the turn ended without the call")
            error = turn.get("error")
            self._end = cast("RunStatus", status), error_object(error) if error else None
            if usage := as_object(item.get("usage")):
                yield usage_of(usage)

    def _read_idle(self, item: WireObject) -> Iterator[Event]:
        if self._end is not None:
            self.exhausted = True
            status, error = self._end
            yield from self._end_run(status, error=error)

    def _read_failed(self, item: WireObject) -> Iterator[Event]:
        self.exhausted = True
        yield from self._end_run("failed", error=error_object(as_object(item.get("session")).get("error")))

    def _read_requires_action(self, item: WireObject) -> Iterator[Event]:
        """Yield the session's questions: calls for the application, unless they have come, and approvals of calls of MCP servers."""
        actions = [as_object(action) for action in as_list(as_object(item.get("session")).get("required_actions"))]
        for action in actions:
            self._enter_turn(text_or_none(action.get("turn_id")))
            if action.get("type") == "function_call":
                yield from self._read_call(action)
            elif action.get("type") == "mcp_approval_request":
                yield from self._read_question(action)
        yield RunRequiresAction(Run(status="requires_action", metadata={"required_actions": actions}))

    def _read_question(self, action: WireObject) -> Iterator[Event]:
        id, request = as_text(action.get("request_id")), as_object(action.get("request"))
        if id and id not in self._questions and id not in self._decided:
            call = self._questions[id] = ToolCallMessage(
                id,
                name=as_text(request.get("name")),
                content=text_or_json(request.get("arguments")),
                provider_executed=True,
                parent_id=self.parent_id,
                metadata={"server_label": request.get("server_label"), "message": request.get("message")},
            )
            yield ConfirmationCreated(Confirmation(id=id, subject=call))

    def _decide(self, id: str, reason: Any = None) -> Iterator[Event]:
        """A question was decided, as shows in what came of the call."""
        call = self._questions.pop(id)
        self._decided.add(id)
        status: Outcome = "approved" if reason is None else "declined"
        reason = None if reason is None else text_or_json(reason)
        yield ConfirmationDone(Confirmation(id=id, subject=call, status=status, reason=reason))

    def _read_subagent(self, item: WireObject) -> Iterable[Event]:
        id = as_text(as_object(item.get("subagent")).get("id"))
        if id not in self._parents:
            self._parents[id] = self._starting.popleft() if self._starting else id
        return ()

    # -- texts and reasoning

    def _read_part(self, item: WireObject) -> Iterator[Event]:
        """A part begins or ends. Its end has its text, which its deltas should have given."""
        part, key = as_object(item.get("part")), self._part_key(item)
        if as_text(item.get("type")).endswith(".added"):
            yield from self._begin_part(key)
        else:
            yield from self._end_part(key, part.get("text"), item.get("status"))

    def _read_delta(self, item: WireObject) -> Iterator[Event]:
        key = self._part_key(item)
        yield from self._begin_part(key)
        if key not in self._ended:
            yield from self._extend(key, item.get("delta"))

    def _read_text(self, item: WireObject) -> Iterator[Event]:
        return self._end_part(self._part_key(item), item.get("text"))

    @staticmethod
    def _part_key(item: WireObject) -> _Key:
        index = item.get("summary_index", item.get("content_index"))
        return _turn_of(item), as_text(item.get("item_id")), "summary_index" in item, as_count(index) or 0

    def _begin_part(self, key: _Key) -> Iterator[Event]:
        if key not in self._open and key not in self._ended:
            is_first = key[3] == 0  # the first part has the item's id, the others new ones
            yield from self._begin(ReasoningMessage if key[2] else TextMessage, key, key[1] if is_first else None)

    def _end_part(self, key: _Key, text: Any, status: Any = None) -> Iterator[Event]:
        if key not in self._ended and isinstance(text, str):
            yield from self._begin_part(key)
            self._ended.add(key)
            yield from self._finish(key, text, "incomplete" if status == "incomplete" else "completed")

    # -- items

    def _read_item(self, item: WireObject) -> Iterator[Event]:
        """An item, as it begins or as it is in the end."""
        wire, is_done = as_object(item.get("item")), as_text(item.get("type")).endswith(".done")
        kind = as_text(wire.get("type"))
        if kind in ("message", "reasoning"):
            if wire.get("role") == "user":  # what the application has sent
                yield RawEvent(as_text(item.get("type")), dict(item))
            elif is_done:
                yield from self._end_item(wire)
        elif kind == "function_call":
            yield from self._read_call(wire)
        elif kind == "function_call_output":
            yield from self._read_output(wire)
        elif kind == "command_execution":
            yield from self._read_command(wire, is_done=is_done)
        elif kind.endswith("_call"):
            yield from self._read_own_call(kind, wire, is_done=is_done)
        else:
            yield RawEvent(kind or as_text(item.get("type")), dict(item))

    def _end_item(self, wire: WireObject) -> Iterator[Event]:
        """A text or reasoning has ended. Parts that have not come begin here."""
        is_reasoning = wire.get("type") == "reasoning"
        for index, part in enumerate(as_list(wire.get("summary" if is_reasoning else "content"))):
            key = _turn_of(wire), as_text(wire.get("id")), is_reasoning, index
            yield from self._end_part(key, as_object(part).get("text"), wire.get("status"))

    def _read_call(self, wire: WireObject) -> Iterator[Event]:
        """A call of the application's function. It comes in one piece, and perhaps three times."""
        call_id = as_text(wire.get("call_id"))
        if call_id not in self._reported:
            self._reported.add(call_id)
            yield from self._begin_call(call_id, call_id, as_text(wire.get("name")), text_or_none(wire.get("id")))
            yield from self._extend(call_id, text_or_json(wire.get("arguments")))
            yield from self._close(call_id)

    def _read_output(self, wire: WireObject) -> Iterator[Event]:
        """Yield the output that the application has sent for a call."""
        call_id, error, output = as_text(wire.get("call_id")), wire.get("error"), wire.get("output")
        if (call_id, "output") not in self._reported:
            self._reported.add((call_id, "output"))
            texts = [as_text(as_object(part).get("text")) for part in as_list(output)]
            text = as_text(error) if error else "\n".join(texts) if texts else text_or_json(output)
            yield self._output(call_id, text, failed=bool(error))

    def _read_command(self, wire: WireObject, *, is_done: bool) -> Iterator[Event]:
        """A command that the agent runs: code, and what it prints."""
        id = as_text(wire.get("id"))
        if id not in self._reported:
            self._reported.add(id)
            yield from self._begin(CodeMessage, id, id, format="shell")
            yield from self._extend(id, wire.get("command"))
            yield from self._close(id)
        if is_done:
            key = _turn_of(wire), id
            yield from self._begin_console(key)
            metadata = without_keys(wire, *_ITEM_KEYS, "command", "output")
            printed = wire.get("output")
            yield from self._finish(key, printed if isinstance(printed, str) else None, metadata=metadata)

    def _begin_console(self, key: tuple[str, str]) -> Iterator[Event]:
        if key not in self._open:
            yield from self._begin(ConsoleMessage, key, f"{key[1]}.console", call_id=key[1])

    def _read_printed(self, item: WireObject) -> Iterator[Event]:
        key = _turn_of(item), as_text(item.get("item_id"))
        yield from self._begin_console(key)
        yield from self._extend(key, item.get("delta"))

    def _read_own_call(self, kind: str, wire: WireObject, *, is_done: bool) -> Iterator[Event]:
        """A call that the provider runs itself: of an MCP server, a search, or what is done with sub-agents."""
        id, name = as_text(wire.get("id")), as_text(wire.get("name")) or kind.removesuffix("_call")
        if id not in self._reported:
            self._reported.add(id)
            arguments = wire.get("arguments", without_keys(wire, *_ITEM_KEYS, *_OUTPUT_KEYS))
            label = {"server_label": wire["server_label"]} if "server_label" in wire else {}
            yield from self._begin(
                ToolCallMessage, id, id, call_id=id, name=name, provider_executed=True, metadata=label
            )
            yield from self._extend(id, text_or_json(arguments))
            yield from self._close(id)
            if kind == "create_subagent_call":
                self._starting.append(id)
        if is_done and kind == "mcp_call":
            waiting = (call.id for call in self._questions.values() if _is_same_call(call, wire))
            if (question := next(waiting, None)) is not None:
                yield from self._decide(question, wire.get("error"))
        if is_done and any(wire.get(key) is not None for key in _OUTPUT_KEYS):
            error = wire.get("error")
            yield self._output(
                id, text_or_json(wire.get("output") if error is None else error), failed=error is not None
            )

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "agent.session.idle": _read_idle,
        "agent.session.failed": _read_failed,
        "agent.session.requires_action": _read_requires_action,
        "agent.session.subagent.created": _read_subagent,
        "agent.output.command_execution_output.delta": _read_printed,
        "agent.session.created": FrameworkDecoder.read_nothing,
        "agent.session.in_progress": FrameworkDecoder.read_nothing,
        "agent.session.turn.created": _read_turn_created,
        "agent.session.turn.in_progress": FrameworkDecoder.read_nothing,
        "agent.session.turn.completed": _read_turn_end,
        "agent.session.turn.failed": _read_turn_end,
        "agent.session.turn.cancelled": _read_turn_end,
        "agent.session.turn.item.added": _read_item,
        "agent.session.turn.item.done": _read_item,
        "agent.session.turn.content_part.added": _read_part,
        "agent.session.turn.content_part.done": _read_part,
        "agent.session.turn.output_text.delta": _read_delta,
        "agent.session.turn.output_text.done": _read_text,
        "agent.session.turn.reasoning_summary_part.added": _read_part,
        "agent.session.turn.reasoning_summary_part.done": _read_part,
        "agent.session.turn.reasoning_summary_text.delta": _read_delta,
        "agent.session.turn.reasoning_summary_text.done": _read_text,
    }


def _turn_of(item: WireObject) -> str:
    return as_text(item.get("turn_id"))


def _is_same_call(call: ToolCallMessage, wire: WireObject) -> bool:
    arguments = text_or_json(wire.get("arguments"))
    return (call.name, call.content, call.metadata["server_label"]) == (
        wire.get("name"),
        arguments,
        wire.get("server_label"),
    )
