"""Encodes canonical events as the items of today's Letta servers. The table of `Encoder` says what they cannot express."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...messages import Message
from .. import base
from ..dates import date_of
from ..values import WireObject, as_text, without_keys
from .wire import STATUS_OF_STOP_REASON

__all__ = ["Encoder"]

_STOP_REASON_OF_STATUS = {
    "completed": "end_turn",
    "in_progress": "end_turn",
    "requires_action": "requires_approval",
    "incomplete": "max_tokens_exceeded",
    "cancelled": "cancelled",
}
_CODE_TOOL = "run_code"  # Letta's own tool that runs code


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
    | its outcome | `approval_response_message`; nothing without an answer, so that it still waits |
    | code | a call of Letta's `run_code`, in one item; what it prints is the call's return |
    | other console output | left out |
    | a run's id and created_at, a step's id, usage | `run_id` and the ping's `date`, `step_id`, `usage_statistics` |
    | how the run ended | `stop_reason`: its finish_reason, if it is one of Letta's for this ending, else `end_turn`, `error` … |
    | a failed run, a failed stream | `stop_reason`, then `error_message` under `event: error` |
    | a refusal, a summary of reasoning | text, reasoning: their format is left out |
    | signatures, a call's error | `signature`, `status`; what else is in `metadata` is left out |
    | a message without any content, except for calls and their returns | left out |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | what follows the JSON object in a call's arguments | the same, but readers drop it, as the arguments are complete there |
    | a message that is open when the next step begins | the same, but readers end it there, and begin another |
    | images, files, audio, annotations, choices other than the first, other roles and types | left out |
    | a model, active lines, warnings, statuses of single messages and steps | left out |
    """

    name = "letta"
    sse_ids = False
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = e.Run()
        self._has_failed = False
        self._open: set[str] = set()  # the ids of open messages
        # Returns and approval responses end whatever is open, so they are held back until nothing is.
        self._held: list[dict[str, Any]] = []
        self._calls: dict[str, m.ToolCallMessage | m.CodeMessage] = {}  # those that were sent, by call id
        self._requested: set[str] = set()  # the ids of calls that were sent as approval requests
        self._waiting: dict[str, m.ToolCallMessage] = {}  # calls that wait for an output, by call id
        self._unnamed: set[str] = set()  # the ids of call messages that were sent without a name
        self._printed: dict[str, dict[str, list[str]]] = {}  # console output, by call id and stream
        self._consoles: dict[str, Message] = {}  # console messages whose call has no return yet, by call id
        self._newest_code = ""  # its call id, for console output that does not say which code it is of

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
        """Yield the items of one event."""
        match event:
            case e.RunCreated(run=run):
                self._run = run
                ping = {"id": f"ping-{run.id}", "date": date_of(run.created_at), "message_type": "ping"}
                yield {**ping, "run_id": run.id}
            case e.RunDone(run=run):
                self._run = run
                yield from self._end(run)
            case e.StreamException(error=name, message=message) if not self._has_failed:
                self._has_failed = True
                yield {"message_type": "stop_reason", "stop_reason": "error"}
                yield self._error({"message": message, "type": name})
            case e.ConfirmationCreated(confirmation=confirmation):
                yield from self._ask(confirmation)
            case e.ConfirmationDone(confirmation=confirmation) if confirmation.answered:
                self._hold_response(confirmation)
                yield from self._release()
            case e.Created(message=message) if message.choice == 0:
                yield from self._created(message)
            case e.Delta(snapshot=Message() as message, replace=False) if message.choice == 0 and event.value:
                yield from self._grow(message, event)
            case e.Done(message=message) if message.choice == 0:
                yield from self._done(message)
                self._open.discard(message.id)
                yield from self._release()
            case _:
                pass

    def event_name(self, item: WireObject) -> str | None:
        """`error` for an error, else None."""
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

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        if isinstance(message, m.ToolOutputMessage | m.ConsoleMessage | m.CodeMessage):
            return  # these are sent in one item, when they are done
        self._open.add(message.id)
        if isinstance(message, m.ToolCallMessage):
            self._calls[message.call_id or message.id] = message
            if not message.name:
                self._unnamed.add(message.id)
            yield self._fragment(message, **({"name": message.name} if message.name else {}))
        if message.type == "reasoning" and message.format == "redacted":
            hidden = {key: message.metadata.get(key) for key in ("state", "hidden_reasoning")}
            yield self._item(message, "hidden_reasoning_message", **{"state": "redacted", **without_keys(hidden)})

    def _grow(self, message: Message, delta: e.Delta) -> Iterator[dict[str, Any]]:
        match message:
            case m.ToolCallMessage():
                yield self._fragment(message, arguments=delta.value)
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._reasoning(message, delta.value)
            case m.TextMessage() | m.RefusalMessage() if message.role == "assistant":
                yield self._item(message, "assistant_message", content=delta.value)
            case m.ConsoleMessage():
                stream = "stderr" if (delta.metadata or {}).get("stream") == "stderr" else "stdout"
                call_id = message.call_id or self._newest_code
                self._printed.setdefault(call_id, {}).setdefault(stream, []).append(delta.value)
            case _:
                pass

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield what is known only when a message is done, and the messages that are sent in one item."""
        signature = as_text(message.metadata.get("signature"))
        match message:
            case m.ToolCallMessage():
                if message.id in self._unnamed and message.name:
                    yield self._fragment(message, name=message.name)
                if not message.provider_executed and message.status == "completed":
                    self._waiting[message.call_id or message.id] = message
            case m.ToolOutputMessage():
                self._hold_return(message, message.call_id or message.id, message.content)
            case m.CodeMessage():
                yield from self._code_call(message)
            case m.ConsoleMessage():
                call_id = message.call_id or self._newest_code
                self._consoles[call_id] = message
                if isinstance(self._calls.get(call_id), m.CodeMessage):
                    self._hold_return(message, call_id, message.content)
            case m.ReasoningMessage() if signature and message.format != "redacted":
                yield self._reasoning(message, "", signature=signature)
            case m.TextMessage() if signature and message.role == "assistant":
                part = {"type": "text", "text": "", "signature": signature}
                yield self._item(message, "assistant_message", content=[part])
            case m.TextMessage() if message.role in ("user", "system") and message.content:
                yield self._item(message, f"{message.role}_message", content=message.content)
            case _ if message.type == "summary" and message.content:
                stats = without_keys({"compaction_stats": message.metadata.get("compaction_stats")})
                yield self._item(message, "summary_message", summary=message.content, **stats)
            case _:
                pass

    def _release(self) -> Iterator[dict[str, Any]]:
        """Yield the items that were held back, if nothing is open."""
        if not self._open:
            held, self._held = self._held, []
            yield from held

    def _reasoning(self, message: Message, value: str, **more: Any) -> dict[str, Any]:
        source = as_text(message.metadata.get("source")) or "reasoner_model"
        return self._item(message, "reasoning_message", source=source, reasoning=value, **more)

    # -- calls

    def _fragment(self, call: m.ToolCallMessage, **fields: Any) -> dict[str, Any]:
        call_id = call.call_id or call.id
        needs_approval = (
            call.metadata.get("requires_approval") or call.metadata.get("item_type") == "mcp_approval_request"
        )
        if needs_approval:
            self._requested.add(call_id)
        fragment = {**fields, "tool_call_id": call_id}
        kind = "approval_request_message" if needs_approval else "tool_call_message"
        return self._item(call, kind, tool_call=fragment, tool_calls=fragment)

    def _request_approval(self, call: Message) -> Iterator[dict[str, Any]]:
        """Yield the approval request of a call that was sent without one."""
        call_id = call.call_id or call.id
        if call_id not in self._requested:
            self._requested.add(call_id)
            fragment = {"name": _name_of(call), "tool_call_id": call_id}
            yield self._item(call, "approval_request_message", tool_call=fragment, tool_calls=fragment)

    def _ask(self, confirmation: Confirmation) -> Iterator[dict[str, Any]]:
        subject, call_id = confirmation.subject, _call_id(confirmation)
        if call_id in self._calls:
            yield from self._request_approval(subject)
            return
        name = _name_of(subject)
        metadata = {"requires_approval": True}
        call = m.ToolCallMessage(
            call_id, name=name, content=_arguments(subject), metadata=metadata, step_id=subject.step_id
        )
        self._calls[call_id] = call
        yield self._fragment(call, name=name, arguments=call.content)

    def _hold_response(self, confirmation: Confirmation) -> None:
        """Hold back the outcome of a confirmation."""
        call_id, approve = _call_id(confirmation), confirmation.status == "approved"
        reason = without_keys({"reason": confirmation.reason})
        answer = {"type": "approval", "tool_call_id": call_id, "approve": approve, **reason}
        response = {"approvals": [answer], "approve": approve, **reason}
        self._held.append(self._item(m.Message(f"{call_id}.approval"), "approval_response_message", **response))

    def _code_call(self, code: m.CodeMessage) -> Iterator[dict[str, Any]]:
        """Code as a call, unless it came from the arguments of a call that was sent."""
        call_id = code.call_id or code.id
        if call_id not in self._calls:
            self._newest_code, self._calls[call_id] = call_id, code
            fragment = {"name": _CODE_TOOL, "arguments": _arguments(code), "tool_call_id": call_id}
            yield self._item(code, "tool_call_message", tool_call=fragment, tool_calls=[fragment])

    def _hold_return(self, message: Message, call_id: str, output: str) -> None:
        """Hold back the return of a call, with what it printed."""
        self._waiting.pop(call_id, None)
        self._consoles.pop(call_id, None)
        printed = {stream: ["".join(pieces)] for stream, pieces in self._printed.pop(call_id, {}).items()}
        call = self._calls.get(call_id)
        has_failed = message.metadata.get("error") is True or message.status == "failed"
        status = "error" if has_failed else as_text(message.metadata.get("status")) or "success"
        entry = {"tool_return": output, "status": status, "tool_call_id": call_id, **printed}
        name = message.name or (call.name if call else None)
        item = {"name": name, **entry, "tool_returns": [{"type": "tool", **entry}]}
        self._held.append(self._item(message, "tool_return_message", **item))

    # -- endings

    def _end(self, run: e.Run) -> Iterator[dict[str, Any]]:
        """Yield the items of the run's end: what was held back, the stop_reason, the usage, and an error."""
        for call_id, console in [*self._consoles.items()]:
            if call_id in self._calls:
                self._hold_return(console, call_id, "")
        self._open.clear()
        yield from self._release()
        if run.status == "requires_action":
            for call in self._waiting.values():
                yield from self._request_approval(call)
        has_failed = run.status in ("failed", "expired")
        reason = run.finish_reason or ""
        if STATUS_OF_STOP_REASON.get(reason) != ("failed" if has_failed else run.status):
            reason = _STOP_REASON_OF_STATUS.get(run.status, "error")
        yield {"message_type": "stop_reason", "stop_reason": reason}
        if (usage := run.usage) is not None:
            yield {
                **usage.details,
                "message_type": "usage_statistics",
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
            }
        if has_failed and not self._has_failed:
            self._has_failed = True
            yield self._error({"message": f"the run ended as {run.status}", **(run.error or {})})

    def _error(self, error: WireObject) -> dict[str, Any]:
        return {
            "message_type": "error_message",
            "run_id": self._run.id,
            "error_type": str(error.get("type") or error.get("code") or "internal_error"),
            "message": str(error.get("message") or ""),
            **without_keys({"detail": error.get("detail"), "code": error.get("code")}),
        }


def _call_id(confirmation: Confirmation) -> str:
    return confirmation.subject.call_id or confirmation.subject.id or confirmation.id


def _name_of(subject: Message) -> str:
    """Return the name of the call that asks for an approval of this."""
    return subject.name or (_CODE_TOOL if isinstance(subject, m.CodeMessage) else subject.type)


def _arguments(subject: Message) -> str:
    """Return the arguments of a call, or of the call that another message is sent as."""
    if isinstance(subject, m.ToolCallMessage):
        return subject.content
    is_code = isinstance(subject, m.CodeMessage)
    code = {"code": subject.content, "language": subject.format or "python"}
    return msgspec.json.encode(code if is_code else {"content": subject.content}).decode()
