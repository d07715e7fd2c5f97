"""Content is a delta that is not empty, or a message that came whole: what times and timeouts count from."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

import streamkit as sk
from streamkit import messages as m
from streamkit.events import Delta, Done, MessageCreated, MessageDone, StreamEnd, TextDelta

from .faces import Face, Source, body, every_face
from .test_timeouts import PINGS, event, raised_by, serving


def _response(item: dict[str, Any], *more: dict[str, Any]) -> list[dict[str, Any]]:
    response = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {"status": "in_progress", **item}}
    return [{"type": "response.created", "response": response}, added, *more]


def _of_item(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type}", "item_id": "i", "output_index": 0, **fields}


def _anthropic(block: dict[str, Any], delta: dict[str, Any]) -> list[dict[str, Any]]:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    ]


def _chat(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    fields = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [{**fields, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]


def _chat_call(**function: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}


_TEXT_PART = {"type": "output_text", "text": "", "annotations": []}
_CALL = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""}
_THREAD = {"id": "m", "object": "thread.message", "role": "assistant", "content": [], "status": "in_progress"}
_THREAD_DELTA = {"id": "m", "delta": {"content": [{"index": 0, "type": "text", "text": {"value": "Hello"}}]}}

# What servers send up to the first content, which is the last item of each.
STREAMS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "Responses, text": (
        "openai_responses",
        _response(
            {"type": "message", "id": "i", "role": "assistant", "content": []},
            _of_item("content_part.added", content_index=0, part=_TEXT_PART),
            _of_item("output_text.delta", content_index=0, delta=""),
            _of_item("output_text.delta", content_index=0, delta="Hello"),
        ),
    ),
    "Responses, reasoning": (
        "openai_responses",
        _response(
            {"type": "reasoning", "id": "i", "summary": []},
            _of_item("reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""}),
            _of_item("reasoning_summary_text.delta", summary_index=0, delta="Hello"),
        ),
    ),
    "Responses, text after reasoning without a text": (
        "openai_responses",
        _response(
            {"type": "reasoning", "id": "rs", "summary": []},
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {"type": "reasoning", "id": "rs", "summary": []},
            },
            {
                "type": "response.output_item.added",
                "output_index": 1,
                "item": {"type": "message", "id": "i", "role": "assistant", "content": [], "status": "in_progress"},
            },
            {**_of_item("output_text.delta", content_index=0, delta="Hello"), "output_index": 1},
        ),
    ),
    "Responses, arguments": (
        "openai_responses",
        _response(_CALL, _of_item("function_call_arguments.delta", delta='{"a":')),
    ),
    "Anthropic, text": ("anthropic", _anthropic({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})),
    "Anthropic, thinking": (
        "anthropic",
        _anthropic(
            {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hello"}
        ),
    ),
    "Anthropic, arguments": (
        "anthropic",
        _anthropic(
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a":'},
        ),
    ),
    "Chat, text": ("openai_chat", _chat({"role": "assistant", "content": ""}, {"content": "Hello"})),
    "Chat, reasoning": ("openai_chat", _chat({"role": "assistant", "content": None}, {"reasoning_content": "Hello"})),
    "Chat, arguments": (
        "openai_chat",
        _chat(
            {"role": "assistant", "content": None},
            _chat_call(name="f", arguments=""),
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        ),
    ),
    "Assistants": (
        "openai_assistants",
        [
            {"event": "thread.run.created", "data": {"id": "r", "object": "thread.run", "status": "queued"}},
            {"event": "thread.message.created", "data": _THREAD},
            {"event": "thread.message.in_progress", "data": _THREAD},
            {"event": "thread.message.delta", "data": _THREAD_DELTA},
        ],
    ),
    "Open Interpreter": (
        "open_interpreter",
        [
            {"role": "assistant", "type": "message", "start": True},
            {"role": "assistant", "type": "message", "content": "Hello"},
        ],
    ),
    "AI SDK": (
        "vercel_ui",
        [
            {"type": "start", "messageId": "m"},
            {"type": "start-step"},
            {"type": "text-start", "id": "t"},
            {"type": "text-delta", "id": "t", "delta": "Hello"},
        ],
    ),
    "AG-UI": (
        "ag_ui",
        [
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
            {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
        ],
    ),
    "streamkit": (
        "streamkit",
        [
            {"type": "run_created", "run": {"id": "r"}},
            {"type": "text_created", "message": {"id": "m", "role": "assistant", "type": "message"}},
            {"type": "text_delta", "message_id": "m", "value": ""},
            {"type": "text_delta", "message_id": "m", "value": "Hello"},
        ],
    ),
}

every_stream = pytest.mark.parametrize("name", STREAMS)


@every_face
@every_stream
@body
async def test_what_opens_a_message_is_no_content(face: Face, name: str) -> None:
    """`timing.first_delta` is None up to the first text, thinking, reasoning or argument."""
    protocol, items = STREAMS[name]
    async with face.stream(face.generator(Source(items)), protocol=protocol) as stream:
        async for one in stream:
            if isinstance(one, Delta) and one.value:
                break
            assert stream.timing.first_delta is None, one
        assert stream.timing.first_delta is not None


@every_face
@every_stream
@body
async def test_an_opened_message_does_not_extend_the_time_for_the_first_content(face: Face, name: str) -> None:
    protocol, items = STREAMS[name]
    with serving(*map(event, items[:-1]), ping=PINGS["comments"]) as url:
        async with response(face, url) as source:
            stream = face.stream(source, protocol=protocol, timeouts=sk.Timeouts(first=0.15, idle=30))
            error = await raised_by(stream)
    assert str(error) == "no content came within 0.15 seconds (`Timeouts.first`)"


@every_face
@body
async def test_time_that_ends_while_the_client_connects_is_a_timeout(face: Face) -> None:
    """A task group of the client's may take the interruption, and the client goes on without a connection."""
    protocol, items = STREAMS["streamkit"]
    for number in range(40):
        first = 0.0002 * number
        with serving(*map(event, items[:-1]), ping=PINGS["comments"]) as url:
            async with response(face, url) as source:
                stream = face.stream(source, protocol=protocol, timeouts=sk.Timeouts(first=first or 0.0001, idle=30))
                error = await raised_by(stream)
        assert isinstance(error, sk.SourceTimeoutError), error


