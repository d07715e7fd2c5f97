"""Anthropic's own client as a source, over loopback: its streams, its helpers, and the ways in which they end."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

import streamkit as sk
from streamkit.testing import (
    CodeInterpreter,
    ModelServer,
    Reasoning,
    Refusal,
    Reply,
    ServiceError,
    Text,
    Tokens,
    ToolCall,
)

from .faces import Face, async_faces, body, both_shells, every_face, every_pair
from .telling import recordings

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}


@asynccontextmanager
async def client_of(face: Face, server: ModelServer | str, **options: Any) -> AsyncIterator[Any]:
    """The real client of this face. It never tries again."""
    url = server if isinstance(server, str) else server.root_url
    options = {"base_url": url, "api_key": "any", "max_retries": 0, **options}
    if face.is_async:
        async with anthropic.AsyncAnthropic(**options) as client:
            yield client
    else:
        with anthropic.Anthropic(**options) as sync:
            yield sync


def ask(client: Any, **options: Any) -> Callable[[], Any]:
    """A request that is not sent yet."""
    return lambda: client.messages.create(**{**REQUEST, "stream": True, **options})


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


# -- what the client gives


async def opened(face: Face, client: Any, kind: str) -> Any:
    """A source of the real client, of each kind that it has."""
    messages = client.beta.messages if kind.startswith("beta ") else client.messages
    match kind.removeprefix("beta "):
        case "callable":
            return lambda: messages.create(**REQUEST, stream=True)
        case "stream":
            sent = messages.create(**REQUEST, stream=True)
            return await sent if face.is_async else sent
        case "helper":
            return messages.stream(**REQUEST)
        case "helper, lazily":
            return lambda: messages.stream(**REQUEST)
        case "streaming response":
            return messages.with_streaming_response.create(**REQUEST, stream=True)
        case "raw response":
            raw = messages.with_raw_response.create(**REQUEST, stream=True)
            return await raw if face.is_async else raw
        case _:
            raise AssertionError(kind)


KINDS = ["callable", "stream", "helper", "helper, lazily", "streaming response", "raw response"]
KINDS += ["beta callable", "beta stream", "beta helper"]


@both_shells
@pytest.mark.parametrize("kind", KINDS)
@body
async def test_every_kind_of_stream_that_the_client_gives_is_a_source(face: Face, kind: str) -> None:
    """It is read to its end, closed, and tells the same."""
    with ModelServer(Reply("Hello there")) as server:
        async with client_of(face, server) as client:
            told = face.told()
            stream = face.stream(await opened(face, client, kind), told)
            assert await stream.get_final_text() == "Hello there"
            told.check_brackets()
            assert len(server.requests) == 1


@every_face
@pytest.mark.parametrize("kind", KINDS)
@body
async def test_every_kind_of_stream_is_closed_when_with_is_left(face: Face, kind: str) -> None:
    """The server sees the client leave."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with client_of(face, server) as client:
            async with face.stream(await opened(face, client, kind)) as stream:
                async for _ in stream.text_deltas:
                    break
            assert await face.in_thread(server.wait_for_disconnect)


@both_shells
@body
async def test_an_entered_helper_is_a_source(face: Face) -> None:
    """Its bytes are read: the helper itself stays where it is."""
    with ModelServer(Reply("Hello")) as server:
        async with client_of(face, server) as client:
            if face.is_async:
                async with client.messages.stream(**REQUEST) as helper:
                    assert await face.stream(helper).get_final_text() == "Hello"
            else:
                with client.messages.stream(**REQUEST) as helper:
                    assert await face.stream(helper).get_final_text() == "Hello"
            with pytest.raises(AssertionError):
                _ = helper.current_message_snapshot


@pytest.mark.parametrize("beta", [True, False])
def test_a_helper_that_was_read_in_part_goes_on_where_it_is(beta: bool) -> None:
    """Through the client's own objects; what the helper adds to the events is told once."""
    script = Reply(Reasoning("Hm."), "Hello there", ToolCall("f", {"x": 1}))
    with ModelServer(script) as server, anthropic.Anthropic(base_url=server.root_url, api_key="any") as client:
        messages = client.beta.messages if beta else client.messages
        with messages.stream(**REQUEST) as helper:
            for _ in range(5):
                next(helper)
            stream = sk.stream(helper)
            assert stream.get_final_text() == "Hello there"
            assert [m.content for m in stream.messages if m.type == "tool_call"] == ['{"x": 1}']
            assert stream.status == "requires_action"


