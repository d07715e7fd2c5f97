"""What breaking the library found: each stream that went wrong once."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

import streamkit as sk
from streamkit.protocols.framing import SseFramer
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import chat, interpreter


def response_event(kind: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"type": kind, **fields})


def test_an_irregular_block_beside_an_unfinished_one_is_not_lost() -> None:
    """Two wrongs in one chunk, an `id` line in one block and a blank line still to come, once cancelled out."""
    regular = [b"event: e\ndata: " + data + b"\n\n" for data in (b"1", b"2", b"4", b"5")]
    body = b"".join((*regular[:2], b"id: 7\ndata: 3\n\n", *regular[2:]))
    whole = SseFramer().feed(body)
    assert [data for _, _, data in whole] == [b"1", b"2", b"3", b"4", b"5"]
    for place in range(len(body)):
        framer = SseFramer()
        assert [*framer.feed(body[:place]), *framer.feed(body[place:])] == whole, place


def test_a_confirmation_shows_what_would_run_though_its_id_came_before() -> None:
    """The subject is the code that was asked about, never another message that happens to have its id."""
    asked: list[str] = []

    class Asked(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            asked.append(confirmation.subject.content)

    evil = sk.CodeMessage("c1", format="python", content="evil()")
    events = [
        sk.CodeDone(sk.CodeMessage("c1", format="python", content="print(1)")),
        sk.ConfirmationCreated(sk.Confirmation("q", evil)),
        sk.StreamEnd(),
    ]
    sk.stream(events, Asked()).until_done()
    assert asked == ["evil()"]


@pytest.mark.parametrize("length", [True, False])
def test_a_producer_with_a_length_is_live_all_the_same(length: bool) -> None:
    """A progress bar around a generator has one; undecided is still NO."""
    ran: list[str] = []

    class Bar:
        def __iter__(self) -> Iterator[Any]:
            for chunk in interpreter(ran=ran):
                if isinstance(chunk, dict) and chunk.get("type") == "console":
                    ran.append("ran")
                yield chunk

    if length:
        Bar.__len__ = lambda self: 9  # type: ignore[attr-defined]
    sk.stream(Bar()).until_done()
    assert "ran" not in ran


CODE = {"type": "code", "format": "python", "content": "x"}
CONFIRMATION = {"role": "computer", "type": "confirmation", "format": "execution", "content": CODE}


@pytest.mark.parametrize(
    "first",
    [
        [CONFIRMATION],
        {"content": CODE},
        {"type": "confirmation"},
        {"confirmation": CODE},
        {"data": CONFIRMATION},
        {"type": "confirm_execution", "content": CODE},
    ],
    ids=str,
)
def test_a_producer_is_not_pulled_past_an_odd_question_that_comes_first(first: Any) -> None:
    """Though no protocol recognises it: what may be a question, unanswered, is NO."""
    ran: list[str] = []

    def producer() -> Iterator[Any]:
        yield first
        ran.append("ran")
        yield {"role": "computer", "type": "console", "format": "output", "content": "1"}

    with contextlib.suppress(sk.StreamkitError):
        sk.stream(producer()).until_done()
    assert not ran


def test_a_done_without_an_id_is_told_once() -> None:
    """Its message gets a number, and is closed under it."""
    told: list[str] = []

    class Told(sk.EventHandler):
        def on_message_done(self, message: sk.Message) -> None:
            told.append(f"{message.id} {message.content}")

    sk.stream([sk.TextDone(sk.TextMessage(content="hi")), sk.StreamEnd()], Told()).until_done()
    assert told == ["message-1 hi"]


@pytest.mark.parametrize(
    "items",
    [
        [{"type": []}],
        [{"role": "user", "type": {}}],
        [b"[" * 100_000 + b"]" * 100_000 + b"\n"],
        [(1, 2)],
        [()],
    ],
    ids=["list type", "dict type", "deep", "tuple", "empty tuple"],
)
def test_no_item_raises_anything_but_our_own_errors(items: list[Any]) -> None:
    """Law 7, for shapes that no JSON of a provider has."""
    for protocol in (None, "openai_chat", "openai_responses", "open_interpreter", "streamkit"):
        with pytest.raises(sk.StreamkitError):
            sk.stream(items, protocol=protocol).get_final_messages()
            raise sk.StreamkitError("an answer without any item")


def test_a_whole_answer_without_stream_true_is_told() -> None:
    """The SDK's own object is one item, not an iterable of its fields."""
    with ModelServer(Reply("Hello")) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        assert sk.stream(lambda: client.responses.create(model="m", input="x")).get_final_text() == "Hello"
        request = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        assert sk.stream(lambda: client.chat.completions.create(**request)).get_final_text() == "Hello"


