"""The scripted model server, as the real `openai` client sees it."""

from __future__ import annotations

import asyncio
import doctest
import gc
import json
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

import streamkit.testing
from streamkit.errors import UsageError
from streamkit.testing import (
    CodeInterpreter,
    McpApproval,
    ModelServer,
    Reasoning,
    Refusal,
    Reply,
    Request,
    ServiceError,
    Text,
    Tokens,
    ToolCall,
)

pytestmark = pytest.mark.filterwarnings("error")

HELLO = "Hello, world: grüße, 你好 🌍!\n\n  Done."
WEATHER = (ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Reykjavík"}, call_id="mine"))
CHAT: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES: Any = {"model": "m", "input": "hi"}
PATHS = [("/chat/completions", CHAT), ("/responses", RESPONSES)]

# name -> a reply, and what it says: text, refusal, reasoning, calls
REPLIES = {
    "text": Reply(Text(HELLO)),
    "nothing": Reply(),
    "refusal": Reply(Refusal("I'm sorry, I cannot.")),
    "reasoning, text": Reply(Reasoning("Let me think."), Text("42")),
    "full reasoning": Reply(Reasoning("Let me think.", summary=False), Text("42")),
    "text, call": Reply(Text("I'll look."), WEATHER[0]),
    "parallel calls": Reply(*WEATHER),
    "interleaved calls": Reply(*WEATHER, interleave=True),
    "cut short": Reply(Text("Once upon a"), finish_reason="length"),
    "filtered": Reply(Text("Once upon a"), finish_reason="content_filter"),
    "a call without arguments": Reply(ToolCall("now")),
    "usage": Reply(Text("Hi"), usage=Tokens(input=7, output=5, cached=3, reasoning=2), model="m-2"),
}
CODE = Reply(CodeInterpreter("print(34/24)\n", "1.4166666666666667\n"), Text("It is 1.42."))

UNCUT = {name: reply for name, reply in REPLIES.items() if reply.finish_reason in ("stop", "tool_calls")}

replies = pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
dialects = pytest.mark.parametrize(("path", "body"), PATHS, ids=["chat", "responses"])


def client_of(server: ModelServer, **options: Any) -> openai.OpenAI:
    """The real client, which does not try again unless told to."""
    given: dict[str, Any] = {"max_retries": 0, "timeout": 10, **options}
    return openai.OpenAI(base_url=server.url, api_key="test", **given)


def async_client_of(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0, timeout=10)


def complete(client: openai.OpenAI) -> ChatCompletion:
    """Asks Chat Completions, without a stream."""
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def respond(client: openai.OpenAI) -> Response:
    """Asks Responses, without a stream."""
    return client.responses.create(model="m", input="hi")


def said(reply: Reply, kind: type[Any]) -> str:
    """What the reply says in parts of this kind."""
    return "".join(part.text for part in reply.parts if isinstance(part, kind))


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    return [(part.name, part.text) for part in reply.parts if isinstance(part, ToolCall)]


def sse_of(server: ModelServer, path: str, body: dict[str, Any]) -> list[tuple[str | None, Any]]:
    """The events on the wire: the `event` field and the parsed data ("[DONE]" as it is)."""
    answer = httpx.post(server.url + path, json=body | {"stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events: list[tuple[str | None, Any]] = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        events.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
    return events


@pytest.fixture
def hanging() -> Iterator[ModelServer]:
    """A server whose stream never ends."""
    with ModelServer(Reply(Text(HELLO), never_ends=True)) as server:
        yield server


# -- the wire is what the services send


@replies
def test_each_chat_chunk_is_strictly_valid(reply: Reply) -> None:
    """Each chunk passes the SDK's own class in strict mode, and carries one id."""
    with ModelServer(reply) as server:
        *chunks, last = sse_of(server, "/chat/completions", CHAT | {"stream_options": {"include_usage": True}})
    assert last == (None, "[DONE]")
    for name, chunk in chunks:
        assert name is None
        ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)
        assert (chunk["id"], chunk["model"]) == ("chatcmpl-1", reply.model or "m")


@pytest.mark.slow
@pytest.mark.parametrize("reply", [*REPLIES.values(), CODE], ids=[*REPLIES, "code"])
def test_each_responses_event_is_strictly_valid(reply: Reply) -> None:
    """Each event passes the SDK's own union in strict mode, is named by its SSE field, and they are numbered from 0."""
    union = TypeAdapter[Any](ResponseStreamEvent)
    with ModelServer(reply) as server:
        events = sse_of(server, "/responses", RESPONSES)
    for number, (name, event) in enumerate(events):
        assert union.validate_json(json.dumps(event), strict=True).type == name == event["type"]
        assert event["sequence_number"] == number
    first, *_, last = (event for _, event in events)
    assert first["response"]["output"] == []
    assert last["response"]["output"] == [e["item"] for _, e in events if e["type"] == "response.output_item.done"]


@replies
def test_whole_answers_are_strictly_valid(reply: Reply) -> None:
    """Without `stream`, both dialects answer one JSON object that passes the SDK's class in strict mode."""
    with ModelServer(reply) as server:
        chat = httpx.post(server.url + "/chat/completions", json=CHAT)
        responses = httpx.post(server.url + "/responses", json=RESPONSES)
    ChatCompletion.model_validate_json(chat.content, strict=True)
    Response.model_validate_json(responses.content, strict=True)
    assert chat.headers["content-type"] == responses.headers["content-type"] == "application/json"


@pytest.mark.slow
def test_the_same_script_tells_the_same_bytes() -> None:
    """There is no clock and no chance in it."""

    def bodies() -> list[bytes]:
        with ModelServer(list(REPLIES.values())) as server:
            return [httpx.post(server.url + path, json=body | {"stream": True}).content for path, body in PATHS * 12]

    assert bodies() == bodies()


def test_events_have_the_services_order() -> None:
    """A Responses stream opens, fills and closes each item as the recorded ones do."""
    with ModelServer(Reply(Reasoning("Hm."), CodeInterpreter("1", "1"), ToolCall("f", "{}"), Text("Hi"))) as server:
        events = sse_of(server, "/responses", RESPONSES)
    assert [str(name).removeprefix("response.") for name, _ in events] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "code_interpreter_call.in_progress", "code_interpreter_call_code.delta"),
        *("code_interpreter_call_code.done", "code_interpreter_call.interpreting", "code_interpreter_call.completed"),
        "output_item.done",
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    ids = [event["item"]["id"] for name, event in events if name == "response.output_item.added"]
    assert ids == ["rs_1_0", "ci_1_1", "fc_1_2", "msg_1_3"]


def test_usage_is_told_on_chat_only_if_asked_for() -> None:
    """`include_usage` adds a last chunk without choices; without it no chunk has the key."""
    with ModelServer(REPLIES["usage"]) as server:
        with_usage = sse_of(server, "/chat/completions", CHAT | {"stream_options": {"include_usage": True}})
        without = sse_of(server, "/chat/completions", CHAT)
    chunk = with_usage[-2][1]
    assert chunk["choices"] == [] and chunk["usage"]["total_tokens"] == 12
    assert chunk["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert all(chunk["usage"] is None for _, chunk in with_usage[:-2])
    assert not any("usage" in chunk for _, chunk in without[:-1])


# -- the real client reads it


@replies
def test_chat_streams_tell_the_reply(reply: Reply) -> None:
    """`create(stream=True)`: the deltas add up to the reply."""
    text = refusal = reasoning = ""
    calls: dict[int, list[str]] = {}
    finish: str | None = None
    with ModelServer(reply) as server, client_of(server) as client:
        for chunk in client.chat.completions.create(**CHAT, stream=True):
            (choice,) = chunk.choices
            text += choice.delta.content or ""
            refusal += choice.delta.refusal or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                assert call.function
                known = calls.setdefault(call.index, [call.function.name or "", ""])
                known[1] += call.function.arguments or ""
            finish = choice.finish_reason
    assert (text, refusal, reasoning) == (said(reply, Text), said(reply, Refusal), said(reply, Reasoning))
    assert [tuple(call) for call in calls.values()] == calls_of(reply)
    assert finish == reply.finish_reason


@pytest.mark.parametrize("reply", UNCUT.values(), ids=UNCUT)
def test_the_chat_helper_reads_the_reply(reply: Reply) -> None:
    """`chat.completions.stream(...)` accumulates what the completion without a stream says. (For an answer that was
    cut short the helper raises.)"""
    with ModelServer(reply) as server, client_of(server) as client:
        with client.chat.completions.stream(**CHAT) as stream:
            streamed = stream.get_final_completion().choices[0].message
        whole = complete(client).choices[0].message
    assert (streamed.content or "", streamed.refusal or "") == (said(reply, Text), said(reply, Refusal))
    for message in (streamed, whole):
        calls = [call for call in message.tool_calls or [] if call.type == "function"]
        assert [(call.function.name, call.function.arguments) for call in calls] == calls_of(reply)
    assert (whole.content or "", whole.refusal or "") == (said(reply, Text), said(reply, Refusal))


@pytest.mark.slow
@pytest.mark.parametrize("reply", [*REPLIES.values(), CODE], ids=[*REPLIES, "code"])
def test_the_responses_helper_reads_the_reply(reply: Reply) -> None:
    """`responses.stream(...)`: what it accumulates, the final response and the one without a stream say the same."""
    with ModelServer(reply) as server, client_of(server) as client:
        with client.responses.stream(**RESPONSES) as stream:
            events = list(stream)
            if reply.finish_reason in ("stop", "tool_calls"):
                final = stream.get_final_response()
                assert final.output_text == said(reply, Text)
        whole = respond(client)
    assert whole.output_text == said(reply, Text)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == said(reply, Text)
    assert "".join(e.delta for e in events if e.type == "response.refusal.delta") == said(reply, Refusal)
    called = [item for item in whole.output if item.type == "function_call"]
    assert [(item.name, item.arguments) for item in called] == calls_of(reply)
    incomplete = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish_reason)
    assert (whole.incomplete_details and whole.incomplete_details.reason) == incomplete
    assert events[-1].type == f"response.{whole.status}"


def test_reasoning_is_a_summary_or_the_full_text() -> None:
    """On Responses, `summary=False` sends the reasoning itself."""
    with ModelServer([Reply(Reasoning("Hm, so.")), Reply(Reasoning("Hm, so.", summary=False))]) as server:
        client = client_of(server)
        with client:
            summary, full = (respond(client).output[0] for _ in range(2))
    assert summary.type == "reasoning" and full.type == "reasoning"
    assert [part.text for part in summary.summary] == ["Hm, so."] and not summary.content
    assert [part.text for part in full.content or []] == ["Hm, so."] and not full.summary


def test_a_response_announces_the_summaries_that_it_sends() -> None:
    """As OpenAI's do from their beginning, so that a reader knows what the reasoning will be."""
    replies = [Reply(Reasoning("Hm.")), Reply(Reasoning("Hm."))]
    for summary, asked in (("auto", {}), ("detailed", {"reasoning": {"effort": "high", "summary": "detailed"}})):
        with ModelServer(replies) as server:
            (_, created), *_ = sse_of(server, "/responses", RESPONSES | asked)
        assert created["response"]["reasoning"]["summary"] == summary
    with ModelServer(Reply(Reasoning("Hm.", summary=False))) as server:
        (_, created), *_ = sse_of(server, "/responses", RESPONSES)
    assert created["response"]["reasoning"]["summary"] is None


def test_code_and_its_logs_are_an_item_on_responses() -> None:
    """A code interpreter's call has the code and what it printed."""
    with ModelServer(CODE) as server, client_of(server) as client:
        deltas = [
            event.delta
            for event in client.responses.create(**RESPONSES, stream=True)
            if event.type == "response.code_interpreter_call_code.delta"
        ]
        item = respond(client).output[0]
    assert "".join(deltas) == "print(34/24)\n" and len(deltas) > 1
    assert item.type == "code_interpreter_call" and item.code == "print(34/24)\n"
    assert item.outputs and item.outputs[0].type == "logs" and item.outputs[0].logs == "1.4166666666666667\n"


def test_chat_refuses_a_reply_with_a_code_interpreter() -> None:
    """Chat has no words for it, and says so."""
    with (
        ModelServer(CODE) as server,
        client_of(server) as client,
        pytest.raises(openai.BadRequestError, match="CodeInterpreter"),
    ):
        complete(client)


def test_responses_ask_before_they_call_an_mcp_tool() -> None:
    """The client's object has the question whole, streamed or not; other APIs refuse the reply."""
    script = Reply(Text("May I?"), McpApproval("shorten", {"url": "x"}, server_label="zip"))
    with ModelServer(script) as server, client_of(server) as client:
        whole = client.responses.create(model="m", input="Go").output[1]
        assert whole.type == "mcp_approval_request"
        assert (whole.id, whole.name, whole.arguments, whole.server_label) == (
            "mcpr_1_1",
            "shorten",
            '{"url": "x"}',
            "zip",
        )
        *_, last = client.responses.create(model="m", input="Go", stream=True)
        assert last.type == "response.completed"
        assert last.response.output[1].to_dict() == {**whole.to_dict(), "id": "mcpr_2_1"}
        with pytest.raises(openai.BadRequestError, match="McpApproval"):
            complete(client)


def test_interleaved_calls_take_turns_on_the_wire() -> None:
    """With `interleave`, adjacent calls are opened together and their pieces alternate; a longer one ends alone."""
    reply = Reply(
        ToolCall("a", pieces=["{", "}"]), ToolCall("b", pieces=['{"x"', ":", "1}"]), Text("Hi"), interleave=True
    )
    with ModelServer(reply) as server:
        chat = sse_of(server, "/chat/completions", CHAT)
        responses = sse_of(server, "/responses", RESPONSES)
    deltas = [chunk["choices"][0]["delta"] for _, chunk in chat[:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [call["index"] for call in calls] == [0, 1, 0, 1, 0, 1, 1]
    assert [call["function"]["arguments"] for call in calls] == ["", "", "{", '{"x"', "}", ":", "1}"]
    delta_type = "response.function_call_arguments.delta"
    assert [e["output_index"] for name, e in responses if name == delta_type] == [0, 1, 0, 1, 1]
    added = [e["output_index"] for name, e in responses if name == "response.output_item.added"]
    assert added == [0, 1, 2]


def test_calls_have_ids_of_their_own_in_every_answer() -> None:
    """A call's default id counts the answer and the call, in both dialects; a given one is kept."""
    with ModelServer(Reply(*WEATHER)) as server, client_of(server) as client:
        chat = complete(client).choices[0].message.tool_calls or []
        items = respond(client)
    assert [call.id for call in chat] == ["call_1_0", "mine"]
    assert items.id == "resp_2"
    assert [(i.id, i.call_id) for i in items.output if i.type == "function_call"] == [
        ("fc_2_0", "call_2_0"),
        ("fc_2_1", "mine"),
    ]


def test_the_async_client_reads_the_same() -> None:
    """Streams, helpers and plain calls of `AsyncOpenAI`."""

    async def read() -> list[str]:
        async with async_client_of(server) as client:
            chat = [c async for c in await client.chat.completions.create(**CHAT, stream=True)]
            events = [e async for e in await client.responses.create(**RESPONSES, stream=True)]
            async with client.chat.completions.stream(**CHAT) as chat_stream:
                completion = await chat_stream.get_final_completion()
            async with client.responses.stream(**RESPONSES) as response_stream:
                response = await response_stream.get_final_response()
            whole = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            plain = await client.responses.create(model="m", input="hi")
            return [
                "".join(chunk.choices[0].delta.content or "" for chunk in chat),
                "".join(e.delta for e in events if e.type == "response.output_text.delta"),
                completion.choices[0].message.content or "",
                response.output_text,
                whole.choices[0].message.content or "",
                plain.output_text,
            ]

    with ModelServer(REPLIES["text"]) as server:
        assert asyncio.run(read()) == [HELLO] * 6
        assert server.disconnects == []


# -- the script


def test_text_is_cut_like_tokens_or_as_told() -> None:
    """Pieces have up to five characters and join to the text; `pieces=` says them."""
    assert Text("Hello, world  again").pieces == ("Hell", "o,", " worl", "d", "  ", "agai", "n")
    assert Text(pieces=["Hel", "lo"]).text == "Hello"
    assert ToolCall("f", {"a": "é"}).text == '{"a": "é"}'
    assert ToolCall("f", "{broken").text == "{broken"


def test_replies_are_taken_in_order_and_the_last_one_repeats() -> None:
    """One a request, in whichever dialect it comes; a callable is given the request."""

    def echo(request: Request) -> Reply:
        return Reply(f"{request.number}: {request.body['input']}")

    with ModelServer([Reply("one"), echo]) as server, client_of(server) as client:
        texts = [client.responses.create(model="m", input=word).output_text for word in ("a", "b", "c")]
    assert texts == ["one", "2: b", "3: c"]


def test_a_callable_that_raises_is_told_to_the_client() -> None:
    """… as a 400, which the client does not try again."""

    def script(request: Request) -> Reply:
        raise AssertionError("no tools were sent")

    with ModelServer(script) as server, client_of(server, max_retries=2) as client:
        with pytest.raises(openai.BadRequestError, match="AssertionError: no tools were sent"):
            respond(client)
        assert len(server.requests) == 1


def test_requests_are_remembered() -> None:
    """Path, headers and parsed body, so also what a second turn sends."""
    output: Any = [{"type": "function_call_output", "call_id": "call_1_0", "output": "rain"}]
    with ModelServer(Reply("ok")) as server, client_of(server) as client:
        response = client.responses.create(model="m", input=output, previous_response_id="resp_0")
        assert response.previous_response_id == "resp_0"
        (request,) = server.requests
    assert (request.method, request.path, request.number) == ("POST", "/v1/responses", 1)
    assert request.headers["authorization"] == "Bearer test"
    assert request.body["input"] == output and request.body["previous_response_id"] == "resp_0"
    assert json.loads(request.content) == request.body


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reply("a", cut_after=1, never_ends=True),
        lambda: Reply("a", cut_after=2),
        lambda: Reply("a", error_after=-1),
        lambda: Reply("a", ping=1),
        lambda: Reply("a", raw=b"x"),
        lambda: Reply("a", status=500),
        lambda: Text("abc", pieces=["ab"]),
        lambda: Text(pieces=["a", ""]),
        lambda: ModelServer([]),
    ],
)
def test_a_script_that_makes_no_sense_is_a_usage_error(make: Any) -> None:
    """It is found when it is written, not when it is played."""
    with pytest.raises(UsageError):
        make()


# -- what goes wrong on demand


@dialects
def test_a_cut_stream_is_a_transport_error(path: str, body: Any) -> None:
    """`cut_after=2`: two pieces, half an event, and no end of the body."""
    received = b""
    with (
        ModelServer(Reply(Text(HELLO), cut_after=2)) as server,
        httpx.stream("POST", server.url + path, json=body | {"stream": True}) as answer,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        for chunk in answer.iter_raw():
            received += chunk
    assert b"Hell" in received and b"o," in received and b" worl" not in received
    assert not received.endswith(b"\n\n")


def test_a_cut_stream_is_the_sdks_connection_error() -> None:
    """The real client has the pieces before the cut, then raises."""
    with ModelServer(Reply(Text("one two three"), cut_after=2)) as server, client_of(server) as client:
        deltas: list[str] = []
        with pytest.raises(openai.APIConnectionError):
            for event in client.responses.create(**RESPONSES, stream=True):
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
        assert deltas == ["one", " two"]
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(**CHAT, stream=True))
        with pytest.raises(openai.APIConnectionError):
            complete(client)
        assert server.disconnects == []


@pytest.mark.parametrize("cut_after", range(4))
def test_a_stream_can_be_cut_after_any_piece(cut_after: int) -> None:
    """Also before the first one and after the last."""
    with ModelServer(Reply(Text(pieces=["a", "b", "c"]), cut_after=cut_after)) as server, client_of(server) as client:
        deltas: list[str] = []
        with pytest.raises(openai.APIConnectionError):
            for chunk in client.chat.completions.create(**CHAT, stream=True):
                deltas.append(chunk.choices[0].delta.content or "")
    assert "".join(deltas) == "abc"[:cut_after]


def test_an_error_in_a_chat_stream() -> None:
    """`error_after` sends `{"error": …}` in place of the rest; the client raises it."""
    error = ServiceError("Out of luck.", "server_error", "luck")
    with ModelServer(Reply(Text("one two three"), error_after=1, error=error)) as server, client_of(server) as client:
        text = ""
        with pytest.raises(openai.APIError, match="Out of luck") as raised:
            for chunk in client.chat.completions.create(**CHAT, stream=True):
                text += chunk.choices[0].delta.content or ""
        with pytest.raises(openai.InternalServerError, match="Out of luck"):
            complete(client)
    assert text == "one" and raised.value.code == "luck"


def test_an_error_in_a_responses_stream() -> None:
    """It is an `error` event, or a failed response; both are strictly valid."""
    replies = [Reply("one two", error_after=1), Reply("one two", error_after=1, error_event="response.failed")]
    union = TypeAdapter[Any](ResponseStreamEvent)
    with ModelServer([*replies, replies[1]]) as server, client_of(server) as client:
        (name, error), (_, failed) = (sse_of(server, "/responses", RESPONSES)[-1] for _ in replies)
        response = respond(client)
    assert name == "error" and union.validate_json(json.dumps(error), strict=True).message
    assert union.validate_json(json.dumps(failed), strict=True).response.error.code == "server_error"
    assert response.status == "failed" and response.error


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_a_status_is_the_sdks_error(status: int, error: type[openai.APIStatusError]) -> None:
    """Streaming or not, in either dialect, with the service's error object."""
    with ModelServer(Reply(status=status)) as server, client_of(server) as client:
        for stream in (False, True):
            with pytest.raises(error) as raised:
                client.responses.create(**RESPONSES, stream=stream)
            with pytest.raises(error):
                client.chat.completions.create(**CHAT, stream=stream)
        assert raised.value.type and raised.value.message
        assert raised.value.request_id == "req_3"


def test_a_rate_limit_says_when_to_try_again() -> None:
    """429 has a Retry-After, which the client heeds: the next reply is the answer."""
    limited = Reply(status=429, retry_after=0.01)
    with ModelServer([limited, Reply("now")]) as server, client_of(server, max_retries=1) as client:
        assert respond(client).output_text == "now"
    with ModelServer(Reply(status=429)) as server:
        assert httpx.post(server.url + "/responses", json=RESPONSES).headers["retry-after"] == "1"


@pytest.mark.slow
def test_a_slow_stream_keeps_its_pieces_apart() -> None:
    """`first_delay` comes before the first piece, `delay` before each other one."""
    reply = Reply(Text(pieces=["a", "b", "c"]), first_delay=0.1, delay=0.05)
    with ModelServer(reply) as server, client_of(server) as client:
        begun = time.monotonic()
        arrived = [
            time.monotonic() - begun
            for event in client.responses.create(**RESPONSES, stream=True)
            if event.type == "response.output_text.delta"
        ]
        assert arrived[0] >= 0.1 and arrived[1] >= 0.15 and arrived[2] >= 0.2
        begun = time.monotonic()
        respond(client)
        assert time.monotonic() - begun >= 0.2


def test_a_slow_server_lets_the_client_time_out() -> None:
    """The client's own timeout is its own, and the server notes that it left."""
    with ModelServer(Reply("late", first_delay=30)) as server, client_of(server, timeout=0.1) as client:
        with pytest.raises(openai.APITimeoutError):
            respond(client)
        with pytest.raises(openai.APITimeoutError):
            list(client.responses.create(**RESPONSES, stream=True))
        assert server.wait_for_disconnect(count=2)


def test_a_raw_body_is_sent_as_it_is() -> None:
    """Bytes, with the headers that the script gives."""
    body = [b'data: {"a"', b": 1}\r\n\r\n", b": comment\n\n"]
    with ModelServer(Reply(raw=body, headers={"Content-Type": "text/plain"})) as server:
        with httpx.stream("POST", server.url + "/responses", json=RESPONSES | {"stream": True}) as answer:
            assert b"".join(answer.iter_raw()) == b"".join(body)
            assert answer.headers["content-type"] == "text/plain"
        assert httpx.post(server.url + "/responses", json=RESPONSES).content == b"".join(body)


def test_a_raw_body_can_be_cut_off() -> None:
    """After its last piece too: the body then has no end."""
    reply = Reply(raw=[b"data: 1\n\n", b"data: 2\n\n"], cut_after=2)
    with ModelServer(reply) as server, pytest.raises(httpx.RemoteProtocolError):
        httpx.post(server.url + "/responses", json=RESPONSES | {"stream": True})


@pytest.mark.slow
@dialects
def test_the_services_turn_down_what_makes_no_sense(path: str, body: Any) -> None:
    """Unknown paths, other methods, broken JSON and missing parameters, each with an error object; no reply is used."""
    with ModelServer([Reply("first"), Reply("second")]) as server:
        url = server.url + path
        answers = [
            httpx.post(url + "/nowhere", json=body),
            httpx.get(url),
            httpx.post(url, content=b"{"),
            httpx.post(url, json={"input": "hi"}),
        ]
        assert [answer.status_code for answer in answers] == [404, 405, 400, 400]
        assert all(answer.json()["error"]["type"] == "invalid_request_error" for answer in answers)
        assert len(server.requests) == 4
        assert b"first" in httpx.post(url, json=body).content


def test_models_are_listed() -> None:
    """`GET /v1/models` has the server's model, and no other."""
    with ModelServer(Reply("hi"), model="tiny") as server, client_of(server) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").object == "model"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("huge")


# -- endings


def test_a_client_that_leaves_is_noticed(hanging: ModelServer) -> None:
    """Closing the stream closes the HTTP response: the server sees it, while it sends nothing."""
    with client_of(hanging) as client:
        stream = client.chat.completions.create(**CHAT, stream=True)
        assert next(iter(stream)).choices
        assert not hanging.wait_for_disconnect(0.05)
        stream.close()
        assert hanging.wait_for_disconnect()
    assert hanging.disconnects == hanging.requests


def test_an_async_client_that_leaves_is_noticed(hanging: ModelServer) -> None:
    """The same with `AsyncOpenAI`, by leaving `async with`."""

    async def read() -> str:
        text = ""
        async with async_client_of(hanging) as client, client.responses.stream(**RESPONSES) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if text == HELLO:
                    break
        return text

    assert asyncio.run(read()) == HELLO
    assert hanging.wait_for_disconnect()


def test_a_client_that_leaves_amid_the_pieces_is_noticed() -> None:
    """… also in the middle of a wait."""
    with ModelServer(Reply(Text(HELLO), delay=30)) as server, client_of(server) as client:
        with client.responses.create(**RESPONSES, stream=True) as stream:
            next(iter(stream))
        assert server.wait_for_disconnect()


def test_a_client_that_hears_it_out_is_no_disconnect() -> None:
    """Not even if it stops reading at the last event."""
    with ModelServer(REPLIES["text"]) as server, client_of(server) as client:
        for event in client.responses.create(**RESPONSES, stream=True):
            if event.type == "response.completed":
                break
        list(client.chat.completions.create(**CHAT, stream=True))
        assert not server.wait_for_disconnect(0.1)


def test_a_stream_without_end_pings_if_told_to() -> None:
    """Comments keep it alive; the client that reads on never gets an event more."""
    with ModelServer(Reply("hi", never_ends=True, ping=0.02)) as server:
        received = b""
        with httpx.stream("POST", server.url + "/responses", json=RESPONSES | {"stream": True}) as answer:
            for chunk in answer.iter_raw():
                received += chunk
                if received.count(b": ping\n\n") == 3:
                    break
        assert b"output_text.delta" in received and b"output_text.done" not in received
        assert server.wait_for_disconnect()


def test_closing_ends_hanging_streams_at_once(hanging: ModelServer) -> None:
    """The client sees an aborted body; no thread is left, and it is nobody's early leaving."""
    before = threading.active_count()
    with client_of(hanging) as client:
        stream = client.responses.create(**RESPONSES, stream=True)
        next(stream)
        idle = httpx.Client()
        idle.get(hanging.url + "/models")  # a connection that is kept, and says nothing
        begun = time.monotonic()
        hanging.close()
        assert time.monotonic() - begun < 5
        with pytest.raises(openai.APIConnectionError):
            list(stream)
        idle.close()
    assert hanging.disconnects == []
    assert threading.active_count() < before
    hanging.close()  # a second time changes nothing


def test_closing_ends_a_stream_that_nobody_reads() -> None:
    """A client that has stopped reading blocks the server's write; closing does not wait for it."""
    with (
        ModelServer(Reply(raw=[b"x" * 1_000_000] * 50)) as server,
        httpx.stream("POST", server.url + "/responses", json=RESPONSES | {"stream": True}),
    ):
        begun = time.monotonic()
        server.close()
        assert time.monotonic() - begun < 5


@pytest.mark.slow
def test_nothing_is_left_open() -> None:
    """No ResourceWarning, whatever the client did."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        script = [Reply("a", cut_after=1), Reply("b", never_ends=True), Reply("c")]
        with ModelServer(script) as server, client_of(server) as client:
            with pytest.raises(openai.APIConnectionError):
                list(client.responses.create(**RESPONSES, stream=True))
            with client.responses.create(**RESPONSES, stream=True) as stream:
                next(iter(stream))
            respond(client)
        gc.collect()


def test_two_clients_are_served_at_once() -> None:
    """Each waits for the other in the middle of its own stream, and both come to the end."""
    meeting = threading.Barrier(2, timeout=20)
    texts: list[str] = []

    def read(server: ModelServer) -> None:
        with client_of(server) as client:
            text = ""
            for event in client.responses.create(**RESPONSES, stream=True):
                if event.type == "response.created":
                    meeting.wait()
                if event.type == "response.output_text.delta":
                    text += event.delta
            texts.append(text)

    with ModelServer(Reply(Text("one two three"), delay=0.01)) as server:
        threads = [threading.Thread(target=read, args=(server,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {request.headers["user-agent"].split("/")[0] for request in server.requests} == {"OpenAI"}
    assert texts == ["one two three"] * 2


def test_the_example_runs() -> None:
    """The one in the module's docstring."""
    assert doctest.testmod(streamkit.testing).failed == 0


# -- a process with too many threads


@pytest.fixture
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of threads that cannot start. It is empty at first."""
    names: set[str] = set()
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name in names:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    return names


def test_a_server_whose_thread_cannot_start_closes_its_socket(no_more_threads: set[str]) -> None:
    """The error is the interpreter's own, and nothing waits for the thread."""
    no_more_threads.add("model-server")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ModelServer(Reply("Hello"))
    gc.collect()  # a socket that is still open warns


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_closes_although_a_connections_thread_could_not_start(
    no_more_threads: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The client sees that the connection was closed."""
    with ModelServer(Reply("Hello")) as server:
        no_more_threads.add("model-server-client")
        with pytest.raises(httpx.TransportError):
            httpx.post(server.url + "/chat/completions", json=CHAT)
    assert "can't start new thread" in capfd.readouterr().err