@pytest.mark.parametrize("beta", [True, False])
def test_the_clients_typed_objects_are_a_source(beta: bool) -> None:
    """In a list: the events of a stream, those of a helper, and a whole message."""
    script = Reply(Reasoning("Hm."), "Hello", ToolCall("f", {"x": 1}))
    with ModelServer(script) as server, anthropic.Anthropic(base_url=server.root_url, api_key="any") as client:
        messages: Any = client.beta.messages if beta else client.messages
        raw = list(messages.create(**REQUEST, stream=True))
        with messages.stream(**REQUEST) as helper:
            added = list(helper)
        whole = messages.create(**REQUEST)
    assert len(added) > len(raw)
    for source in (raw, added, iter(added), whole):
        stream = sk.stream(source)
        assert [(m.type, m.content) for m in stream.get_final_messages()] == [
            ("reasoning", "Hm."),
            ("message", "Hello"),
            ("tool_call", '{"x":1}' if source is whole else '{"x": 1}'),
        ]
        assert stream.warnings == ()
        assert stream.status == "requires_action"


@both_shells
@pytest.mark.parametrize("library", [httpx, httpx2])
@body
async def test_an_http_response_is_a_source(face: Face, library: Any) -> None:
    """Without the client."""
    with ModelServer(Reply("Hello")) as server:
        request = ("POST", server.url + "/messages")
        options: Any = {"json": {**REQUEST, "stream": True}, "headers": {"anthropic-version": "2023-06-01"}}
        if face.is_async:
            async with library.AsyncClient() as client:
                assert await face.stream(client.stream(*request, **options)).get_final_text() == "Hello"
        else:
            with library.Client() as client:
                assert await face.stream(client.stream(*request, **options)).get_final_text() == "Hello"


@async_faces
@body
async def test_the_sync_client_works_on_an_async_stream(face: Face) -> None:
    """It is pulled in a worker thread."""
    with ModelServer(Reply("Hello")) as server:
        client = anthropic.Anthropic(base_url=server.root_url, api_key="any", max_retries=0)
        with client:
            assert await face.stream(ask(client)).get_final_text() == "Hello"
            assert await face.stream(client.messages.stream(**REQUEST)).get_final_text() == "Hello"


@both_shells
@body
async def test_the_bytes_of_an_unread_stream_are_used(face: Face) -> None:
    """The client's own iterator is never begun: its objects are not built."""
    with ModelServer(Reply("Hello")) as server:
        async with client_of(face, server) as client:
            given = await opened(face, client, "stream")
            assert await face.stream(given).get_final_text() == "Hello"
            assert "_iterator" not in vars(given)


# -- what it says


@both_shells
@body
async def test_thinking_text_code_and_calls_are_told_apart(face: Face) -> None:
    """With the signature and the usage."""
    parts = (Reasoning("Let me see."), CodeInterpreter("print(34/24)\n", "1.41\n"), Text("It is 1.41."))
    with ModelServer(Reply(*parts, ToolCall("save", {"n": 1}), usage=Tokens(9, 8, 4, 3))) as server:
        async with client_of(face, server) as client:
            told = face.told()
            stream = face.stream(client.messages.stream(**REQUEST), told)
            await stream.until_done()
            told.check_brackets()
            assert [(m.type, m.content) for m in stream.messages] == [
                ("reasoning", "Let me see."),
                ("code", "print(34/24)\n"),
                ("console", "1.41\n"),
                ("message", "It is 1.41."),
                ("tool_call", '{"n": 1}'),
            ]
            assert stream.messages[0].metadata == {"signature": "signature_1_0"}
            assert "".join(str(d) for d in told.of("on_code_delta")) == "print(34/24)\n"
            assert len(told.of("on_code_delta")) > 1
            assert "".join(str(d) for d in told.of("on_reasoning_delta")) == "Let me see."
            assert stream.usage is not None
            assert (stream.usage.input_tokens, stream.usage.output_tokens, stream.usage.total_tokens) == (5, 8, 17)
            assert stream.status == "requires_action"


