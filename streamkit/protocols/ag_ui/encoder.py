"""Encodes events as AG-UI, for its clients. The tables of `Encoder` say how, and what is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Message
from .. import base
from ..ui_files import file_url
from ..ui_parts import (
    EXTRA_KEY,
    MASKED_ERROR,
    application_event,
    extra_call_id,
    extra_fields,
    is_application_event,
    static_form,
    usage_object,
)
from ..values import WireObject, as_object, as_text, without_keys
from .calls_out import OutgoingCalls
from .input import to_input
from .parents import Parents
from .wire import CONSOLE, FILE, KEY, OWN, Version, token_usage

__all__ = ["Encoder"]

Item = dict[str, Any]


class Encoder(base.Encoder):
    """Canonical events as AG-UI events.

    | canonical | here |
    |---|---|
    | a run | RUN_STARTED, RUN_FINISHED with its usage; RUN_ERROR if it failed |
    | a run that was cancelled | RUN_FINISHED with the outcome `cancelled`; in 0.x RUN_ERROR with the code `cancelled` |
    | one that waits for answers | RUN_FINISHED with the outcome `interrupt`, or `pendingToolCallIds`; in 0.x neither |
    | a run step | STEP_STARTED, STEP_FINISHED with its id as the name |
    | texts, refusals | TEXT_MESSAGE_…, of the roles assistant, user and system |
    | reasoning | REASONING_START, REASONING_MESSAGE_…, REASONING_END |
    | a tool call; its output | TOOL_CALL_START, ARGS (pieces are joined), END; TOOL_CALL_RESULT |
    | code | a call of `execute_code` with `{language, code}` |
    | what it prints, the line that runs | ACTIVITY_SNAPSHOT, ACTIVITY_DELTA of the type CONSOLE: |
    | | `{output: [{stream, text}], activeLine, callId}`; at the step's end also the call's result, if it has no other |
    | a confirmation, also of a sub-agent with its call; its outcome | CUSTOM `streamkit.confirmation`; `streamkit.confirmation_done` |
    | a citation | CUSTOM `streamkit.annotation` |
    | images, audio, files with a URL or bytes | ACTIVITY_SNAPSHOT of the type FILE: `{url, mimeType}` |
    | every other message | CUSTOM `streamkit.message`, with its static form |
    | a `replace` delta | CUSTOM `streamkit.replacement`: no event takes back what was sent |
    | an application's own event | CUSTOM, with its type as the name |
    | messages that are withdrawn (a retry) | MESSAGES_SNAPSHOT of all others, if the client's `messages` are known |
    | a raw event | RAW |
    | a failure | RUN_ERROR, its text masked unless `expose_errors` |

    Fields that no event has a place for stand in `metadata.streamkit`; version 0 has no metadata.

    | canonical | lost |
    |---|---|
    | a run | metadata and `raw`; in 0.x its model, times, usage and finish_reason |
    | run steps | their statuses, errors and types |
    | usage | reports within a step; details but for `reasoningTokens` and `cachedInputTokens` |
    | a call's arguments | where its pieces were cut |
    | a confirmation | that its subject was the code in a call, and not the call |
    | `metadata` of messages, of deltas and of citations | all but what came over this protocol, `custom` and `error` |
    | in 0.x: messages | code becomes a call; `group`, `index`, `format`, `status` and the name of an output |
    | a retry | all but the snapshot; a client keeps withdrawn reasoning where the snapshot has no other |
    | warnings, choices other than the first | all |

    Args:
        version: what the client speaks: "1.0", or "0" for 0.0.40 and later (a `RunAgentInput` without `protocolVersion`).
        thread_id: the `threadId` of the `RunAgentInput`; the run's id by default.
        run_id: its `runId`; the run's id by default.
        messages: what the client has, such as the `messages` of the `RunAgentInput`: a client puts a snapshot in the place of all
            that it has. Without them nothing can be taken back, so that no answer begins again (`retry=`).
        expose_errors: show what failed. It may be none of a user's business.

    Raises:
        UsageError: there is no such version.
    """

    name = "ag_ui"
    choices = False
    questions = True

    def __init__(
        self,
        version: Version = "1.0",
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        messages: Iterable[Message] | None = None,
        expose_errors: bool = False,
    ) -> None:
        if version not in get_args(Version):
            raise UsageError(f"there is no version {version!r} of AG-UI; there are '0' and '1.0'")
        self._is_1 = version == "1.0"
        self._thread_id = thread_id
        self._run_id = run_id
        self._expose_errors = expose_errors
        self._ids: Item = {}
        self._early: list[Item] = []  # what came before the run began
        self._steps: list[str] = []
        self._texts: dict[str, str] = {}  # the type of their deltas, by the id of open texts
        self._parents = Parents()
        self._calls = OutgoingCalls(self._parents, self._extra if self._is_1 else _no_extra)
        self._consoles: set[str] = set()
        self._questions: dict[str, Confirmation] = {}
        self._usage: e.Usage | None = None
        self._model: str | None = None
        self.withdraws = messages is not None
        self._before = [*(messages or ())]
        self._shown: list[Message] = []  # those of this run, where they may be taken back
        self._has_ended = self._has_failed = False

    def feed(self, event: e.Event) -> Sequence[Item]:
        """Return the events of one event: none for what the protocol cannot express. Only a failure comes after the
        run's end."""
        if self._has_ended and (self._has_failed or not isinstance(event, e.StreamException)):
            return ()
        if isinstance(event, e.Delta):
            kind = self._texts.get(event.message_id)
            if kind is not None and not event.replace:
                return ({"type": kind, "messageId": event.message_id, "delta": event.value},) if event.value else ()
        items = [*self._encode(event)]
        if not self._ids:  # a run has to begin before anything else
            self._early += items
            return ()
        if self._early:
            items, self._early = [items[0], *self._early, *items[1:]], []
        return items

    def _encode(self, event: e.Event) -> Iterator[Item]:
        match event:
            case e.RunCreated(run=run):
                yield from self._begin(run)
            case e.RunStepCreated(run_step=step):
                self._steps.append(step.id)
                self._parents.other()
                yield {"type": "STEP_STARTED", "stepName": step.id}
            case e.Usage():
                self._usage = event  # the newest report of a step is all that it used
            case e.RunStepDone(run_step=step):
                yield from self._calls.results()
                yield from self._finish_step(step.id)
            case e.Created(message=message):
                if self.withdraws:
                    self._shown.append(message)
                yield from self._created(message)
            case e.Delta(snapshot=Message() as message):
                yield from self._delta(message, event)
            case e.Done(message=message):
                yield from self._done(message)
            case e.AnnotationAdded(message_id=id, annotation=annotation):
                value = without_keys(msgspec.to_builtins(annotation), "raw")
                yield _custom("annotation", {"messageId": id, "annotation": value})
            case e.ActiveLine(message_id=id, line=line):
                yield from self._console(id, event.snapshot)
                yield _patch(id, "/activeLine", line)
            case e.ConfirmationCreated(confirmation=confirmation):
                yield from self._ask(confirmation)
            case e.ConfirmationDone(confirmation=confirmation):
                yield from self._decide(confirmation)
            case e.StreamRetry(withdrawn=ids):
                yield from self._withdraw(frozenset(ids))
            case e.RunDone(run=run):
                yield from self._end(run)
            case e.StreamException(error=name, message=text):
                error = {"message": text, "code": name}
                yield from [self._error(error)] if self._has_ended else self._end(e.Run(status="failed", error=error))
            case e.RawEvent(name=name, data=data):
                yield {"type": "RAW", "event": data, "source": name}
            case _ if is_application_event(type(event)):
                yield {"type": "CUSTOM", "name": event.type, "value": application_event(event)}
            case _:
                pass

    # -- the run and its steps

    def _begin(self, run: e.Run) -> Iterator[Item]:
        self._model = run.model or self._model
        if self._ids:
            return
        run_id = self._run_id or run.id or "run-1"
        self._ids = {"threadId": self._thread_id or run_id, "runId": run_id}
        own_id = run.id if run.id != run_id else None
        extra = without_keys({"id": own_id, "model": run.model, "created_at": run.created_at})
        version = {"protocolVersion": "1.0"} if self._is_1 else {}
        yield {"type": "RUN_STARTED", **self._ids, **version, **self._metadata(extra)}

    def _finish_step(self, id: str) -> Iterator[Item]:
        if id not in self._steps:
            return
        self._steps.remove(id)
        extra: Item = {} if self._usage is None else {"usage": usage_object(self._usage)}
        self._usage = None
        yield {"type": "STEP_FINISHED", "stepName": id, **self._metadata(extra)}

    def _end(self, run: e.Run) -> Iterator[Item]:
        yield from self._begin(run)
        yield from self._calls.results(is_end=run.status == "completed")
        for id in [*self._steps]:
            yield from self._finish_step(id)
        self._has_ended = True
        self._model = run.model or self._model
        usage = {} if run.usage is None else {"usage": token_usage(usage_object(run.usage), self._model)}
        if not self._is_1:
            usage = {}
        if run.status in ("failed", "expired") or (run.status == "incomplete" and run.error is not None):
            yield {**self._error(run.error or {}), **usage}
        elif run.status == "cancelled" and not self._is_1:
            yield {"type": "RUN_ERROR", "message": "The run was cancelled.", "code": "cancelled"}
        else:
            values = {"finishReason": run.finish_reason, "model": self._model, "completed_at": run.completed_at}
            extra = without_keys(values)
            if run.status not in ("completed", "cancelled"):
                extra["status"] = run.status
            yield {"type": "RUN_FINISHED", **self._ids, **self._outcome(run), **usage, **self._metadata(extra)}

    def _error(self, error: Mapping[str, Any]) -> Item:
        self._has_failed = True
        shown = as_text(error.get("message")) if self._expose_errors else ""
        code = as_text(error.get("code")) or as_text(error.get("type"))
        return {"type": "RUN_ERROR", "message": shown or MASKED_ERROR, **({"code": code} if code else {})}

    def _outcome(self, run: e.Run) -> Item:
        if not self._is_1:
            return {}
        if run.status == "cancelled":
            return {"outcome": {"type": "cancelled"}}
        if run.status == "requires_action" and self._questions:
            return {
                "outcome": {"type": "interrupt", "interrupts": [*map(self._calls.interrupt, self._questions.values())]}
            }
        pending = self._calls.pending() if run.status == "requires_action" else []
        return {"outcome": {"type": "success", **({"pendingToolCallIds": pending} if pending else {})}}

    def _metadata(self, extra: Item, message: Message | None = None) -> Item:
        """Return the `metadata` of an event: what came with its message over this protocol, and the fields to keep."""
        others: WireObject = {} if message is None else as_object(message.metadata.get(KEY))
        found = {**others, **({EXTRA_KEY: extra} if extra else {})}
        return {"metadata": found} if found and self._is_1 else {}

    def _extra(self, message: Message, **more: Any) -> Item:
        return self._metadata(more, message)

    def _withdraw(self, ids: Collection[str]) -> Iterator[Item]:
        """Take these messages of the run back."""
        self._calls.withdraw(ids)
        questions = self._questions.items()
        self._questions = {id: question for id, question in questions if question.subject.id not in ids}
        left = [message for message in self._shown if message.id not in ids]
        if len(left) < len(self._shown):
            of_run = {
                message.id for message in self._shown
            }  # where the client attached to it, it has sent some of them
            self._before = [message for message in self._before if message.id not in of_run]
            self._shown = left
            yield {"type": "MESSAGES_SNAPSHOT", "messages": to_input([*self._before, *left])}

    # -- messages

    def _created(self, message: Message) -> Iterator[Item]:
        id = message.id
        if isinstance(message, m.ReasoningMessage):
            self._texts[id] = "REASONING_MESSAGE_CONTENT"
            self._parents.other()
            yield {"type": "REASONING_START", "messageId": id}
            extra = self._metadata(extra_fields(message, id=id), message)
            yield {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning", **extra}
        elif _is_text(message):
            self._texts[id] = "TEXT_MESSAGE_CONTENT"
            self._parents.text(id, message.role)
            extra = self._metadata(extra_fields(message, "role", id=id), message)
            yield {"type": "TEXT_MESSAGE_START", "messageId": id, "role": message.role, **extra}
        elif isinstance(message, m.ToolCallMessage) or _is_run_code(message):
            yield from self._calls.begin(message)
        elif isinstance(message, m.ConsoleMessage):
            yield from self._console(id, message)

    def _delta(self, message: Message, delta: e.Delta) -> Iterator[Item]:
        part = self._calls.by_message.get(message.id)
        if delta.replace and not isinstance(message, m.ImageMessage | m.ToolOutputMessage):
            if part is not None:
                yield from self._calls.flush(part)
            yield _custom("replacement", {"messageId": message.id, "content": delta.value})
            if isinstance(message, m.ConsoleMessage):
                yield _patch(message.id, "/output", [{"text": delta.value}])
        elif part is not None:
            yield from self._calls.delta(part, delta.value)
        elif isinstance(message, m.ConsoleMessage):
            stream = (delta.metadata or {}).get("stream")
            piece = without_keys({"stream": stream if isinstance(stream, str) else None, "text": delta.value})
            yield _patch(message.id, "/output/-", piece)

    def _done(self, message: Message) -> Iterator[Item]:
        id = message.id
        if isinstance(message, m.ReasoningMessage) or _is_text(message):
            prefix = "REASONING" if isinstance(message, m.ReasoningMessage) else "TEXT"
            self._texts.pop(id, None)
            extra = self._metadata(extra_fields(message, "role", id=id), message)
            yield {"type": f"{prefix}_MESSAGE_END", "messageId": id, **extra}
            if prefix == "REASONING":
                yield {"type": "REASONING_END", "messageId": id}
        elif id in self._calls.by_message:
            yield from self._calls.done(message)
        elif isinstance(message, m.ConsoleMessage):
            self._calls.printed(message)
            yield _patch(id, "/status", message.status)
        elif isinstance(message, m.ToolOutputMessage):
            self._parents.other()
            yield from self._calls.output(message)
        else:
            self._parents.other()
            yield self._file(message)

    def _file(self, message: Message) -> Item:
        is_file = isinstance(message, m.ImageMessage | m.AudioMessage | m.FileMessage) and message.status == "completed"
        found = file_url(message) if is_file else None
        if found is None:
            return _custom("message", static_form(message))
        extra = self._metadata(
            {**extra_fields(message, "format", id=message.id), **extra_call_id(message, None)}, message
        )
        content = {"url": found[0], "mimeType": found[1]}
        return {"type": "ACTIVITY_SNAPSHOT", "messageId": message.id, "activityType": FILE, "content": content, **extra}

    def _console(self, id: str, message: Message | None) -> Iterator[Item]:
        """Yield the items of a console, which begins with its first line or with its first output."""
        part = None if message is None else self._calls.part_of(message)
        call_id = part.id if part is not None else None if message is None else message.call_id
        extra: Item = {}
        if message is not None:
            own = extra_fields(message, id=id, default_role="computer")
            extra = self._metadata({**own, **extra_call_id(message, call_id)}, message)
        if id not in self._consoles:
            self._consoles.add(id)
            self._parents.other()
            content: Item = {"output": [], **without_keys({"callId": call_id})}
            yield {"type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": CONSOLE, "content": content, **extra}
        elif message is not None and message.status == "in_progress" and not message.size:
            yield {**_patch(id, "/callId", call_id), **extra}  # it began with its first line

    # -- questions

    def _ask(self, confirmation: Confirmation) -> Iterator[Item]:
        subject = confirmation.subject
        if self._calls.find(subject) is None:
            yield from self._calls.whole(subject)
        part = self._calls.find(subject)
        assert part is not None
        self._questions[confirmation.id] = confirmation
        part.has_question = True
        shown = {"id": confirmation.id, "toolCallId": part.id, "status": "pending"}
        yield _custom("confirmation", shown | without_keys({"expires_at": confirmation.expires_at}))

    def _decide(self, confirmation: Confirmation) -> Iterator[Item]:
        if not confirmation.answered:
            return  # it stays open: the answer comes with the next request
        self._questions.pop(confirmation.id, None)
        part = self._calls.find(confirmation.subject)
        if part is not None:
            part.has_question = False
            if confirmation.status == "declined":
                self._calls.deny(part)
        outcome = {"status": confirmation.status, "edited": confirmation.edited, "reason": confirmation.reason}
        yield _custom("confirmation_done", {"id": confirmation.id, **without_keys(outcome)})


def _no_extra(message: Message, **more: Any) -> Item:
    return {}


def _custom(name: str, value: Any) -> Item:
    return {"type": "CUSTOM", "name": f"{OWN}{name}", "value": value}


def _patch(id: str, path: str, value: Any) -> Item:
    """Return a change of a console. `add` replaces what is there, and with the path `/output/-` it appends."""
    patch = [{"op": "add", "path": path, "value": value}]
    return {"type": "ACTIVITY_DELTA", "messageId": id, "activityType": CONSOLE, "patch": patch}


def _is_text(message: Message) -> bool:
    kinds = (m.TextMessage, m.RefusalMessage)
    return isinstance(message, kinds) and message.role in ("assistant", "user", "system")


def _is_run_code(message: Message) -> bool:
    return isinstance(message, m.CodeMessage) and message.role == "assistant"
