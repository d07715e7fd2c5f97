"""Pydantic AI: the events of `agent.run_stream_events(…)`, and of a node's `stream`, documented at https://ai.pydantic.dev/agents/.

Terminal rule: `agent_run_result`, or the end of the source where nothing is open, as the streams of a run's nodes have no result.

No event marks the beginning of a response: it begins with its first part, which has no part before it, or comes after the events of
tools. The end of a part has its complete content; an event before a call's function runs has the call once more. A part ends where the
next one begins, but deltas of it may follow: those of a text become another message. So a call ends only when its arguments are complete
JSON, or when it runs.

The events have the tokens of the whole run alone, in the result. What is in between comes from the run's handle (`sources/runs.py`):
each response of the model, once it is over, with its model, tokens and finish reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...events import AnnotationAdded, Event, RawEvent, Run, RunCreated, RunStatus
from ...messages import Annotation, Message, ReasoningMessage, TextMessage, ToolCallMessage
from ..ui_files import file_fields
from ..values import (
    WireObject,
    as_count,
    as_object,
    as_objects,
    as_text,
    json_text,
    parse_json,
    text_or_json,
    text_or_none,
    usage_of,
)
from .decoder import FrameworkDecoder
from .pydantic_ai_objects import item_of

__all__ = ["Decoder"]

_TEXTS: Mapping[str, type[Message]] = {"text": TextMessage, "thinking": ReasoningMessage}
_CALLS = ("tool-call", "builtin-tool-call")
_REDACTED = ("redacted_thinking", "redacted_content")  # ids of reasoning that is encrypted
_CUT_SHORT = ("length", "content_filter")
_FAILED = ("failed", "retried")  # what the model reads as an error


class Decoder(FrameworkDecoder):
    """Decodes the events of a run."""

    name = "pydantic_ai"
    kind_key = "event_kind"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._is_over = False  # tools have run since the present response, so that the next part begins another one
        self._ended: dict[Any, type[Message]] = {}  # the texts of the present response that are done, by their index
        self._objects: dict[Any, dict[str, Any]] = {}  # those arguments of its calls that are objects, by their index
        self._before = 0, 0  # the tokens that were counted before the present step
        self._of_step = 0, 0

    def item_of(self, value: Any) -> Any:
        """Return a dict of an event, of a response or of a run's tokens, with what is read of it."""
        return item_of(value)

    def finish(self) -> Iterator[Event]:
        """Yield the end of the run, where no result says so."""
        if self.complete or self._open:
            yield from super().finish()
        elif self._has_begun or self._is_over:
            yield from self._end()
        else:
            self.complete = self.index == 0  # a node without calls yields no items

    # -- the items

    def _read_part(self, item: WireObject) -> Iterator[Event]:
        index, part = as_count(item.get("index")), as_object(item.get("part"))
        if not self._has_begun or self._is_over or (index == 0 and item.get("previous_part_kind") is None):
            self._next_response()
            yield from self._begin_step()
        kind = as_text(part.get("part_kind"))
        if kind in _TEXTS:
            yield from self._read_text(index, part, _TEXTS[kind])
        elif kind in _CALLS:
            yield from self._read_call(index, part, provider_executed=kind != "tool-call")
        elif kind == "builtin-tool-return":
            yield from self._read_output(item)
        elif kind == "file":
            for message_class, fields in _files([part.get("content")]):
                yield from self._show(message_class, index, fields.pop("content"), **fields)
        elif kind == "compaction":
            yield from self._show(Message, index, as_text(part.get("content")), type=kind)

    def _next_response(self) -> None:
        self._is_over, self._ended, self._objects = False, {}, {}
        self._before, self._of_step = _sum(self._before, self._of_step), (0, 0)

    def _show(self, message_class: type[Message], index: Any, text: str, **fields: Any) -> Iterator[Event]:
        """Begin a message, or replace the one that is open at this index."""
        if type(self._open.get(index)) is message_class:
            yield from self._replace(index, text)
        else:
            yield from self._begin(message_class, index, **fields)
            yield from self._extend(index, text)

    def _read_text(self, index: Any, part: WireObject, message_class: type[Message]) -> Iterator[Event]:
        id, content = text_or_none(part.get("id")), as_text(part.get("content"))
        if id in _REDACTED and message_class is ReasoningMessage:
            yield from self._show(message_class, index, "", format="redacted")
        else:
            yield from self._show(message_class, index, content, id=id)

    def _read_call(self, index: Any, part: WireObject, *, provider_executed: bool) -> Iterator[Event]:
        arguments, call_id = self._arguments(index, part.get("args")), text_or_none(part.get("tool_call_id"))
        if isinstance(call := self._open.get(index), ToolCallMessage) and call.call_id == call_id:
            yield from self._replace(index, arguments)
        else:
            name, id = as_text(part.get("tool_name")), text_or_none(part.get("id"))
            yield from self._begin_call(index, call_id, name, id, provider_executed=provider_executed)
            yield from self._extend(index, arguments)

    def _arguments(self, index: Any, args: Any) -> str:
        """Return arguments as JSON text. An object may get more members."""
        if isinstance(args, str) or args is None:
            return args or ""
        self._objects[index] = {**self._objects.get(index, {}), **as_object(args)}
        return json_text(self._objects[index])

    def _read_delta(self, item: WireObject) -> Iterator[Event]:
        index, delta = as_count(item.get("index")), as_object(item.get("delta"))
        if (text := delta.get("content_delta")) is not None:
            if text and index not in self._open and index in self._ended:
                yield from self._begin(self._ended[index], index)
            yield from self._extend(index, text)
        elif as_object(args := delta.get("args_delta")) and index in self._open:
            yield from self._replace(index, self._arguments(index, args))
        elif args is not None:
            yield from self._extend(index, args)

    def _read_part_end(self, item: WireObject) -> Iterator[Event]:
        index, part = as_count(item.get("index")), as_object(item.get("part"))
        message, args = self._open.get(index), part.get("args")
        if isinstance(message, ToolCallMessage):
            if args is not None and (not isinstance(args, str) or parse_json(args) is not None):
                yield from self._close(index)
        elif message is not None:
            self._ended[index] = type(message)
            for citation in as_objects(part.get("citations")):
                yield AnnotationAdded(message.id, _annotation(citation))
            signature = text_or_none(part.get("signature")) if part.get("provider_name") == "anthropic" else None
            key = "data" if message.format == "redacted" else "signature"  # as Anthropic's own decoder has it
            yield from self._close(index, metadata={key: signature} if signature else None)

    def _read_running_call(self, item: WireObject) -> Iterator[Event]:
        """The call once more, before its function runs: so it is complete."""
        self._is_over = True
        call_id = as_object(item.get("part")).get("tool_call_id")
        for key, message in [*self._open.items()]:
            if message.call_id == call_id and isinstance(message, ToolCallMessage):
                yield from self._close(key)

    def _read_result_of_call(self, item: WireObject) -> Iterator[Event]:
        yield from self._read_running_call(item)
        yield from self._read_output(item)

    def _read_output(self, item: WireObject) -> Iterator[Event]:
        """The output of a call. One that the function refused (`ModelRetry`) goes back to the model as its fault."""
        part = as_object(item.get("part"))
        call_id, outcome = text_or_none(part.get("tool_call_id")), part.get("outcome")
        metadata = {"declined": None} if outcome == "denied" else {}
        text, name, failed = as_text(part.get("content")), text_or_none(part.get("tool_name")), outcome in _FAILED
        yield self._output(call_id, text, name=name, failed=failed, **metadata)
        for message_class, fields in _files(part.get("files")):
            id = self._ids.unused(f"{call_id}.file")
            fields |= {"role": "computer", "call_id": call_id, "parent_id": self.parent_id}
            yield message_class.done_event(message_class(id, status="completed", **fields))

    def _read_response(self, item: WireObject) -> Iterator[Event]:
        """A response is over. Its calls may still run."""
        self._finish_reason = text_or_none(item.get("finish_reason"))
        if model := text_or_none(item.get("model_name")):
            yield RunCreated(run=Run(model=model))
        yield from self._count(as_object(item.get("usage")))

    def _read_result(self, item: WireObject) -> Iterator[Event]:
        result = as_object(item.get("result"))
        yield from self._count(as_object(result.get("usage")), _sum(self._before, self._of_step))
        for call in as_objects(result.get("approvals")):
            args, name = call.get("args"), text_or_none(call.get("tool_name"))
            yield self._ask(as_text(call.get("tool_call_id")), text_or_json(args), name=name)
        yield from self._end("requires_action" if "approvals" in result else None)

    def _read_cancelled(self, item: WireObject) -> Iterator[Event]:
        """The application has cancelled the run by its handle."""
        yield from self._end("cancelled")

    def _end(self, status: RunStatus | None = None) -> Iterator[Event]:
        cut_short = self._finish_reason in _CUT_SHORT
        yield from self._end_run(status or ("incomplete" if cut_short else "completed"))

    def _count(self, usage: WireObject, counted: tuple[int, int] = (0, 0)) -> Iterator[Event]:
        """Add tokens to those of the present step, but for those that were counted."""
        new = tuple(max(0, count - before) for count, before in zip(_tokens(usage), counted, strict=True))
        if any(new):
            self._of_step = _sum(self._of_step, new)
            yield usage_of({**usage, "input_tokens": self._of_step[0], "output_tokens": self._of_step[1]})

    def _read_custom(self, item: WireObject) -> Iterator[Event]:
        """An event that a tool or a capability emitted."""
        name = text_or_none(item.get("name")) or text_or_none(item.get("kind")) or as_text(item.get("event_kind"))
        call_id = text_or_none(item.get("tool_call_id"))
        yield RawEvent(name, {**as_object(item.get("data")), **({"tool_call_id": call_id} if call_id else {})})

    def _read_usage(self, item: WireObject) -> Iterator[Event]:
        """The conversation had these tokens before the run."""
        self._before = _tokens(as_object(item.get("usage")))
        return iter(())

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "part_start": _read_part,
        "part_delta": _read_delta,
        "part_end": _read_part_end,
        "final_result": FrameworkDecoder.read_nothing,
        "function_tool_call": _read_running_call,
        "output_tool_call": _read_running_call,
        "function_tool_result": _read_result_of_call,
        "output_tool_result": _read_result_of_call,
        "deferred_tool_requests": FrameworkDecoder.read_nothing,  # a capability may resolve them; the result has those that are left
        "deferred_tool_results": FrameworkDecoder.read_nothing,
        "custom": _read_custom,
        "capability": _read_custom,
        "usage": _read_usage,
        "response": _read_response,
        "agent_run_result": _read_result,
        "cancelled": _read_cancelled,
    }


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _tokens(usage: WireObject) -> tuple[int, int]:
    return as_count(usage.get("input_tokens")) or 0, as_count(usage.get("output_tokens")) or 0


def _annotation(citation: WireObject) -> Annotation:
    return Annotation(
        type=as_text(citation.get("kind")),
        url=text_or_none(citation.get("url")),
        file_id=text_or_none(citation.get("document_id")),
        title=text_or_none(citation.get("title")),
        quote=text_or_none(citation.get("excerpt")),
        start=as_count(citation.get("start")),
        end=as_count(citation.get("end")),
        raw=dict(citation),
    )


def _files(values: Any) -> Iterator[tuple[type[Message], dict[str, Any]]]:
    """Yield the class of each file's message, and its fields."""
    for file in as_objects(values):
        message_class, format, content = file_fields(as_text(file.get("url")), as_text(file.get("media_type")))
        if content:
            yield message_class, {"format": format or None, "content": content}