@both_shells
@pytest.mark.parametrize("interleave", [True, False])
@body
async def test_parallel_calls_are_answered_and_the_answer_goes_on(face: Face, interleave: bool) -> None:
    """`to_input` gives the next request the signed thinking, the calls, and all outputs in one turn."""
    calls = (ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"}))
    with ModelServer([Reply(Reasoning("Two."), *calls, interleave=interleave), Reply("It rains.")]) as server:
        async with client_of(face, server) as client:

            def request(stream: Any = None) -> Any:
                said = sk.to_input(stream.messages if stream else [], "anthropic")
                return client.messages.create(**{**REQUEST, "messages": [*REQUEST["messages"], *said]}, stream=True)

            told = face.told(on_tool_call_done=lambda _, call: call.respond(f"rain in {call.arguments['city']}"))
            stream = face.stream(request, told, then=request)
            assert await stream.get_final_text() == "It rains."
            told.check_brackets()
            assert len(await stream.get_final_run_steps()) == 2
            assert stream.status == "completed"
            _, assistant, user = server.requests[1].body["messages"]
    assert [block["type"] for block in assistant["content"]] == ["thinking", "tool_use", "tool_use"]
    assert assistant["content"][0]["signature"] == "signature_1_0"
    assert [block["tool_use_id"] for block in user["content"]] == ["call_1_0", "call_1_1"]
    assert [block["content"][0]["text"] for block in user["content"]] == ["rain in Oslo", "rain in Rome"]


def raw(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


PAUSED = raw(
    {"type": "message_start", "message": {"id": "msg", "role": "assistant", "model": "m", "content": []}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "pause_turn", "stop_sequence": None}, "usage": {}},
    {"type": "message_stop"},
)


@both_shells
@body
async def test_a_paused_turn_is_incomplete_and_can_be_sent_back(face: Face) -> None:
    """As it came."""
    with ModelServer([Reply(raw=PAUSED), Reply("Found.")]) as server:
        async with client_of(face, server) as client:
            stream = face.stream(ask(client))
            run = await stream.get_final_run()
            assert (run.status, run.finish_reason) == ("incomplete", "pause_turn")
            said = [*REQUEST["messages"], *sk.to_input(stream.messages, "anthropic")]
            assert await face.stream(ask(client, messages=said)).get_final_text() == "Found."
            sent = server.requests[1].body["messages"][1]
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    assert sent == {"role": "assistant", "content": [use]}


@both_shells
@body
async def test_a_paused_turn_goes_on_with_then(face: Face) -> None:
    """Nothing has to be answered for that: one run, a step for each response."""
    with ModelServer([Reply(raw=PAUSED), Reply("Found.")]) as server:
        async with client_of(face, server) as client:

            def go_on(stream: Any) -> Any:
                said = sk.to_input(stream.messages, "anthropic")
                return ask(client, messages=[*REQUEST["messages"], *said])()

            stream = face.stream(ask(client), then=go_on)
            assert await stream.get_final_text() == "Found."
            assert (stream.status, len(await stream.get_final_run_steps())) == ("completed", 2)
    assert len(server.requests) == 2, "what is over is not asked to go on"


@both_shells
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(Refusal("No.")), "refusal"),
        (Reply("No.", finish_reason="content_filter"), "refusal"),
        (Reply("No.", finish_reason="length"), "max_tokens"),
    ],
)
@body
async def test_an_answer_that_was_cut_short_returns(face: Face, reply: Reply, reason: str) -> None:
    """Nothing is raised."""
    with ModelServer(reply) as server:
        async with client_of(face, server) as client:
            stream = face.stream(ask(client))
            assert await stream.get_final_text() == "No."
            assert stream.status == "incomplete"
            assert (await stream.get_final_run()).finish_reason == reason
            assert [m.status for m in stream.messages] == ["incomplete"]


@both_shells
@body
async def test_a_stream_is_told_in_another_protocol(face: Face) -> None:
    """A chat client can read it."""
    with ModelServer(Reply("Hello")) as server:
        async with client_of(face, server) as client:
            chunks = [chunk async for chunk in face.stream(ask(client)).chunks("openai_chat")]
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
            assert "".join(delta.get("content") or "" for delta in deltas) == "Hello"