def test_a_client_given_by_mistake_stays_open() -> None:
    """It is a context manager, but none that gives a stream."""
    with ModelServer(Reply("Hello")) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        with pytest.raises(sk.UsageError):
            sk.stream(client).until_done()  # type: ignore[arg-type]
        assert client.responses.create(model="m", input="x").output_text == "Hello"


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_a_recorded_run_over_two_responses_replays_whole(protocol: str, tmp_path: Path) -> None:
    """Our own answers, both steps, and the same ending."""
    path = tmp_path / "run.jsonl"

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, message: sk.ToolCallMessage) -> None:
            if message.waiting:
                message.respond({"sky": "rain"})

    with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"})), Reply("Wet.")]) as server:
        client = openai.OpenAI(base_url=server.url, api_key="none")

        def ask(stream: Any = None) -> Any:
            if protocol == "chat":
                return client.chat.completions.create(
                    model="m",
                    messages=[
                        {"role": "user", "content": "x"},
                        *sk.to_input(stream.messages if stream else [], "openai_chat"),
                    ],
                    stream=True,
                )
            given = (
                sk.to_input([m for m in stream.messages if m.type == "tool_output"], "openai_responses")
                if stream
                else "x"
            )
            return client.responses.create(model="m", input=given, stream=True)

        with client:
            live = sk.stream(ask, Answering(), sk.Recorder(path), then=ask)
            live.until_done()
    again = sk.stream(path)
    assert again.get_final_messages() == live.get_final_messages()
    assert (again.status, len(again.get_final_run_steps())) == ("completed", 2)
    before = path.read_bytes()
    sk.stream(path, sk.Recorder(path)).until_done()
    assert len(path.read_bytes()) < 3 * len(before), "what is recorded into the file that is read is not read again"


@pytest.mark.parametrize("output", [print, object(), {"a": object()}], ids=["function", "object", "inside"])
def test_an_output_that_json_cannot_hold_is_refused_where_it_is_given(output: Any) -> None:
    """Else the model would read a `repr`. Text with half of a surrogate pair is taken: it is sent as U+FFFD."""
    refused: list[str] = []

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, message: sk.ToolCallMessage) -> None:
            with pytest.raises(sk.UsageError) as caught:
                message.respond(output)
            refused.append(str(caught.value))

    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chunks = chat("x", finish=None)[:1]
    chunks[0]["choices"][0]["delta"] = {"tool_calls": [call]}
    sk.stream([*chunks, *chat(finish="tool_calls")[1:]], Answering(), then=lambda _: None).until_done()
    assert refused


def test_a_hook_that_is_a_generator_is_refused_before_the_stream_begins() -> None:
    """Law 12: it would never run."""

    class Wrong(sk.EventHandler):
        def on_end(self) -> Any:
            yield

    with pytest.raises(sk.UsageError, match=r"Wrong\.on_end"):
        sk.stream([], Wrong())


def test_an_iteration_sees_how_a_failed_stream_ended() -> None:
    """As the hooks do: every created has its done, and then the error is raised."""
    seen: list[str] = []
    with pytest.raises(sk.IncompleteStreamError):
        for event in sk.stream(chat("Hello", finish=None)):
            seen.append(event.type)  # what was seen before the error counts
    assert seen[-5:] == ["text_done", "run_step_done", "run_done", "stream_exception", "stream_end"]


