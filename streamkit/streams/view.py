"""The state of a stream as users and streamkit's own packages read it. Nothing here changes it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from html import escape
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ..answers import Confirmation
from ..core.delivery import Delivery
from ..core.engine import Engine
from ..events import Event, Run, RunStep, StreamWarning, Usage
from ..handlers import Handler
from ..messages import Message, ToolCallMessage, ToolOutputMessage
from ..sources.decoding import SourceDecoder
from .timing import Times, Timing, timing_of

if TYPE_CHECKING:
    from ..core.argument_fields import ArgumentFields
    from ..core.reasoning_tag import ReasoningTag
    from ..messages.json_tree import JsonValue
    from .output import StreamOutput

__all__ = ["StreamView"]


class StreamView(Delivery):
    """The part of a stream's state that is read from outside.

    Attributes:
        engine: completes the stream's events. For streamkit's own packages, which may change with it.
        source_decoder: the decoder of the source that is being read, or was read last. For streamkit's own packages, too.
    """

    __slots__ = ("_error", "_fields", "_output", "_source_number", "_status", "_tag", "_times", "source_decoder")

    def __init__(self, engine: Engine, handlers: Sequence[Handler], *, awaits: bool) -> None:
        super().__init__(engine, handlers, awaits=awaits)
        self._fields: ArgumentFields | None = None
        self._tag: ReasoningTag | None = None
        self._output: StreamOutput | None = None  # once it is read, or has a type
        self.source_decoder: SourceDecoder | None = None
        self._source_number: int = 0
        self._error: BaseException | None = None
        self._status = "in_progress"
        self._times = Times()

    # -- what users read

    @property
    def messages(self) -> Sequence[Message]:
        """All messages so far, in the order they were created; the open ones are live."""
        return tuple(self.engine.messages.all)

    @property
    def status(self) -> str:
        """`in_progress`, then how it ended: `completed`, `incomplete`, `requires_action`, `cancelled` or `failed`."""
        return self._status

    @property
    def started(self) -> bool:
        """Whether its request was sent."""
        return self._times.start is not None

    @property
    def ended(self) -> bool:
        """Whether the stream has ended: its `StreamEnd` was delivered."""
        return self._ended

    @property
    def error(self) -> BaseException | None:
        """The error that the stream failed with, None if it did not fail."""
        return self._error

    @property
    def usage(self) -> Usage | None:
        """The run's tokens: the sum over its steps, each with its provider's last count. None if none were counted."""
        return self.engine.runs.usage

    @property
    def warnings(self) -> Sequence[StreamWarning]:
        """The warnings so far, at most the first 1000."""
        return tuple(self.engine.warnings)

    @property
    def pending(self) -> Mapping[str, Confirmation | ToolCallMessage]:
        """The questions that wait for an answer: confirmations by their id, tool calls by their call id. It is live."""
        return Pending(self.engine.pending.waiting)

    @property
    def tool_outputs(self) -> Sequence[ToolOutputMessage]:
        """The outputs of tools in the present run step, else in the last one: what the next request sends back (`then=`).
        Those that the provider's own tools gave are among them; `to_input` leaves these out. A sub-agent's are not."""
        step = self.current_run_step_snapshot
        of_step = takewhile(
            lambda message: step is not None and message.step_id == step.id, reversed(self.engine.messages.all)
        )
        outputs = (one for one in of_step if isinstance(one, ToolOutputMessage) and one.parent_id is None)
        return tuple(outputs)[::-1]

    @property
    def confirmations(self) -> Sequence[Confirmation]:
        """All confirmations so far, decided ones too."""
        return tuple(self.engine.pending.confirmations)

    @property
    def cursor(self) -> str | None:
        """The cursor of the newest event: `stream(source, after=cursor)` resumes after it. None if the source has none."""
        return None if self._position is None else str(self._position)

    @property
    def source_number(self) -> int:
        """How many sources were opened so far, not counting those that continue a run step. With `then=`, one for each
        response."""
        return self._source_number

    @property
    def timing(self) -> Timing:
        """How long the stream took."""
        deltas = self.engine.forgotten_deltas + sum(message.delta_count for message in self.engine.messages.all)
        return timing_of(self._times, deltas)

    @property
    def fields(self) -> Mapping[str, str]:
        """The arguments of tools that become messages: those of `fields=`, else of a recording, else none."""
        return self._fields.fields if self._fields is not None else {}

    @property
    def reasoning_tag(self) -> str | None:
        """The tag whose content is reasoning: that of `reasoning_tag=`, else of a recording, else None."""
        return self._tag.tag if self._tag is not None else None

    def has_fields(self, call: ToolCallMessage) -> bool:
        """Whether arguments of this call become messages, because `fields=` names its tool."""
        return self._fields is not None and self._fields.has_fields(call.name)

    @property
    def partial_output(self) -> JsonValue | None:
        """The JSON in the answer's newest text, as far as it has come: a plain value, not validated. None before it begins.

        Its dicts and lists are live: they grow in place when this is read. A string appears at its quote and grows, a number when the
        character after it came. The JSON begins at the first `{` or `[` that is the first character of the text or of a line.
        """
        return self.output.partial

    @property
    def current_event(self) -> Event | None:
        """The newest event that was delivered."""
        return self._current

    @property
    def current_run(self) -> Run | None:
        """The run, None before it begins. Its `id` is the newest response's, from which a next request can continue."""
        return self.engine.runs.run

    @property
    def current_run_step_snapshot(self) -> RunStep | None:
        """The present run step, else the last one. None before the first."""
        return self.engine.runs.step or (self.engine.runs.steps[-1] if self.engine.runs.steps else None)

    @property
    def current_message_snapshot(self) -> Message | None:
        """The message of the newest event, else the newest message. None before the first."""
        snapshot = getattr(self._current, "snapshot", None)
        return snapshot or (self.engine.messages.all[-1] if self.engine.messages.all else None)

    def cancel(self) -> None:
        """Stop the stream, from any thread, without waiting. Messages that arrived stay; nothing is raised.

        A task is cancelled where it waits. A thread that waits for the network is stopped there, even before the response
        begins: in httpx, so in the clients of openai and anthropic, and in `http.client`, so in urllib and requests. A
        thread that waits for anything else (a lock, `time.sleep`, a subprocess, a connection that is being made) cannot
        be stopped by Python; the stream then ends when that wait does. The same holds for a hook, or a tool that a hook
        calls: it runs to its end before the stream ends.
        """
        raise NotImplementedError("the managers implement it")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the stream's forms for a notebook: its messages so far, and its error. Called by IPython."""
        from ..mimebundle import mimebundle

        failure = "" if self._error is None else f"<pre>{escape(f'{type(self._error).__name__}: {self._error}')}</pre>"
        return mimebundle(self.messages, failure)

    # -- for streamkit's own packages

    @property
    def output(self) -> StreamOutput:
        """The reader of the typed output. For streamkit's own packages."""
        if self._output is None:
            from .output import StreamOutput  # few streams have an output that is read

            self._output = StreamOutput(self.engine)
        return self._output

    @property
    def has_output_type(self) -> bool:
        """Whether the answer is read as a type (`output_type=`). For streamkit's own packages."""
        return self._output is not None and self._output.kind is not None

    @property
    def is_closing(self) -> bool:
        """Whether `close` or `cancel` was called, or the stream failed."""
        return self._closing

    @property
    def is_nested(self) -> bool:
        """Whether the source that is read now was opened by a hook, inside another. For streamkit's own packages."""
        return self._nested


class Pending(Mapping[str, Confirmation | ToolCallMessage]):
    """A live mapping of what waits for an answer. A loop over it goes over what waits when the loop begins."""

    def __init__(self, waiting: Mapping[str, Confirmation | ToolCallMessage]) -> None:
        self._waiting = waiting

    def __getitem__(self, key: str) -> Confirmation | ToolCallMessage:
        return self._waiting[key]

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._waiting])

    def items(self) -> ItemsView[str, Confirmation | ToolCallMessage]:
        return dict(self._waiting).items()

    def values(self) -> ValuesView[Confirmation | ToolCallMessage]:
        return dict(self._waiting).values()

    def __repr__(self) -> str:
        return repr(self._waiting)