BLOCKS_OUT_OF_ORDER = raw(
    {"type": "message_start", "message": {"id": "msg", "role": "assistant", "model": "m", "content": [], "usage": {}}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "one"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "zero"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)


@both_shells
@body
async def test_blocks_that_begin_out_of_order_are_kept_apart_by_their_index(face: Face) -> None:
    """The client's own helper goes by the order in which they begin, and gives each the other's text."""
    with ModelServer(Reply(raw=BLOCKS_OUT_OF_ORDER)) as server:
        async with client_of(face, server) as client:
            stream = face.stream(ask(client))
            await stream.until_done()
            assert [(m.index, m.content) for m in stream.messages] == [(1, "one"), (0, "zero")]
        with (
            anthropic.Anthropic(base_url=server.root_url, api_key="any") as sync,
            sync.messages.stream(**REQUEST) as own,
        ):
            assert [block.text for block in own.get_final_message().content if block.type == "text"] == ["zero", "one"]


# -- how it ends


@both_shells
@body
async def test_an_error_that_the_service_sends_mid_stream_is_a_failed_run(face: Face) -> None:
    """With its type as the code; what was said is kept."""
    error_sent = ServiceError("Overloaded", "overloaded_error")
    with ModelServer(Reply("Hello there", error_after=3, error=error_sent)) as server:
        async with client_of(face, server) as client:
            told = face.told()
            stream = face.stream(ask(client), told)
            error = await raised_by(stream.until_done())
            assert isinstance(error, sk.RunFailedError)
            assert (error.code, str(error)) == ("overloaded_error", "Overloaded")
            assert [(m.content, m.status) for m in error.messages] == [("Hello ther", "failed")]
            told.check_brackets()


def called(index: int, id: str, *pieces: str, stops: bool = True) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": id, "name": "weather", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    events: list[dict[str, Any]] = [{"type": "content_block_start", "index": index, "content_block": block}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*events, *([{"type": "content_block_stop", "index": index}] if stops else [])]


def ended(reason: str) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}, STOP]


STOP: dict[str, Any] = {"type": "message_stop"}
BEGUN: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg", "role": "assistant", "model": "m", "content": [], "usage": {}},
}
HALF_A = called(0, "a", '{"city":', '"Os')
BOTH_HALF = [*HALF_A[:-1], *called(1, "b", '{"ci'), HALF_A[-1]]
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
CUT_CALLS: dict[str, tuple[list[dict[str, Any]], bool, type[BaseException] | None, str]] = {
    "the connection": (HALF_A, True, sk.SourceError, "failed"),
    "the response's end": (HALF_A, False, sk.IncompleteStreamError, "incomplete"),
    "an error": ([*HALF_A, OVERLOADED], False, sk.RunFailedError, "failed"),
    "no stop_reason": ([*HALF_A, STOP], False, None, "incomplete"),
    "max_tokens": ([*HALF_A, *ended("max_tokens")], False, None, "incomplete"),
    "two": ([*HALF_A, *called(1, "b", '{"ci'), *ended("max_tokens")], False, None, "incomplete"),
    "interleaved": ([*BOTH_HALF, *ended("max_tokens")], False, None, "incomplete"),
    "interleaved, an error": ([*BOTH_HALF, OVERLOADED], False, sk.RunFailedError, "failed"),
    "interleaved, the connection": (BOTH_HALF, True, sk.SourceError, "failed"),
}


@every_face
@pytest.mark.parametrize(("events", "drops", "kind", "status"), CUT_CALLS.values(), ids=CUT_CALLS)
@body
async def test_half_a_call_is_never_completed_or_waited_for(
    face: Face, events: Any, drops: bool, kind: type[BaseException] | None, status: str
) -> None:
    """Though its block stopped: nobody runs it."""
    pieces = [raw(event) for event in [BEGUN, *events]]
    with ModelServer(Reply(raw=pieces, cut_after=len(pieces) if drops else None)) as server:
        async with client_of(face, server) as client:
            told = face.told()
            stream = face.stream(ask(client), told, then=lambda _: pytest.fail("it cannot go on"))
            if kind is None:
                await stream.until_done()
            else:
                assert isinstance(await raised_by(stream.until_done()), kind)
            told.check_brackets()
            assert [call.status for call in told.of("on_tool_call_done")] == [status] * len(stream.messages)
            assert [call.waiting for call in stream.messages] == [False] * len(stream.messages)
            assert (stream.status, stream.pending, stream.warnings) == (status, {}, ())