def test_a_cancelled_stream_under_another_is_cancelled_there_too() -> None:
    """Our own stop is no cut-off stream."""

    class Stopping(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            self.stream.cancel()

    outer = sk.stream(sk.stream(chat("Hello", " you"), Stopping()))
    outer.until_done()
    assert outer.status == "cancelled"


@pytest.mark.parametrize("wrong", [{"protocol": 3}, {"protocol": int}, {"then": 5}])
def test_options_of_the_wrong_kind_are_usage_errors(wrong: dict[str, Any]) -> None:
    """At once, before any request."""
    with pytest.raises(sk.UsageError):
        sk.stream([], **wrong)


def test_to_input_takes_dicts_and_plain_messages() -> None:
    """A user's question does not vanish from the request."""
    said = {"role": "user", "content": "hi"}
    for protocol in ("openai_chat", "openai_responses"):
        expected = sk.to_input([sk.TextMessage(role="user", content="hi")], protocol)
        assert expected
        assert sk.to_input([said], protocol) == expected  # type: ignore[list-item]
        assert sk.to_input([sk.Message(role="user", content="hi")], protocol) == expected


_DONE = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
_TEXT = {"item_id": "m", "output_index": 0, "content_index": 0}
_DELTA = {"type": "response.output_text.delta", **_TEXT, "delta": "a"}


@pytest.mark.parametrize(
    ("code", "index", "items"),
    [
        ("content-differs", 2, [_DELTA, {"type": "response.output_text.done", **_TEXT, "text": "b"}, _DONE]),
        (
            "bad-arguments",
            0,
            [
                {
                    "type": "response.output_item.done",
                    "output_index": 0,
                    "item": {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{"},
                },
                _DONE,
            ],
        ),
        (
            "delta-after-done",
            3,
            [
                *({"type": kind, "message": {"id": "m", "type": "message"}} for kind in ("text_created", "text_done")),
                {"type": "active_line", "message_id": "m", "line": 1},
                {"type": "text_delta", "message_id": "m", "value": "a"},
                {"type": "stream_end"},
            ],
        ),
        (
            "duplicate-created",
            1,
            [
                *({"type": "text_created", "message": {"id": "m", "type": "message"}} for _ in "ab"),
                {"type": "stream_end"},
            ],
        ),
        (
            "stray-annotation",
            0,
            [
                {"type": "annotation_added", "message_id": "m", "annotation": {"type": "url_citation"}},
                {"type": "stream_end"},
            ],
        ),
    ],
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_fault_that_the_engine_finds_names_its_item(
    code: str, index: int, items: list[dict[str, Any]], as_bytes: bool
) -> None:
    """Law 7: as one that the decoder finds; lenient in the warning, strict in the error."""
    source = b"".join(b"data: " + msgspec.json.encode(item) + b"\n\n" for item in items)
    stream = sk.stream([source] if as_bytes else items)
    stream.until_done()
    (warning,) = stream.warnings
    assert (warning.code, warning.index) == (code, index)
    with pytest.raises(sk.ProtocolError) as error:
        sk.stream([source] if as_bytes else items, strict=True).until_done()
    assert (error.value.code, error.value.index) == (code, index)
    assert f"item {index}" in str(error.value)


@pytest.mark.parametrize(
    "source",
    [
        [b'event: error\ndata: {"message": "no quota", "code": "q"}\n\n'],
        [b'event: error\ndata: {"error": {"message": "no quota", "code": "q"}}\n\n'],
        [b"event: error\ndata: no quota\n\n"],
        [{"event": "error", "data": {"message": "no quota"}}],
        [{"type": "error", "message": "no quota"}],
        [{"error": "no quota"}],
    ],
)
def test_a_stream_that_is_nothing_but_an_error_fails_with_it(source: list[Any]) -> None:
    """No protocol is needed to read it."""
    with pytest.raises(sk.RunFailedError, match="no quota"):
        sk.stream(source).until_done()


@pytest.mark.parametrize("protocol", ["openai_responses", "open_interpreter", "anthropic", "letta"])
def test_a_protocol_without_choices_is_given_the_first(protocol: str) -> None:
    """Else the answer would stand there twice."""
    choices = [{"index": which, "delta": {"content": text}, "finish_reason": "stop"} for which, text in enumerate("ab")]
    first = sk.stream([{"object": "chat.completion.chunk", "id": "c", "choices": choices}])
    assert sk.stream(first.chunks(protocol), protocol=protocol).get_final_text() == "a"
    assert [m.content for m in first.messages] == ["a", "b"]


def test_audio_that_is_read_at_every_delta_is_joined_once() -> None:
    """What was decoded is not decoded again: the content at each piece is that of all so far."""
    pieces = [bytes([n % 256]) * (n % 7 + 1) for n in range(200)]
    message = sk.AudioMessage("a", format="wav")
    heard = b""
    for piece in pieces:
        message.pieces.append(base64.b64encode(piece).decode())
        heard += piece
        assert base64.b64decode(message.content) == heard == message.data
    message.replace_content(base64.b64encode(b"anew").decode())
    message.pieces.append(base64.b64encode(b"!").decode())
    assert message.data == b"anew!"
