"""Canonical events on their way out, as the items of today's Letta servers. The table says what they cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...messages import Message
from .. import base
from .dates import date_of
from .wire import ENDS, text

__all__ = ["Encoder"]

_STOPS = {
    "completed": "end_turn",
    "in_progress": "end_turn",
    "requires_action": "requires_approval",
    "incomplete": "max_tokens_exceeded",
    "cancelled": "cancelled",
}
_CODE = "run_code"  # Letta's own tool for it


class Encoder(base.Encoder):
    """Canonical events as the items of a stream with `stream_tokens`. The run's first item is a ping, as the server's.

    | canonical | here |
    |---|---|
    | the assistant's text, reasoning, redacted reasoning | `assistant_`, `reasoning_`, `hidden_reasoning_message` |
    | the user's and the system's texts, a summary | `user_`, `system_`, `summary_message` |
    | a message's id and group | `otid` and `id` |
    | tool calls, tool outputs | `tool_call_message`, `tool_return_message`, whoever executes them |
    | console output of a call, tied to it by its call_id | `stdout`, then `stderr`, of the call's return |
    | a call that a confirmation asks about, or that waits for an output when its run ends | `approval_request_message` |
    | its outcome | `approval_response_message`; none where nobody answered, so that it still waits |
    | code | a call of Letta's `run_code`, whole; what it prints is the call's return |
    | other console output | left out |
    | a run's id and created_at, a step's id, usage | `run_id` and the ping's `date`, `step_id`, `usage_statistics` |
    | how the run ended | `stop_reason`: its finish_reason, if it is one of Letta's for this ending, else `end_turn`, `error` … |
    | a failed run, a failed stream | `stop_reason`, then `error_message` under `event: error` |
    | a refusal, a summary of reasoning | text, reasoning: their format is left out |
    | signatures, a call's error | `signature`, `status`; what else is in `metadata` is left out |
    | a message without any content, but for calls and what they gave | left out |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | what follows the JSON object in a call's arguments | told, but no reader keeps it: there they are complete |
    | a message that is open when the next step begins | told, but readers end it there, and begin another |
    | images, files, audio, annotations, choices but the first, other roles and types | left out |
    | a model, active lines, warnings, statuses of single messages and steps | left out |
    """

    name = "letta"
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = e.Run()
        self._failed = False
        self._open: set[str] = set()
        self._held: list[dict[str, Any]] = []  # returns and answers: they end what is open
        self._calls: dict[str, m.ToolCallMessage | m.CodeMessage] = {}  # those that were told, by call id
        self._asked: set[str] = set()
        self._waiting: dict[str, m.ToolCallMessage] = {}  # for an output of ours
        self._unnamed: set[str] = set()
        self._printed: dict[str, dict[str, list[str]]] = {}  # by call id, and stream
        self._consoles: dict[str, Message] = {}
        self._code = ""  # the call id of the last code

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
        match event:
            case e.RunCreated(run=run):
                self._run = run
                ping = {"id": f"ping-{run.id}", "date": date_of(run.created_at), "message_type": "ping"}
                yield {**ping, "run_id": run.id}
            case e.RunDone(run=run):
                self._run = run
                yield from self._ending(run)
            case e.StreamException(error=name, message=message) if not self._failed:
                self._failed = True
                yield {"message_type": "stop_reason", "stop_reason": "error"}
                yield self._error({"message": message, "type": name})
            case e.ConfirmationCreated(confirmation=confirmation):
                yield from self._confirmation(confirmation)
            case e.ConfirmationDone(confirmation=confirmation) if confirmation.reason != "not answered":
                self._decided(confirmation)
                yield from self._release()
            case e.Created(message=message) if message.choice == 0:
                yield from self._begin(message)
            case e.Delta(snapshot=Message() as message, replace=False) if message.choice == 0 and event.value:
                yield from self._piece(message, event)
            case e.Done(message=message) if message.choice == 0:
                yield from self._finish(message)
            case _:
                pass

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        return "error" if item["message_type"] == "error_message" else None

    def _item(self, message: Message, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "id": message.group or message.id,
            "date": date_of(message.created_at),
            "message_type": kind,
            "otid": message.id,
            "step_id": message.step_id,
            "run_id": self._run.id or None,
            **more,
        }

    # -- messages

    def _begin(self, message: Message) -> Iterator[dict[str, Any]]:
        if isinstance(message, m.ToolOutputMessage | m.ConsoleMessage | m.CodeMessage):
            return  # they are told whole
        self._open.add(message.id)
        if isinstance(message, m.ToolCallMessage):
            self._calls[message.call_id or message.id] = message
            if not message.name:
                self._unnamed.add(message.id)
            yield self._fragment(message, **({"name": message.name} if message.name else {}))
        if message.type == "reasoning" and message.format == "redacted":
            known = {key: message.metadata.get(key) for key in ("state", "hidden_reasoning")}
            yield self._item(message, "hidden_reasoning_message", **{"state": "redacted", **_known(known)})

    def _piece(self, message: Message, delta: e.Delta) -> Iterator[dict[str, Any]]:
        match message:
            case m.ToolCallMessage():
                yield self._fragment(message, arguments=delta.value)
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._reasoning(message, delta.value)
            case m.TextMessage() | m.RefusalMessage() if message.role == "assistant":
                yield self._item(message, "assistant_message", content=delta.value)
            case m.ConsoleMessage():
                stream = "stderr" if (delta.metadata or {}).get("stream") == "stderr" else "stdout"
                call_id = message.call_id or self._code
                self._printed.setdefault(call_id, {}).setdefault(stream, []).append(delta.value)
            case _:
                pass

    def _finish(self, message: Message) -> Iterator[dict[str, Any]]:
        yield from self._last(message)
        self._open.discard(message.id)
        yield from self._release()

    def _last(self, message: Message) -> Iterator[dict[str, Any]]:
        """What only a done message knows, and what is told whole."""
        signature = text(message.metadata.get("signature"))
        match message:
            case m.ToolCallMessage():
                if message.id in self._unnamed and message.name:
                    yield self._fragment(message, name=message.name)
                if not message.provider_executed and message.status == "completed":
                    self._waiting[message.call_id or message.id] = message
            case m.ToolOutputMessage():
                self._return(message, message.call_id or message.id, message.content)
            case m.CodeMessage():
                yield from self._run_code(message)
            case m.ConsoleMessage():
                call_id = message.call_id or self._code
                self._consoles[call_id] = message
                if isinstance(self._calls.get(call_id), m.CodeMessage):
                    self._return(message, call_id, message.content)
            case m.ReasoningMessage() if signature and message.format != "redacted":
                yield self._reasoning(message, "", signature=signature)
            case m.TextMessage() if signature and message.role == "assistant":
                part = {"type": "text", "text": "", "signature": signature}
                yield self._item(message, "assistant_message", content=[part])
            case m.TextMessage() if message.role in ("user", "system") and message.content:
                yield self._item(message, f"{message.role}_message", content=message.content)
            case _ if message.type == "summary" and message.content:
                stats = {"compaction_stats": message.metadata.get("compaction_stats")}
                yield self._item(message, "summary_message", summary=message.content, **_known(stats))
            case _:
                pass

    def _release(self) -> Iterator[dict[str, Any]]:
        if not self._open:
            held, self._held = self._held, []
            yield from held

    def _reasoning(self, message: Message, value: str, **more: Any) -> dict[str, Any]:
        source = text(message.metadata.get("source")) or "reasoner_model"
        return self._item(message, "reasoning_message", source=source, reasoning=value, **more)

    # -- calls

    def _fragment(self, call: m.ToolCallMessage, **known: Any) -> dict[str, Any]:
        call_id = call.call_id or call.id
        asks = call.metadata.get("requires_approval") or call.metadata.get("item_type") == "mcp_approval_request"
        if asks:
            self._asked.add(call_id)
        fragment = {**known, "tool_call_id": call_id}
        kind = "approval_request_message" if asks else "tool_call_message"
        return self._item(call, kind, tool_call=fragment, tool_calls=fragment)

    def _ask(self, call: Message) -> Iterator[dict[str, Any]]:
        """A call that was told without a question becomes one."""
        call_id = call.call_id or call.id
        if call_id not in self._asked:
            self._asked.add(call_id)
            fragment = {"name": call.name or _CODE, "tool_call_id": call_id}
            yield self._item(call, "approval_request_message", tool_call=fragment, tool_calls=fragment)

    def _confirmation(self, confirmation: Confirmation) -> Iterator[dict[str, Any]]:
        subject, call_id = confirmation.subject, _call_id(confirmation)
        if call_id in self._calls:
            yield from self._ask(subject)
            return
        name = subject.name or (_CODE if isinstance(subject, m.CodeMessage) else subject.type)
        asks = {"requires_approval": True}
        call = m.ToolCallMessage(
            call_id, name=name, content=_arguments(subject), metadata=asks, step_id=subject.step_id
        )
        self._calls[call_id] = call
        yield self._fragment(call, name=name, arguments=call.content)

    def _decided(self, confirmation: Confirmation) -> None:
        call_id, approve = _call_id(confirmation), confirmation.status == "approved"
        reason = _known({"reason": confirmation.reason})
        answer = {"type": "approval", "tool_call_id": call_id, "approve": approve, **reason}
        response = {"approvals": [answer], "approve": approve, **reason}
        self._held.append(self._item(m.Message(f"{call_id}.approval"), "approval_response_message", **response))

    def _run_code(self, code: m.CodeMessage) -> Iterator[dict[str, Any]]:
        """Code that no call of this stream has in its arguments, as a call."""
        call_id = code.call_id or code.id
        if call_id not in self._calls:
            self._code, self._calls[call_id] = call_id, code
            fragment = {"name": _CODE, "arguments": _arguments(code), "tool_call_id": call_id}
            yield self._item(code, "tool_call_message", tool_call=fragment, tool_calls=[fragment])

    def _return(self, message: Message, call_id: str, output: str) -> None:
        """Hold what a call gave until nothing is open: a return ends what is."""
        self._waiting.pop(call_id, None)
        self._consoles.pop(call_id, None)
        printed = {stream: ["".join(told)] for stream, told in self._printed.pop(call_id, {}).items()}
        call = self._calls.get(call_id)
        failed = message.metadata.get("error") is True or message.status == "failed"
        status = "error" if failed else text(message.metadata.get("status")) or "success"
        flat = {"tool_return": output, "status": status, "tool_call_id": call_id, **printed}
        name = message.name or (call.name if call else None)
        whole = {"name": name, **flat, "tool_returns": [{"type": "tool", **flat}]}
        self._held.append(self._item(message, "tool_return_message", **whole))

    # -- endings

    def _ending(self, run: e.Run) -> Iterator[dict[str, Any]]:
        for call_id, console in [*self._consoles.items()]:
            if call_id in self._calls:
                self._return(console, call_id, "")
        self._open.clear()
        yield from self._release()
        if run.status == "requires_action":
            for call in self._waiting.values():
                yield from self._ask(call)
        failed = run.status in ("failed", "expired")
        reason = run.finish_reason or ""
        if ENDS.get(reason) != ("failed" if failed else run.status):
            reason = _STOPS.get(run.status, "error")
        yield {"message_type": "stop_reason", "stop_reason": reason}
        if (used := run.usage) is not None:
            counts = (used.input_tokens, used.output_tokens, used.total_tokens)
            names = ("prompt_tokens", "completion_tokens", "total_tokens")
            yield {**used.details, "message_type": "usage_statistics", **dict(zip(names, counts, strict=True))}
        if failed and not self._failed:
            self._failed = True
            yield self._error({"message": f"the run ended as {run.status}", **(run.error or {})})

    def _error(self, error: Mapping[str, Any]) -> dict[str, Any]:
        kind = str(error.get("type") or error.get("code") or "internal_error")
        known = _known({"detail": error.get("detail"), "code": error.get("code")})
        head = {"message_type": "error_message", "run_id": self._run.id, "error_type": kind}
        return {**head, "message": str(error.get("message") or ""), **known}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _call_id(confirmation: Confirmation) -> str:
    return confirmation.subject.call_id or confirmation.subject.id or confirmation.id


def _arguments(subject: Message) -> str:
    """The arguments of the call that a message is, or is told as."""
    if isinstance(subject, m.ToolCallMessage):
        return subject.content
    code = isinstance(subject, m.CodeMessage)
    known = {"code": subject.content, "language": subject.format or "python"} if code else {"content": subject.content}
    return msgspec.json.encode(known).decode()