@every_face
@body
async def test_arguments_that_are_no_json_at_the_models_own_end_are_waited_for(face: Face) -> None:
    """With a warning: there is no more of them."""
    with ModelServer(Reply(raw=raw(BEGUN, *HALF_A, *ended("tool_use")))) as server:
        async with client_of(face, server) as client:
            stream = face.stream(ask(client))
            await stream.until_done()
            assert [warning.code for warning in stream.warnings] == ["bad-arguments"]
            assert (stream.status, [*stream.pending]) == ("requires_action", ["a"])


@both_shells
@body
async def test_an_answer_that_was_cut_in_its_second_call_does_not_go_on(face: Face) -> None:
    """The first one was whole, and is answered; `then` is not called."""
    events = [*called(0, "a", '{"city":', '"Oslo"}'), *called(1, "b", '{"ci'), *ended("max_tokens")]
    with ModelServer(Reply(raw=raw(BEGUN, *events))) as server:
        async with client_of(face, server) as client:
            told = face.told(on_tool_call_done=lambda _, call: call.waiting and call.respond("rain"))
            stream = face.stream(ask(client), told, then=lambda _: pytest.fail("it was cut short"))
            await stream.until_done()
            told.check_brackets()
            assert stream.status == "incomplete"
            assert [(x.type, x.status) for x in stream.messages] == [
                ("tool_call", "completed"),
                ("tool_call", "incomplete"),
                ("tool_output", "completed"),
            ]
    assert len(server.requests) == 1


@both_shells
@body
async def test_a_whole_call_is_told_while_the_next_one_is_said(face: Face) -> None:
    """Its tool may run by then."""
    first = [BEGUN, *called(0, "a", '{"city":', '"Oslo"}')]
    pieces = [raw(event) for event in first]
    with ModelServer(Reply(raw=pieces, never_ends=True)) as server:
        async with client_of(face, server) as client:
            told = face.told(on_tool_call_done=lambda told, call: told.stream.cancel())
            stream = face.stream(ask(client), told)
            await stream.until_done()
            assert [call.status for call in told.of("on_tool_call_done")] == ["completed"]


@both_shells
@body
async def test_a_server_that_goes_in_the_middle_of_an_event_is_a_source_error(face: Face) -> None:
    with ModelServer(Reply("Hello there", cut_after=3)) as server:
        async with client_of(face, server) as client:
            told = face.told()
            error = await raised_by(face.stream(ask(client), told).until_done())
            assert isinstance(error, sk.SourceError)
            assert error.__cause__ is not None
            assert [(m.content, m.status) for m in error.messages] == [("Hello ther", "failed")]
            told.check_brackets()


@every_face
@body
async def test_a_stream_that_ends_before_its_stop_reason_is_incomplete(face: Face) -> None:
    """Though the response ended well."""
    with ModelServer(Reply(raw=PAUSED[: PAUSED.index(b"event: message_delta")])) as server:
        async with client_of(face, server) as client:
            error = await raised_by(face.stream(ask(client)).until_done())
            assert isinstance(error, sk.IncompleteStreamError)


STATUSES = [
    (400, "BadRequestError", "invalid_request_error"),
    (401, "AuthenticationError", "authentication_error"),
    (429, "RateLimitError", "rate_limit_error"),
    (500, "InternalServerError", "api_error"),
    (529, "OverloadedError", "overloaded_error"),
]


@every_pair
@both_shells
@pytest.mark.parametrize(("status", "kind", "type"), STATUSES)
@pytest.mark.parametrize("helper", [True, False])
@body
async def test_a_refused_request_is_a_source_error(face: Face, status: int, kind: str, type: str, helper: bool) -> None:
    """With the status, and the client's own error as the cause."""
    with ModelServer(Reply(status=status)) as server:
        async with client_of(face, server) as client:
            told = face.told()
            source = client.messages.stream(**REQUEST) if helper else ask(client)
            error = await raised_by(face.stream(source, told).until_done())
            assert error.__class__ is sk.SourceError
            assert isinstance(error, sk.SourceError)
            assert error.status_code == status
            cause = error.__cause__
            assert cause.__class__.__name__ == kind
            assert isinstance(cause, anthropic.APIStatusError)
            assert cause.type == type
            assert told.hooks == ["on_exception", "on_end"]


