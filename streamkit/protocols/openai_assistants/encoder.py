"""Encodes canonical events as an Assistants stream, for clients of that API.

The run, its steps, the thread's messages and the tool calls are written as OpenAI's server wrote them, with every field
that the types of OpenAI's client require; a field without a value is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...events import (
    AnnotationAdded,
    Created,
    Delta,
    Done,
    Event,
    RunCreated,
    RunDone,
    RunRequiresAction,
    RunStepCreated,
    RunStepDone,
    StreamException,
)
from ...messages import (
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .. import base
from .call_writer import CallWriter
from .message_writer import MessageWriter
from .objects import content_part, stream_error_object
from .open_objects import Item
from .run_writer import AssistantsRunWriter, NamedItem, NamedItems

__all__ = ["Encoder"]


class Encoder(base.Encoder):
    """Canonical events as Assistants events, each as `{"event": name, "data": …}`. The sentinel is not an event.

    What an Assistants stream cannot express, and what stands in its place:

    | canonical | here |
    |---|---|
    | reasoning, audio, files, messages of other types, code to display; usage before a step's or the run's end | nothing |
    | confirmations, active lines, warnings, raw events | nothing |
    | parts of one `group` | parts of one message, with the id of the first; the others' are `id.1` … |
    | … that grow at the same time | a message each |
    | text whose role is `system` or `computer` | the assistant's |
    | a step with several messages, or messages and calls; one with neither | a step each; none |
    | a delta with `replace` | the final content alone |
    | an image as base64 | its data URL |
    | an image that code made, except by a file id | an image of the assistant's, in a message of its own |
    | an image that is a path | nothing |
    | a citation that is of no file; its title; an unknown start or end | nothing; nothing; 0 |
    | a citation for which no marker stands in the text | one with a marker that is not in the text |
    | a call's own id beside its `call_id`; a call that is one of two with the same id | the call's id; its own id |
    | code in a language other than Python; which stream it printed to | `code_interpreter`; nothing |
    | console output without code that it came from, or after that code's step | a call with no code |
    | a call that its provider executed, but `file_search` | a function's call, with an output, if only an empty one |
    | arguments of a `file_search`; results that are not those of this API | nothing |
    | a tool's output without its call, or after that call's step | nothing |
    | the statuses of the calls of one step, where they differ | the one that is not completed |
    | a call or code that is incomplete; why a message is, if unknown | failed; `max_tokens` |
    | a run's error code that is none of this API's; a finish reason that is none | `server_error`; null |
    | choices but the first | nothing |
    | a source that was cut off | a run that failed, with the error |
    | metadata that this API has no place for; `recipient`, `name` of no call, times of parts | nothing |
    """

    name = "openai_assistants"
    sse_ids = False
    choices = False
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = AssistantsRunWriter()
        self._messages = MessageWriter(self._run)
        self._calls = CallWriter(self._run)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the SSE event name of an item."""
        name: str = item["event"]
        return name

    def feed(self, event: Event) -> Iterable[Item]:
        """Yield the items of one event."""
        for name, data in self._feed(event):
            yield {"event": name, "data": data}

    def _feed(self, event: Event) -> NamedItems:
        match event:
            case RunCreated(run=run):
                yield from self._run.begin(run)
            case RunStepCreated(run_step=step):
                yield from self._run.begin_canonical_step(step)
            case Created(message=message):
                yield from self._created(message)
            case Delta():
                if (delta_item := self._delta_item(event)) is not None:
                    yield delta_item
            case AnnotationAdded():
                yield from self._messages.add_citation(event)
            case Done(message=message):
                yield from self._done(message)
            case RunStepDone(run_step=step):
                yield from self._run.end_canonical_step(step)
            case RunRequiresAction():
                yield from self._run.require_action()
            case RunDone(run=run):
                yield from self._run.end(run)
            case StreamException():
                yield from self._run.fail(stream_error_object(event))
            case _:
                pass

    def _created(self, message: Message) -> NamedItems:
        yield from self._run.begin_if_needed()
        match message:
            case ConsoleMessage():
                yield from self._calls.begin_console(message)
            case ImageMessage() if self._calls.is_drawn(message):
                pass  # it is written when it is done
            case CodeMessage() | ToolCallMessage():
                yield from self._calls.begin_call(message)
            case TextMessage() | RefusalMessage() | ImageMessage() if content_part(message, "") is not None:
                yield from self._messages.begin_part(message)
            case _:
                pass

    def _delta_item(self, delta: Delta) -> NamedItem | None:
        if delta.replace or not delta.value:
            return None
        has_part = self._messages.has_part(delta.message_id)
        return self._messages.delta_item(delta) if has_part else self._calls.delta_item(delta)

    def _done(self, message: Message) -> NamedItems:
        if self._messages.has_part(message.id):
            yield from self._messages.end_part(message)
            return
        match message:
            case ToolOutputMessage():
                yield from self._calls.add_output(message)
            case ImageMessage():
                yield from self._calls.add_image(message)
            case _:
                self._calls.end(message)
