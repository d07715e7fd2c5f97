"""Turns the run of an agent into one answer of a model, as a client of a model's API expects it.

An agent makes several model calls, and calls tools and runs code of its own in between. A client of an API runs each call that
it sees, so it sees those of its own tools alone. The stage is a step before an encoder: canonical events in, canonical events
out, for the encoder of any API.

| of the run | in the answer |
|---|---|
| its texts, refusals, reasoning | the same, without a provider's own metadata; an empty line ends a text that own calls follow |
| calls of the client's tools | the same; where the run has an id, with ids that name the run |
| own calls, their outputs, code, console, what code shows | as `activity` has it: nothing, reasoning or text |
| the tokens of its steps | one sum |
| an answer that begins again, of which something was sent | the end, with the error: what was sent cannot be taken back |
| its end | completed; incomplete; `requires_action`, where calls of the client wait; else failed |
| redacted reasoning, sub-agents, other choices, confirmations, steps | nothing |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from zlib import crc32

from msgspec.structs import replace

from .. import events as e
from .. import messages as m
from ..answers import Confirmation
from ..messages import Message
from .answer_activity import Activity, activity_text, question_text

__all__ = ["QUESTION", "AnswerStage", "call_mark", "first_question"]

QUESTION = "question"
"""The id of the message with the question that an answer ends with."""

_SEPARATOR = "\n\n"
_SPEECH = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage)


class AnswerStage:
    """The events of one answer.

    Args:
        tools: the names of the client's tools.
        model: the model's name, as the client has it.
        answer_id: the id of the answer, made of that of the run.
        run_id: the id of the run, that the ids of calls name; None leaves both as they are.
        call_prefix: what the ids of calls begin with.
        reasoning_format: the format of messages with reasoning.
        activity: how the agent's own calls are shown.
        asks: whether the answer shows a confirmation that waits at its end.

    Attributes:
        has_begun: whether the model has said anything.
        has_failed: whether the run has ended with an error.
    """

    def __init__(
        self,
        tools: Collection[str],
        model: str,
        *,
        answer_id: str | None,
        run_id: str | None,
        call_prefix: str,
        reasoning_format: str | None,
        activity: Activity,
        asks: bool = False,
    ) -> None:
        self._tools = frozenset(tools)
        self._model = model
        self._answer_id = answer_id
        self._run_id = run_id
        self._call_prefix = call_prefix
        self._reasoning_format = reasoning_format
        self._activity = activity
        self._asks = asks
        self._run: e.Run | None = None
        self._open: dict[str, Message] = {}  # what the answer shows of messages that grow, by their ids
        self._text: m.TextMessage | None = None  # the newest text, which is complete, and may get an empty line
        self._code_calls: set[str | None] = set()  # whose code is a message of its own
        self._activities = 0
        self._activities_to_show: list[Message] = []  # once no text is open
        self._shown: set[str] = set()  # the agent's ids of the client's calls
        self._sent: set[str] = set()  # those of the messages that have content in it
        self._is_over = False
        self._asked: dict[str, Confirmation] = {}  # what nobody has decided
        self.has_begun = self.has_failed = False

    def feed(self, event: e.Event) -> Iterator[e.Event]:
        """Yield the events of the answer for the next one of the run."""
        if self._is_over:
            return
        match event:
            case e.RunCreated(run=run) if self._run is None:
                self._run = run
                yield e.RunCreated(self._run_of(run))
            case e.StreamRetry(error=name, message=text) if not self._sent.isdisjoint(event.withdrawn):
                yield from self._end(e.Run(status="failed", error={"type": name, "message": text}))
            case e.Usage():
                yield replace(event, details={})
            case e.RunStepCreated():
                yield from self._end_text(is_last=False)
            case e.RunDone(run=run):
                yield from self._end(run)
            case e.StreamException():
                self.has_failed = True
                yield from self._end_text(is_last=True)
                yield event
            case e.ConfirmationCreated(confirmation=confirmation):
                self._asked[confirmation.id] = confirmation
            case e.ConfirmationDone(confirmation=confirmation) if confirmation.status != "unanswered":
                self._asked.pop(confirmation.id, None)
            case e.Created(message=message):
                yield from self._begin(message)
            case e.Delta():
                shown = self._open.get(event.message_id)
                if shown is not None and not event.replace:
                    self._sent.add(shown.id)
                    yield type(event)(shown.id, event.value, snapshot=shown)
            case e.AnnotationAdded():
                shown = self._open.get(event.message_id)
                if shown is not None:
                    yield replace(event, annotation=_own(event.annotation), snapshot=shown)
            case e.Done(message=message):
                yield from self._finish(message)
            case _:
                pass

    # -- messages

    def _begin(self, message: Message) -> Iterator[e.Event]:
        if not _is_of_answer(message):
            return
        self.has_begun = True
        if self._is_clients(message):
            yield from self._end_text(is_last=True)
            shown = message.header()
            shown.call_id = self._name_call(message)
            self._shown.add(message.call_id or message.id)
        elif message.role == "assistant" and isinstance(message, _SPEECH):
            yield from self._end_text(is_last=isinstance(message, m.TextMessage | m.RefusalMessage))
            shown = message.header()
        else:
            if message.role == "assistant":
                yield from self._end_text(is_last=False)
            if isinstance(message, m.CodeMessage):
                self._code_calls.add(message.call_id)
            return
        shown.metadata = {}
        if isinstance(shown, m.ReasoningMessage):
            shown.format = self._reasoning_format
        self._open[message.id] = shown
        yield shown.created_event(shown)

    def _finish(self, message: Message) -> Iterator[e.Event]:
        shown = self._open.pop(message.id, None)
        if shown is None:
            if self._activity != "hidden" and _is_of_answer(message):
                self._activities_to_show.append(message)
                yield from self._show_activities()
            return
        done = message.copy()
        done.call_id, done.format, done.metadata = shown.call_id, shown.format, shown.metadata
        if isinstance(done, m.TextMessage):
            done.annotations = [*map(_own, done.annotations)]
            self._text = done  # `_end_text` ends it, once it is known what follows
        else:
            yield done.done_event(done)
        yield from self._show_activities()

    def _show_activities(self) -> Iterator[e.Event]:
        """Show what the agent has done, unless a text is open: calls may end before the text that they follow, which has to end first."""
        if not any(isinstance(message, m.TextMessage) for message in self._open.values()):
            messages, self._activities_to_show = self._activities_to_show, []
            for message in messages:
                yield from self._show_activity(message)

    def _end_text(self, *, is_last: bool) -> Iterator[e.Event]:
        """End the newest text. Clients join the texts of an answer with nothing between them, so that one which own calls
        follow ends with an empty line."""
        text, self._text = self._text, None
        if text is None:
            return
        if not is_last and text.content:
            yield e.TextDelta(text.id, _SEPARATOR, snapshot=text.header())
            text.replace_content(text.content + _SEPARATOR)
        text.metadata = {**text.metadata, "phase": "final_answer" if is_last else "commentary"}
        yield text.done_event(text)

    def _is_clients(self, message: Message) -> bool:
        is_call = isinstance(message, m.ToolCallMessage) and not message.provider_executed
        return is_call and message.parent_id is None and message.name in self._tools

    def _name_call(self, call: Message) -> str:
        """Return the id that a call of the client has in answers."""
        if self._run_id is None:
            return call.call_id or call.id
        return f"{self._call_prefix}{self._run_id}_{call_mark(call)}"

    def _show_activity(self, message: Message) -> Iterator[e.Event]:
        if message.role != "assistant" and message.call_id in self._shown:
            return  # the client's own output
        if isinstance(message, m.ToolCallMessage) and (message.call_id or message.id) in self._code_calls:
            return
        text = activity_text(message, fenced=self._activity == "text")
        if text:
            yield from self._end_text(is_last=False)
            self._activities += 1
            id, content = f"activity-{self._activities}", text + _SEPARATOR
            if self._activity == "text":
                yield from _whole(m.TextMessage(id, content=content, metadata={"phase": "commentary"}))
            else:
                yield from _whole(m.ReasoningMessage(id, content=content, format=self._reasoning_format))

    # -- the run

    def _run_of(self, run: e.Run) -> e.Run:
        begun = run if self._run is None else self._run
        return e.Run(
            id=self._answer_id or run.id,
            status=run.status,
            model=self._model,
            created_at=_whole_seconds(begun.created_at or run.created_at),
            completed_at=_whole_seconds(run.completed_at),
        )

    def _end(self, run: e.Run) -> Iterator[e.Event]:
        self._is_over = True
        done = self._run_of(run)
        if (usage := run.usage) is not None:  # providers count what was cached as they like
            done.usage = e.Usage(usage.total_tokens - usage.output_tokens, usage.output_tokens, usage.total_tokens)
        waits = run.status == "requires_action"
        if waits and self._asks and self._asked:
            yield from self._end_text(is_last=False)
            yield from self._ask(first_question(self._asked))
        yield from self._end_text(is_last=True)
        if run.status == "cancelled" or (run.status == "incomplete" and run.error):
            done.status, done.error = "failed", run.error or {"message": "The run was cancelled.", "code": "cancelled"}
        elif run.status in ("failed", "expired"):
            done.error = run.error
        elif run.status == "incomplete":
            done.finish_reason = "content_filter" if run.finish_reason in ("content_filter", "refusal") else "length"
        elif not (waits and self._shown):
            done.status = "completed"
        self.has_failed = self.has_failed or done.status in ("failed", "expired")
        yield e.RunDone(done)

    def _ask(self, confirmation: Confirmation) -> Iterator[e.Event]:
        """Yield the text of a question that the next request answers."""
        text = question_text(confirmation, self._run_id or "")
        yield from _whole(m.TextMessage(QUESTION, content=text, metadata={"phase": "final_answer"}))


def first_question(asked: Mapping[str, Confirmation]) -> Confirmation:
    """Return which of several confirmations an answer ends with, and the next request decides."""
    return asked[min(asked)]


def call_mark(call: Message) -> str:
    """Return what tells a call from the others of its run, in the ids that clients have."""
    return f"{crc32(call.id.encode('utf-8', 'surrogatepass')):08x}"


def _whole_seconds(time: float | None) -> int | None:
    """Return a time as all these APIs have it: clients refuse parts of a second."""
    return None if time is None else int(time)


def _own(annotation: m.Annotation) -> m.Annotation:
    """Return a citation without the provider's own object."""
    return replace(annotation, raw=None)


def _whole(message: Message) -> Iterator[e.Event]:
    """Yield the events of a message that comes at once."""
    header = message.header()
    yield message.created_event(header)
    yield message.delta_event(message.id, message.content, snapshot=header)
    yield message.done_event(message)


def _is_of_answer(message: Message) -> bool:
    """Whether a message is the agent's own, in its first choice, and can be shown."""
    if message.parent_id is not None or message.choice or message.role not in ("assistant", "computer"):
        return False
    if isinstance(message, m.ReasoningMessage) and message.format == "redacted":
        return False
    return "field" not in message.metadata or isinstance(message, m.TextMessage | m.CodeMessage)