@both_shells
@body
async def test_a_connection_that_cannot_be_made_is_a_source_error(face: Face) -> None:
    async with client_of(face, "http://127.0.0.1:1") as client:
        error = await raised_by(face.stream(ask(client)).until_done())
        assert type(error) is sk.SourceError
        assert isinstance(error.__cause__, anthropic.APIConnectionError)


@pytest.mark.slow
@every_face
@pytest.mark.parametrize("when", ["first_delay", "never_ends"])
@body
async def test_a_timeout_is_a_source_timeout(face: Face, when: str) -> None:
    """Before the first piece, and after the last."""
    options: dict[str, Any] = {"first_delay": 60} if when == "first_delay" else {"never_ends": True}
    with ModelServer(Reply("Hello", **options)) as server:
        async with client_of(face, server, timeout=1.0) as client:
            told = face.told()
            error = await raised_by(face.stream(ask(client), told).until_done())
            assert isinstance(error, sk.SourceTimeoutError)
            assert isinstance(error, TimeoutError)
            assert "Timeout" in type(error.__cause__).__name__
            assert told.hooks[-3:] == ["on_timeout", "on_exception", "on_end"]
            assert await face.in_thread(server.wait_for_disconnect)


@every_face
@body
async def test_cancel_returns_what_arrived_and_closes(face: Face) -> None:
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with client_of(face, server) as client:
            told = face.told(on_text_delta=lambda told, delta, text: text.content == "Hello" and told.stream.cancel())
            assert await face.stream(ask(client), told).get_final_text() == "Hello"
            told.check_brackets()
            assert await face.in_thread(server.wait_for_disconnect)


# -- the way back: the client reads what is told in its own protocol


def as_the_client_reads(body: bytes) -> Any:
    """The message that the client's helper makes of a body, without nulls."""
    with ModelServer(Reply(raw=body)) as server:
        client = anthropic.Anthropic(base_url=server.root_url, api_key="any", max_retries=0)
        with client, client.beta.messages.stream(**REQUEST) as helper:  # type: ignore[arg-type]
            return json.loads(helper.get_final_message().to_json(exclude_none=True, exclude_unset=False))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the client's own types lag behind the recordings
@pytest.mark.parametrize("path", recordings("anthropic-messages")[::2])
def test_the_client_reads_the_same_message_in_what_is_told_of_a_recorded_stream(path: Path) -> None:
    """Without an exception: signatures, citations, encrypted summaries, every count of its usage. Nulls are as good
    as absent."""
    recorded = path.read_bytes()
    if path.suffix == ".jsonl":
        recorded = raw(*(json.loads(line) for line in recorded.splitlines() if line.strip()))
    again = raw(*sk.stream(path, protocol="anthropic").chunks("anthropic"))
    assert as_the_client_reads(again) == as_the_client_reads(recorded)


def test_the_last_signature_holds_for_the_client_too() -> None:
    """Where a block is signed more than once."""
    deltas = [
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "one"},
        {"type": "signature_delta", "signature": "two"},
    ]
    block = {"type": "thinking", "thinking": "", "signature": ""}
    signed = raw(
        BEGUN,
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        *ended("end_turn"),
    )
    (thought,) = as_the_client_reads(signed)["content"]
    (said,) = sk.to_input(sk.stream([signed]).get_final_messages(), "anthropic")[0]["content"]
    assert said == thought == {"type": "thinking", "thinking": "Hm.", "signature": "two"}


# -- the package


