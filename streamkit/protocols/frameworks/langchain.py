"""LangChain: the chunks of a chat model, `model.stream(…)`, documented at https://docs.langchain.com/oss/python/langchain/models.

Terminal rule: the end of the source. The last chunk of a response says so (`chunk_position`), but a generator around the stream may
leave it out.

A chunk's `content_blocks` are the same for all providers; its calls stand beside them, as `tool_call_chunks`. A call with an id
begins, and its index finds it from then on. A text ends where another block begins; what is still added to it is another message.
A call ends with the next one if its arguments are complete JSON, else with its response.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...events import AnnotationAdded, Event, RawEvent, Run, RunCreated, Usage
from ...messages import Message, ReasoningMessage, Status, TextMessage
from ..values import (
    WireObject,
    annotation_of,
    as_object,
    as_objects,
    as_text,
    parse_json,
    text_or_json,
    text_or_none,
    usage_of,
)
from .decoder import FrameworkDecoder
from .langchain_objects import is_message, item_of_message

__all__ = ["Decoder"]

_TEXTS: Mapping[str, type[Message]] = {"text": TextMessage, "reasoning": ReasoningMessage}
_SERVER_CALLS = ("server_tool_call", "server_tool_call_chunk")
_CALLS = ("tool_call", "tool_call_chunk", "invalid_tool_call")  # which stand beside the content as well
_CUT_SHORT = ("length", "max_tokens", "content_filter", "max_output_tokens", "model_length", "MAX_TOKENS", "incomplete")


class _Response:
    """A response of the model that is not over."""

    def __init__(self, id: str, source: str) -> None:
        self.id = id
        self.source = source  # where it comes from: one response at a time
        self.text: Hashable = None  # the key of its newest text, if that is open
        self.ids: dict[Hashable, str] = {}  # of texts that have not begun
        self.arguments: dict[Hashable, str] = {}  # of its calls, by their keys


class Decoder(FrameworkDecoder):
    """Decodes the chunks of a chat model, and whole messages."""

    name = "langchain"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._responses: dict[str, _Response] = {}
        self._response_ids: list[str] = []  # the provider's, of responses that have not begun
        self._seen: set[str] = set()  # the ids of messages
        self._unanswered: dict[str, str] = {}  # the names of tools, by the ids of the calls that have no output
        self._answered: set[str] = set()
        self._usage: Usage | None = None  # of the present step

    def item_of(self, value: Any) -> Any:
        """Return a dict of a message or a chunk, with what is read of it."""
        return item_of_message(value) if is_message(value) else value

    def finish(self) -> Iterator[Event]:
        """Yield the end of the run."""
        yield from self._end_run("incomplete" if self._finish_reason in _CUT_SHORT else "completed")

    # -- the items

    def _read_chunk(self, item: WireObject, source: str = "", step: Mapping[str, Any] | None = None) -> Iterator[Event]:
        """A chunk of a response. `source` is where it comes from, `step` the fields of the step that it may begin."""
        metadata, id = as_object(item.get("response_metadata")), as_text(item.get("id"))
        if id and id == metadata.get("id") and not item.get("content"):
            self._response_ids.append(
                id
            )  # over Responses, the first chunk has the provider's id, and the others another
            self._seen.add(id)
            return
        response = self._responses.get(id)
        if response is None:
            yield from self._begin_response(id, source, step or {})
            response = self._responses[id]
        content = item.get("content")
        for block in as_objects([{"type": "text", "text": content}] if isinstance(content, str) else content):
            yield from self._read_block(response, block)
        for call in as_objects(item.get("tool_calls")):
            yield from self._read_call(response, call)
        yield from self._read_end(item, metadata)
        if item.get("chunk_position") == "last":
            yield from self._end_response(response)

    def _read_message(
        self, item: WireObject, source: str = "", step: Mapping[str, Any] | None = None
    ) -> Iterator[Event]:
        """A whole message of the model, unless it was shown already."""
        if as_text(item.get("id")) not in self._seen:
            yield from self._read_chunk({**item, "chunk_position": "last"}, source, step)

    def _read_output(
        self, item: WireObject, source: str = "", step: Mapping[str, Any] | None = None
    ) -> Iterator[Event]:
        """The output of a call, unless it was shown already."""
        call_id, name = text_or_none(item.get("tool_call_id")), text_or_none(item.get("name"))
        if call_id is None or call_id in self._answered:
            return
        self._answered.add(call_id)
        self._unanswered.pop(call_id, None)
        for response in [*self._responses.values()]:
            if any(self._call_id(key) == call_id for key in response.arguments):
                yield from self._end_response(response)
        text, failed = text_or_json(item.get("content", "")), item.get("status") == "error"
        yield self._output(call_id, text, name=name, failed=failed)

    # -- responses

    def _begin_response(self, id: str, source: str, step: Mapping[str, Any]) -> Iterator[Event]:
        for other in [*self._responses.values()]:
            if other.source == source:
                yield from self._end_response(other)
        group = self._response_ids[0] if len(self._response_ids) == 1 else None
        self._response_ids.clear()
        if not self._responses:
            yield from self._begin_step(group, **step)
            self._usage = None
        self._responses[id] = _Response(id, source)
        if id:
            self._seen.add(id)

    def _end_response(self, response: _Response) -> Iterator[Event]:
        del self._responses[response.id]
        status: Status = "incomplete" if self._finish_reason in _CUT_SHORT else "completed"
        for key in (*response.arguments, response.text):
            yield from self._close(key, status)

    def _read_end(self, item: WireObject, metadata: WireObject) -> Iterator[Event]:
        """Read what a response says of itself: its tokens, which add up, the model and why it ended."""
        details = as_object(metadata.get("incomplete_details"))
        reasons = (metadata.get("finish_reason"), metadata.get("stop_reason"), details.get("reason"))
        self._finish_reason = next(filter(None, map(text_or_none, reasons)), self._finish_reason)
        if model := text_or_none(metadata.get("model_name")):
            yield RunCreated(run=Run(model=model))
        if usage := as_object(item.get("usage_metadata")):
            counted = usage_of(usage)
            self._usage = counted if self._usage is None else self._usage + counted
            yield self._usage

    # -- what is in them

    def _read_block(self, response: _Response, block: WireObject) -> Iterator[Event]:
        kind = as_text(block.get("type"))
        if kind in _TEXTS:
            yield from self._read_text(response, kind, block)
        elif kind in _SERVER_CALLS:
            yield from self._read_call(response, block, provider_executed=True)
        elif kind == "server_tool_result":
            failed, text = block.get("status") == "error", text_or_json(block.get("output", ""))
            yield self._output(text_or_none(block.get("tool_call_id")), text, failed=failed)
        elif kind not in _CALLS:
            yield RawEvent(kind or "content_block", dict(block))

    def _read_text(self, response: _Response, kind: str, block: WireObject) -> Iterator[Event]:
        key, text = (response.id, kind, _index(block)), as_text(block.get(kind))
        id = response.ids.pop(key, None) or as_text(block.get("id"))
        if text and key not in self._open:
            yield from self._close(response.text)
            yield from self._begin(_TEXTS[kind], key, id)
            response.text = key
        elif id and key not in self._open:
            response.ids[key] = id
        if text:
            yield from self._extend(key, text)
        if (message := self._open.get(key)) is not None:
            for annotation in as_objects(block.get("annotations")):
                yield AnnotationAdded(message.id, annotation_of(annotation))

    def _read_call(self, response: _Response, call: WireObject, *, provider_executed: bool = False) -> Iterator[Event]:
        call_id, args, index = text_or_none(call.get("id")), call.get("args"), _index(call)
        key: Hashable = (response.id, "call", index)
        if index is None:
            key = (response.id, "call", call_id) if call_id else next(reversed(response.arguments), key)
        if call_id is not None and self._call_id(key) != call_id:
            yield from self._close(response.text)
            yield from self._close_complete_calls(response)
            name = as_text(call.get("name"))
            yield from self._begin_call(key, call_id, name, provider_executed=provider_executed)
            response.text, response.arguments[key] = None, ""
            self._answered.discard(call_id)
            if not provider_executed:
                self._unanswered[call_id] = name
        if args not in (None, ""):
            text = text_or_json(args)
            response.arguments[key] = response.arguments.get(key, "") + text
            yield from self._extend(key, text)

    def _call_id(self, key: Hashable) -> str | None:
        """Return the id of the open call with this key."""
        return self._open[key].call_id if key in self._open else None

    def _close_complete_calls(self, response: _Response) -> Iterator[Event]:
        for key, arguments in response.arguments.items():
            if parse_json(arguments) is not None:
                yield from self._close(key)

    readers: ClassVar[Mapping[str, Callable[..., Iterable[Event]]]] = {
        "AIMessageChunk": _read_chunk,
        "ai": _read_message,
        "tool": _read_output,
    }


def _index(block: WireObject) -> int | str | None:
    index = block.get("index")
    return index if isinstance(index, int | str) else None