@asynccontextmanager
async def response(face: Face, url: str) -> AsyncIterator[Any]:
    """A request that is not sent yet."""
    if not face.is_async:
        with httpx.Client() as client:
            yield client.stream("POST", url)  # noqa: ASYNC212  # the sync face runs on no event loop
    else:
        async with httpx.AsyncClient() as client:
            yield client.stream("POST", url)


class OpensTooLate:
    """A context manager that takes the interruption of its opening, and opens all the same."""

    is_open = False

    def __enter__(self) -> Iterator[bytes]:
        self.is_open = True
        time.sleep(0.05)
        return iter([b""])

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    async def __aenter__(self) -> Iterator[bytes]:
        self.is_open = True
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(60)
        return iter([b""])

    async def __aexit__(self, *_: object) -> None:
        self.is_open = False


@every_face
@body
async def test_a_source_that_opens_after_its_time_is_closed(face: Face) -> None:
    """The timeout is raised all the same."""
    source = OpensTooLate()
    error = await raised_by(face.stream(source, protocol="streamkit", timeouts=sk.Timeouts(first=0.02)))
    assert isinstance(error, sk.SourceTimeoutError), error
    assert not source.is_open


WHOLE = {
    "image": m.ImageMessage("m", format="url", content="https://example.com/1.png"),
    "call without arguments": m.ToolCallMessage("m", name="f", call_id="c"),
    "output without text": m.ToolOutputMessage("m", call_id="c"),
    "encrypted reasoning": m.ReasoningMessage("m", format="redacted", metadata={"data": "x"}),
    "file": m.FileMessage("m", format="file_id", content="file_1"),
}


@every_face
@pytest.mark.parametrize("kind", WHOLE)
@body
async def test_a_message_that_came_whole_is_content(face: Face, kind: str) -> None:
    """Though a call without arguments, for example, has no delta."""
    events = [MessageDone(WHOLE[kind]), StreamEnd(status="completed")]
    async with face.stream(face.generator(Source(events))) as stream:
        async for one in stream:
            if isinstance(one, Done):
                assert stream.timing.first_delta is not None


@every_face
@pytest.mark.parametrize("message", [m.TextMessage("m"), m.ReasoningMessage("m"), m.CodeMessage("m", format="python")])
@body
async def test_a_message_that_ends_empty_is_none(face: Face, message: m.Message) -> None:
    events = [MessageCreated(message.header()), MessageDone(message), StreamEnd(status="completed")]
    stream = face.stream(face.generator(Source(events)))
    await stream.until_done()
    assert stream.timing.first_delta is None
    assert stream.timing.deltas_per_second is None


def test_an_emitter_begins_to_count_at_the_first_content() -> None:
    """A part that was begun is none."""
    with sk.Emitter() as emitter:
        part = emitter.begin_text()
        assert emitter.timing.first_delta is None
        part.write("Hello")
        assert emitter.timing.first_delta is not None


def test_a_call_that_is_emitted_is_content() -> None:
    with sk.Emitter() as emitter:
        emitter.tool_call("f", "")
        assert emitter.timing.first_delta is not None


@every_face
@body
async def test_the_reader_of_a_relay_begins_to_count_at_the_first_content(face: Face) -> None:
    relay = sk.MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        emitter.begin_text().write("Hello")
    async with face.stream(relay.reader("run")) as stream:
        async for one in stream:
            if isinstance(one, TextDelta):
                break
            assert stream.timing.first_delta is None
        assert stream.timing.first_delta is not None
