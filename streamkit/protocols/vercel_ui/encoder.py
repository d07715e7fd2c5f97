"""Encodes events as a UI message stream for `useChat`. The tables of `Encoder` say how, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Annotation, Message
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
from ..values import as_text, without_keys
from .tool_parts import OutgoingToolParts, provider_metadata
from .wire import Version, finish_reason_of

__all__ = ["Encoder"]

Chunk = dict[str, Any]


class Encoder(base.Encoder):
    """Canonical events as one UI message.

    | canonical | here |
    |---|---|
    | a run | `start` with its id as `messageId`; `finish` with its reason and its usage; `abort` if it was cancelled |
    | a run step | `start-step`, `finish-step`, as soon as no part is open; its usage: `message-metadata` |
    | the assistant's text, a refusal; reasoning | `text-…`; `reasoning-…` |
    | a tool call | `tool-input-start`, `-delta` (pieces are joined), `-available`; `-error` if it is malformed or cut off |
    | a tool output | `tool-output-available`, as an object where it is one; `tool-output-error` |
    | code | a dynamic call of `execute_code` with `{language, code}`; when it is done, `data-code` as well |
    | what it prints | `data-console` (`{callId, output, status}`, at first, as it grows, at the end), and `data-console-delta` |
    | | for each piece, which is transient; and as the call's output `{stdout, stderr}`, preliminary until its end |
    | the line that runs | `data-active-line`, transient |
    | a confirmation, also of a sub-agent with its call | `tool-approval-request`, and when it is declined `tool-output-denied`; `data-confirmation` in version 5 |
    | its outcome | `tool-approval-response`; before version 7, and with edited arguments, `data-confirmation` |
    | a citation | `source-url`, `source-document`; one of neither: `data-annotation` |
    | images, audio, files with a URL or bytes | `file` |
    | every other message | `data-message`, with its static form |
    | a `replace` delta of a text | `data-replacement`: no chunk takes back what was sent; arguments begin again |
    | messages that are withdrawn (a retry) | `data-retry`, transient: `{attempt, delay, ids}` of their parts, which are the last step's |
    | an application's own event | `data-<its type>`, with its fields |
    | a failure | `error`, its text masked unless `expose_errors`; then `finish` |

    Fields that no chunk has a place for stand in `providerMetadata.streamkit`.

    | canonical | lost |
    |---|---|
    | run steps | their ids, statuses and errors |
    | a run | its `finish_reason`'s word if it is one of this protocol for the same; the `raw`, the metadata |
    | usage | reports within a step; details but for `reasoningTokens` and `cachedInputTokens` |
    | a tool output | before version 7 its message's id, `group` and `index` |
    | a call's arguments | where its pieces were cut; in version 5 code becomes a call, and its message's id is the call's |
    | a confirmation | that its subject was the code in a call, and not the call; when it expires |
    | `metadata` of messages, of deltas and of citations | all but what came over this protocol, `custom` and `error` |
    | texts | `status`, except `incomplete`, `cancelled` and `failed` |
    | raw events, warnings, choices other than the first | all |

    Args:
        version: the major version of the `ai` package that reads the stream. What is written for 6 is read by 6 and 7. 5
            knows no approvals. 7 also shows an approval at once. Early releases throw at fields that came later: nothing is
            sent that 5.0.92, 6.0.100 and 7.0.0 do not know.
        message_id: the UI message's id; the run's by default. A run that goes on in another response keeps it.
        after: where the UI message goes on in another response: its messages so far, such as `request.messages`, and its
            confirmations. What their calls give is then put into the parts that the client has.
        expose_errors: show what failed. It may be none of a user's business.

    Raises:
        UsageError: there is no such version.
    """

    name = "vercel_ui"
    done = b"[DONE]"
    headers = {"x-vercel-ai-ui-message-stream": "v1"}
    choices = False
    questions = True
    withdraws = True

    def __init__(
        self,
        version: Version = 6,
        *,
        message_id: str | None = None,
        after: Iterable[Message | Confirmation] = (),
        expose_errors: bool = False,
    ) -> None:
        if version not in get_args(Version):
            raise UsageError(f"there is no version {version!r} of the UI message stream; there are 5, 6 and 7")
        self._version = version
        self._message_id = message_id
        self._expose_errors = expose_errors
        self._texts: dict[str, str] = {}  # the type of their deltas, by the id of open texts
        self._open: set[str] = set()  # the ids of open parts
        self._boundaries: list[Chunk] = []  # of steps, until nothing is open
        self._tools = OutgoingToolParts(version)
        for earlier in self._shown_before([*after]):
            self._tools.add_earlier(earlier)
        self._shown: dict[str, int] = {}  # how much of a console's output was shown, by message id
        self._sources: dict[str, int] = {}  # how many sources a text has
        self._usage: e.Usage | None = None
        self._has_begun = False
        self._has_ended = self._has_failed = False

    def _shown_before(self, after: Sequence[Message | Confirmation]) -> list[Message | Confirmation]:
        """Return what the client has of these: of a sub-agent only what its questions are about."""
        shown = [one for one in after if isinstance(one, Confirmation) and self.shows_question(one)]
        return [*(one for one in after if not isinstance(one, Confirmation) and self.shows(one)), *shown]

    def feed(self, event: e.Event) -> Sequence[Chunk]:
        """Return the chunks of one event: none for what the protocol cannot express."""
        if isinstance(event, e.Delta):
            kind = self._texts.get(event.message_id)
            if kind is not None and not event.replace:
                return ({"type": kind, "id": event.message_id, "delta": event.value},) if event.value else ()
        return [*self._encode(event)]

    def _encode(self, event: e.Event) -> Iterator[Chunk]:
        match event:
            case e.RunCreated(run=run):
                yield from self._begin(run)
            case e.RunStepCreated():
                yield from self._boundary("start-step")
            case e.Usage():
                self._usage = event  # the newest report of a step is all that it used
            case e.RunStepDone():
                if self._usage is not None:
                    yield {"type": "message-metadata", "messageMetadata": {"stepUsage": usage_object(self._usage)}}
                    self._usage = None
                yield from self._boundary("finish-step")
            case e.Created(message=message):
                yield from self._created(message)
            case e.Delta(snapshot=Message() as message):
                yield from self._delta(message, event)
            case e.Done(message=message):
                yield from self._done(message)
                yield from self._release(message.id)
            case e.AnnotationAdded():
                yield self._source(event.message_id, event.annotation)
            case e.ActiveLine():
                part = None if event.snapshot is None else self._tools.part_of(event.snapshot)
                data = {"messageId": event.message_id, "line": event.line}
                id = event.message_id if part is None else part.id
                yield {"type": "data-active-line", "id": id, "data": data, "transient": True}
            case e.ConfirmationCreated(confirmation=confirmation):
                yield from self._tools.ask(confirmation)
            case e.ConfirmationDone(confirmation=confirmation):
                yield from self._tools.decide(confirmation)
            case e.StreamRetry(attempt=attempt, delay=delay, withdrawn=ids):
                withdrawn = [*map(self._tools.withdraw, ids)]
                retry: Chunk = {"attempt": attempt, "delay": delay, "ids": withdrawn}
                yield {"type": "data-retry", "data": retry, "transient": True}
            case e.RunDone(run=run):
                yield from self._end(run)
            case e.StreamException(error=name, message=text):
                yield from self._fail({"message": text, "type": name})
            case _ if is_application_event(type(event)):
                yield {"type": f"data-{event.type.replace('_', '-')}", "data": application_event(event)}
            case _:
                pass

    # -- the message and its steps

    def _begin(self, run: e.Run) -> Iterator[Chunk]:
        if self._has_begun:
            return
        self._has_begun = True
        id = self._message_id or run.id
        metadata = without_keys({"model": run.model, "createdAt": _milliseconds(run.created_at)})
        start: Chunk = {"type": "start", "messageId": id} if id else {"type": "start"}
        yield {**start, "messageMetadata": metadata} if metadata else start

    def _boundary(self, type: str) -> Iterator[Chunk]:
        self._boundaries.append({"type": type})
        yield from self._release()

    def _release(self, id: str = "") -> Iterator[Chunk]:
        """Release this part, which is done. The step ends as soon as none is open: a client forgets what is open then."""
        self._open.discard(id)
        if self._boundaries and not self._open:
            boundaries, self._boundaries = self._boundaries, []
            yield from boundaries

    def _end(self, run: e.Run) -> Iterator[Chunk]:
        if self._has_ended:
            return
        yield from self._begin(run)
        self._has_ended = True
        self._open.clear()
        yield from self._release()
        yield from self._tools.finish(run.status)
        usage = None if run.usage is None else usage_object(run.usage)
        metadata = without_keys({"usage": usage, "completedAt": _milliseconds(run.completed_at)})
        has_failed = run.status in ("failed", "expired") or (run.status == "incomplete" and run.error is not None)
        if run.status == "cancelled":
            if metadata:
                yield {"type": "message-metadata", "messageMetadata": metadata}
            yield {"type": "abort"}
            return
        if has_failed:
            yield self._error(run.error)
        reason = "error" if has_failed else finish_reason_of(run.status, run.finish_reason)
        if run.finish_reason and run.finish_reason != reason:
            metadata["finishReason"] = run.finish_reason
        if run.status != "completed" and not has_failed:
            metadata["status"] = run.status
        yield {"type": "finish", "finishReason": reason, **({"messageMetadata": metadata} if metadata else {})}

    def _fail(self, error: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the failure of the stream: with its run, or after it, as in a hook that gets the end of the run."""
        if not self._has_ended:
            yield from self._end(e.Run(status="failed", error=error))
        elif not self._has_failed:
            yield self._error(error)

    def _error(self, error: Mapping[str, Any] | None) -> Chunk:
        self._has_failed = True
        shown = as_text((error or {}).get("message")) if self._expose_errors else ""
        return {"type": "error", "errorText": shown or MASKED_ERROR}

    # -- messages

    def _created(self, message: Message) -> Iterator[Chunk]:
        kind = _text_kind(message)
        if kind:
            self._texts[message.id] = f"{kind}-delta"
            self._open.add(message.id)
            yield {"type": f"{kind}-start", "id": message.id, **self._extra(message)}
        elif isinstance(message, m.ToolCallMessage) or _is_run_code(message):
            self._open.add(message.id)
            yield from self._tools.begin(message)
        elif isinstance(message, m.ConsoleMessage):
            yield self._console(message)

    def _extra(self, message: Message) -> Chunk:
        return provider_metadata(message, extra_fields(message, id=message.id))

    def _delta(self, message: Message, delta: e.Delta) -> Iterator[Chunk]:
        part = self._tools.by_message.get(message.id)
        if part is not None:
            yield from self._tools.delta(part, delta)
        elif isinstance(message, m.ConsoleMessage):
            yield from self._print(message, delta)
        elif delta.replace and message.id in self._texts:
            yield {"type": "data-replacement", "id": message.id, "data": {"content": delta.value}}

    def _done(self, message: Message) -> Iterator[Chunk]:
        kind = _text_kind(message)
        if kind:
            self._texts.pop(message.id, None)
            yield {"type": f"{kind}-end", "id": message.id, **self._extra(message)}
        elif message.id in self._tools.by_message:
            yield from self._tools.done(message)
        elif isinstance(message, m.ConsoleMessage):
            yield self._console(message)
            yield from self._tools.printed(message, is_final=True)
        elif isinstance(message, m.ToolOutputMessage):
            yield from self._tools.output(message)
        else:
            yield self._file(message)

    def _file(self, message: Message) -> Chunk:
        """Return an image, audio or a file; or any other message, as it is."""
        is_file = isinstance(message, m.ImageMessage | m.AudioMessage | m.FileMessage) and message.status == "completed"
        found = file_url(message) if is_file else None
        if found is None:
            return {"type": "data-message", "id": message.id, "data": static_form(message)}
        url, media_type = found
        extra = {**extra_fields(message, "format"), **extra_call_id(message, None)}
        return {"type": "file", "url": url, "mediaType": media_type, **provider_metadata(message, extra)}

    def _source(self, id: str, annotation: Annotation) -> Chunk:
        number = self._sources[id] = self._sources.get(id, 0) + 1
        url, file_id = annotation.url, annotation.file_id
        values = {"type": annotation.type, "quote": annotation.quote, "start": annotation.start, "end": annotation.end}
        extra = {"message_id": id, **without_keys(values)}
        source_id = f"{id}:{number}"
        title = without_keys({"title": annotation.title})
        if url:
            source: Chunk = {"type": "source-url", "sourceId": source_id, "url": url, **title}
        elif file_id:
            extra["file_id"] = file_id
            if annotation.title is None:
                extra["title"] = False  # the chunk must have one
            title = {"title": annotation.title or file_id}
            source = {
                "type": "source-document",
                "sourceId": source_id,
                "mediaType": "application/octet-stream",
                **title,
            }
        else:
            return {"type": "data-annotation", "id": id, "data": {"annotation": {**values, **title}}}
        return {**source, "providerMetadata": {EXTRA_KEY: extra}}

    # -- consoles

    def _console(self, message: Message) -> Chunk:
        """Return all that a console shows so far. A part with the same id takes its place."""
        part = self._tools.part_of(message)
        extra = extra_fields(message, id=message.id, default_role="computer")
        call_id = message.call_id if part is None else part.id
        extra |= extra_call_id(message, call_id)
        values = {
            "callId": call_id,
            "output": message.content,
            "status": message.status,
            "fields": extra or None,
        }
        return {"type": "data-console", "id": message.id, "data": without_keys(values)}

    def _print(self, message: Message, delta: e.Delta) -> Iterator[Chunk]:
        """Yield the items of a piece of output; and all of it, each time that it is half as long again."""
        stream = (delta.metadata or {}).get("stream")
        part = self._tools.part_of(message)
        if part is not None:
            if delta.replace:
                part.printed = {"stdout": [], "stderr": []}
            part.printed["stderr" if stream == "stderr" else "stdout"].append(delta.value)
        if delta.replace:
            yield {"type": "data-replacement", "id": message.id, "data": {"content": delta.value}, "transient": True}
        else:
            data = without_keys({"value": delta.value, "stream": stream if isinstance(stream, str) else None})
            yield {"type": "data-console-delta", "id": message.id, "data": data, "transient": True}
        size, shown = message.size, self._shown.get(message.id, 0)
        if delta.replace or size > shown + (shown >> 1):
            self._shown[message.id] = size
            yield self._console(message)
            yield from self._tools.printed(message, is_final=False)


def _text_kind(message: Message) -> str:
    """`text` or `reasoning` for a message that is such a part, "" for any other."""
    if isinstance(message, m.ReasoningMessage):
        return "reasoning"
    is_text = isinstance(message, m.TextMessage | m.RefusalMessage) and message.role == "assistant"
    return "text" if is_text else ""


def _is_run_code(message: Message) -> bool:
    return isinstance(message, m.CodeMessage) and message.role == "assistant"


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