def test_streams_are_read_without_the_client_being_imported() -> None:
    """Nor is it imported to recognise its objects."""
    code = """
import sys, streamkit as sk
items = [
    {"type": "message_start", "message": {"id": "m"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
    {"type": "message_stop"},
]
assert sk.stream(items).get_final_text() == "a"
print(*{"anthropic", "openai", "httpx", "httpx2"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == []


def test_the_extra_names_the_client() -> None:
    """`pip install 'streamkit-sdk[anthropic]'` brings it, and so does what the tests need."""
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [name for name in extras["anthropic"] if name.startswith("anthropic")]
    brought = next(entry for entry in extras["test"] if entry.startswith("streamkit-sdk["))
    assert "anthropic" in brought.removeprefix("streamkit-sdk[").rstrip("]").split(",")


# -- the testing server's dialect

REPLIES = {
    "text": Reply("Hello, world: grüße, 你好 🌍!"),
    "nothing": Reply(),
    "refusal": Reply(Refusal("I cannot.")),
    "reasoning": Reply(Reasoning("Let me think."), Text("42")),
    "calls": Reply(Text("I'll look."), ToolCall("f", {"x": "é"}), ToolCall("g")),
    "interleaved": Reply(ToolCall("f", {"x": 1}), ToolCall("g", {"y": [1, 2]}), interleave=True),
    "code": Reply(CodeInterpreter('print("a\\n")\n', "a\n"), Text("Done.")),
    "cut short": Reply("Once", finish_reason="length"),
    "usage": Reply("Hi", usage=Tokens(7, 5, 3, 2), model="m-2"),
}
replies = pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)


@pytest.fixture
def dialect() -> Iterator[Callable[[Reply], tuple[ModelServer, anthropic.Anthropic]]]:
    servers: list[ModelServer] = []

    def serve(reply: Reply) -> tuple[ModelServer, anthropic.Anthropic]:
        server = ModelServer(reply)
        servers.append(server)
        return server, anthropic.Anthropic(base_url=server.root_url, api_key="any", max_retries=0)

    yield serve
    for server in servers:
        server.close()


@replies
def test_the_server_says_what_the_service_would(reply: Reply, dialect: Any) -> None:
    """Each event passes the SDK's own union in strict mode; the helper accumulates what the whole message says."""
    server, client = dialect(reply)
    headers = {"anthropic-version": "2023-06-01"}
    answer = httpx.post(server.url + "/messages", json={**REQUEST, "stream": True}, headers=headers)
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        name, data = (line.split(": ", 1)[1] for line in block.split("\n"))
        assert json.loads(data)["type"] == name
        if name != "ping":
            TypeAdapter[Any](RawMessageStreamEvent).validate_json(data, strict=True)
    whole = httpx.post(server.url + "/messages", json=REQUEST, headers=headers)
    Message.model_validate_json(whole.content, strict=True)
    with client, client.messages.stream(**REQUEST) as helper:
        final = helper.get_final_message()
    assert final.model_dump(exclude={"id", "content", "parsed_output"})["stop_reason"] == whole.json()["stop_reason"]
    said = [(b.type, getattr(b, "text", None), getattr(b, "input", None)) for b in final.content]
    assert said == [(b["type"], b.get("text"), b.get("input")) for b in whole.json()["content"]]


@replies
def test_the_scripted_reply_is_what_a_stream_tells(reply: Reply, dialect: Any) -> None:
    """Without a warning, on a strict stream, whole or streamed."""
    _, client = dialect(reply)
    with client:
        streamed = sk.stream(ask(client), strict=True)
        whole = sk.stream(lambda: client.messages.create(**REQUEST), strict=True)
        assert told(streamed) == told(whole)
        assert (streamed.status, streamed.usage.total_tokens) == (whole.status, whole.usage.total_tokens)  # type: ignore[union-attr]


def told(stream: sk.StreamManager) -> list[Any]:
    messages = stream.get_final_messages()
    return [(m.type, m.arguments if isinstance(m, sk.ToolCallMessage) else m.content) for m in messages]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ({"json": {"model": "m"}}, 400, "messages"),
        ({"json": {"model": "m", "messages": []}}, 400, "max_tokens"),
        ({"content": b"{"}, 400, "JSON"),
        ({"json": REQUEST, "headers": {}}, 400, "anthropic-version"),
    ],
)
def test_a_request_that_makes_no_sense_is_turned_down(options: Any, status: int, text: str) -> None:
    """In the service's words."""
    with ModelServer(Reply("a")) as server:
        answer = httpx.post(server.url + "/messages", **{"headers": {"anthropic-version": "x"}, **options})
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert text in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"error_after": 1}, anthropic.InternalServerError), ({"cut_after": 1}, anthropic.APIConnectionError)],
)
def test_faults_reach_requests_without_a_stream(options: Any, kind: type[Exception]) -> None:
    with (
        ModelServer(Reply("Hello", **options)) as server,
        anthropic.Anthropic(base_url=server.root_url, api_key="any", max_retries=0) as client,
        pytest.raises(kind),
    ):
        client.messages.create(**REQUEST)
