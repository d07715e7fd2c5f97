"""The spans and metrics of one stream, made from its events. An error in making them is logged and ends no stream."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec

from ..answers import Confirmation
from ..events import Run, RunStep, StreamRetry, Usage
from ..handlers import EventHandler
from ..messages import Message, ToolCallMessage, ToolOutputMessage
from . import attributes as names

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span, Tracer

    from ..streams.state import StreamState

__all__ = ["Instruments", "StreamSpans"]

_P = ParamSpec("_P")
_log = logging.getLogger("streamkit.telemetry")


def _guarded(
    hook: Callable[Concatenate[StreamSpans, _P], None],
) -> Callable[Concatenate[StreamSpans, _P], None]:
    """Return a hook that logs what its body raises: an exporter, or a span processor, of the application's."""

    @functools.wraps(hook)
    def guarded(self: StreamSpans, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception:
            _log.exception("the spans of a stream are not complete: %s failed", hook.__name__)

    return guarded


class Instruments(NamedTuple):
    """OpenTelemetry's makers of spans and metrics, and the choice of contents.

    Attributes:
        tracer: OpenTelemetry's; makes the spans.
        histograms: OpenTelemetry's, by the metric's name.
        content: whether spans have texts of requests and answers.
    """

    tracer: Tracer
    histograms: Mapping[str, Histogram]
    content: bool


class ModelCall:
    """The span of a model call.

    Attributes:
        attributes: those that the metrics have, too.
        start: when the request was sent; as all times here, in nanoseconds.
        first: when the first message of the answer began; None before that.
        last: when the newest part of the answer came.
        usage: the tokens of the model call alone. Its step counts those of sub-agents, too.
    """

    def __init__(self, span: Span, attributes: dict[str, Any], start: int) -> None:
        self.span = span
        self.attributes = attributes
        self.start = self.last = start
        self.first: int | None = None
        self.usage: Usage | None = None


class StreamSpans(EventHandler):
    """The handler that makes the spans and metrics of one stream.

    Args:
        instruments: what it makes them with.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._reset()

    def _reset(self) -> None:
        self._parent: Context | None = None  # of the outermost span; None before the stream starts
        self._agent: Span | None = None
        self._requested: ModelCall | None = None  # the model call before its run step begins
        self._failed: ModelCall | None = None  # the one with a failed step: its span waits for the error
        self._chats: dict[str, ModelCall] = {}  # those of the steps that have begun and not ended, by the step's id
        self._tools: dict[str, Span] = {}  # by the call's id
        self._tool_errors: dict[str, str] = {}  # what calls have raised, by the call's id

    def bind(self, stream: StreamState) -> None:
        """Attach it to another stream: what belonged to the one before is over."""
        super().bind(stream)
        self._reset()

    # -- requests

    @_guarded
    def streamkit_request(self, protocol: str | None, request: Any) -> None:
        """Begin a model call's span. A call that is tried again before its run step begins keeps its span."""
        from opentelemetry import context

        if self._parent is None:
            self._parent = context.get_current()
            self._begin_agent(protocol, request)
        if self._requested is None:
            self._requested = self._new_chat(protocol, request)

    def _begin_agent(self, protocol: str | None, request: Any) -> None:
        from opentelemetry.trace import SpanKind

        if (name := self.stream.agent_name) is None:
            return
        attributes = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: names.provider_of(protocol),
            names.AGENT_NAME: name or None,
            names.REQUEST_MODEL: request.model,
        }
        self._agent = self._instruments.tracer.start_span(
            f"invoke_agent {name}".strip(), self._parent, SpanKind.INTERNAL, _without_none(attributes)
        )

    @property
    def _inside(self) -> Context | None:
        """The context of the spans of model calls and tools."""
        from opentelemetry.trace import set_span_in_context

        return self._parent if self._agent is None else set_span_in_context(self._agent, self._parent)

    def _new_chat(self, protocol: str | None, request: Any) -> ModelCall:
        from opentelemetry.trace import SpanKind

        model = None if request is None else request.model
        attributes = _without_none(
            {names.OPERATION: "chat", names.PROVIDER: names.provider_of(protocol), names.REQUEST_MODEL: model}
        )
        start = time.time_ns()
        span = self._instruments.tracer.start_span(
            f"chat {model or ''}".strip(),
            self._inside,
            SpanKind.CLIENT,
            {**attributes, names.STREAM: True},
            start_time=start,
        )
        if (kind := self._output_type(request)) is not None:
            span.set_attribute(names.OUTPUT_TYPE, kind)
        if request is not None and self._instruments.content:
            span.set_attribute(names.INPUT_MESSAGES, names.messages_text(request.messages))
            if request.instructions:
                span.set_attribute(names.INSTRUCTIONS, names.instructions_text(request.instructions))
        return ModelCall(span, attributes, start)

    def _output_type(self, request: Any) -> str | None:
        """Return the kind of output that is wanted: as the request's options say it, else JSON where the stream has a type."""
        kind = None if request is None else names.output_type(request.options)
        return "json" if kind is None and self.stream.has_output_type else kind

    # -- answers

    @_guarded
    def on_run_step_created(self, run_step: RunStep, /) -> None:
        if self._requested is None and self._agent is not None:
            return  # questions about calls of an earlier answer
        self._chats[run_step.id] = self._requested or self._new_chat(None, None)
        self._requested = None

    @_guarded
    def on_message_created(self, message: Message, /) -> None:
        if (chat := self._chat_of(message)) is not None:
            chat.last = time.time_ns()
            chat.first = chat.first or chat.last

    @_guarded
    def on_message_done(self, message: Message, /) -> None:
        if (chat := self._chat_of(message)) is not None:
            chat.last = time.time_ns()

    def _chat_of(self, message: Message) -> ModelCall | None:
        """Return the model call that this message answers; None if it is not part of an answer."""
        is_answer = message.role == "assistant" and not _is_inner(message)
        return self._chats.get(message.step_id or "") if is_answer else None

    @_guarded
    def on_usage(self, usage: Usage, /) -> None:
        source_decoder = self.stream.source_decoder
        if self._chats and not (source_decoder is not None and source_decoder.source.traits.same_step):
            chat = self._chats[next(reversed(self._chats))]
            chat.last, chat.usage = time.time_ns(), usage

    @_guarded
    def on_run_step_done(self, run_step: RunStep, /) -> None:
        if (chat := self._chats.pop(run_step.id, None)) is None:
            return
        self._describe(chat, run_step)
        if run_step.status in ("failed", "incomplete", "expired"):
            self._failed = chat
        else:
            self._end_chat(chat)

    def _describe(self, chat: ModelCall, run_step: RunStep) -> None:
        """Set what a model call's answer says of it."""
        stream, run, span = self.stream, self.stream.current_run, chat.span
        if self._agent is None:
            decoder = None if stream.source_decoder is None else stream.source_decoder.decoder
            provider = None if decoder is None else names.provider_of(decoder.name)
            chat.attributes.update(_without_none({names.PROVIDER: provider}))
        if run is not None and run.model:
            chat.attributes[names.RESPONSE_MODEL] = run.model
            if names.REQUEST_MODEL not in chat.attributes:
                span.update_name(f"chat {run.model}")
        reason = stream.engine.runs.step_reason
        attributes = {
            names.RESPONSE_ID: run_step.run_id or None,
            names.FINISH_REASONS: None if reason is None else [reason],
        }
        span.set_attributes({**chat.attributes, **_without_none(attributes), **names.usage_attributes(chat.usage)})
        if (usage := chat.usage) is not None:
            for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                of_kind = {**chat.attributes, names.TOKEN_TYPE: kind}
                self._instruments.histograms[names.TOKENS].record(count, of_kind)
        if self._instruments.content:
            answer = [
                one
                for one in stream.messages
                if one.step_id == run_step.id and one.role == "assistant" and not _is_inner(one)
            ]
            span.set_attribute(names.OUTPUT_MESSAGES, names.messages_text(answer, reason))

    def _end_chat(self, chat: ModelCall, error: BaseException | None = None) -> None:
        """End the span of a model call: at the newest part of its answer, or now if it failed."""
        if error is not None:
            chat.last = time.time_ns()
            chat.attributes[names.ERROR_TYPE] = names.error_type(error)
            _fail(chat.span, error, content=self._instruments.content)
        histograms = self._instruments.histograms
        if chat.first is not None:
            waited = (chat.first - chat.start) / 1e9
            chat.span.set_attribute(names.FIRST_CHUNK, waited)
            histograms[names.TIME_TO_FIRST_CHUNK].record(waited, chat.attributes)
        histograms[names.DURATION].record((chat.last - chat.start) / 1e9, chat.attributes)
        chat.span.end(chat.last)

    @_guarded
    def on_retry(self, retry: StreamRetry, /) -> None:
        if (chat := self._failed or self._requested) is None:
            return
        chat.span.add_event("streamkit.retry", {"attempt": retry.attempt, "delay": retry.delay, "error": retry.error})
        if self._failed is not None:
            self._failed = None
            self._end_chat(chat, retry.exception)

    def _end_chats(self, error: BaseException | None = None) -> None:
        open_ones = [chat for chat in (self._failed, *self._chats.values(), self._requested) if chat is not None]
        self._failed = self._requested = None
        self._chats.clear()
        for chat in open_ones:
            self._end_chat(chat, error)

    # -- tools

    def around_tool(self, call: ToolCallMessage, /) -> AbstractContextManager[object] | None:
        """Make the span of a call current while it runs."""
        try:
            return self._begin_tool(call)
        except Exception:
            _log.exception("a call of %s has no span", call.name)
            return None

    def _begin_tool(self, call: ToolCallMessage) -> AbstractContextManager[object]:
        from opentelemetry.trace import SpanKind

        attributes = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: call.name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: call.call_id or call.id,
            names.TOOL_ARGUMENTS: call.content if self._instruments.content else None,
        }
        span = self._instruments.tracer.start_span(
            f"execute_tool {call.name}", self._inside, SpanKind.INTERNAL, _without_none(attributes)
        )
        self._tools[call.call_id or call.id] = span
        return self._current(call.call_id or call.id, span)

    @contextmanager
    def _current(self, call_id: str, span: Span) -> Generator[None]:
        """Make the span of a call current, and note what the call raises."""
        from opentelemetry.trace import use_span

        with use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except Exception as error:
                self._tool_errors[call_id] = names.error_type(error)
                raise

    @_guarded
    def on_tool_output_done(self, message: ToolOutputMessage, /) -> None:
        from opentelemetry.trace import StatusCode

        span = self._tools.pop(message.call_id or "", None)
        if span is None:
            return
        if self._instruments.content:
            span.set_attribute(names.TOOL_RESULT, message.content)
        if message.status == "failed":
            span.set_attribute(names.ERROR_TYPE, self._tool_errors.pop(message.call_id or "", "tool_error"))
            span.set_status(StatusCode.ERROR, message.content if self._instruments.content else None)
        span.end()

    @_guarded
    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        span = self._agent or next((chat.span for chat in self._chats.values()), None)
        if span is not None:
            span.add_event("streamkit.confirmation", {"id": confirmation.id, "status": confirmation.status})

    # -- the end

    @_guarded
    def on_run_done(self, run: Run, /) -> None:
        if self._agent is not None:
            attributes = {names.RESPONSE_ID: run.id or None, names.RESPONSE_MODEL: run.model}
            self._agent.set_attributes({**_without_none(attributes), **names.usage_attributes(run.usage)})

    @_guarded
    def on_exception(self, exception: Exception, /) -> None:
        self._end_chats(exception)
        if self._agent is not None:
            _fail(self._agent, exception, content=self._instruments.content)

    @_guarded
    def on_end(self) -> None:
        """End what is still open."""
        self._end_chats()
        for span in self._tools.values():
            span.end()
        self._tools.clear()
        if self._agent is not None:
            self._agent.end()
            self._agent = None


def _fail(span: Span, error: BaseException, *, content: bool) -> None:
    """Give a span the status of an error. The error's text may quote messages."""
    from opentelemetry.trace import StatusCode

    span.set_attribute(names.ERROR_TYPE, names.error_type(error))
    span.set_status(StatusCode.ERROR, str(error) if content else None)


def _is_inner(message: Message) -> bool:
    """Whether a message is of a sub-agent, which has its own spans."""
    return message.parent_id is not None


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
