"""Event streams as bytes: the frames of each protocol, and what they show of an error."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.events import Run, RunDone
from streamkit.protocols import codec
from streamkit.protocols.event_stream import KEEPALIVE, SSE_HEADERS, EventStreamWriter, event_stream_headers
from streamkit.protocols.framing import SseFramer, as_frame
from streamkit.streams.error_mask import ErrorMask
from streamkit.testing import ModelServer, Reply

SECRET = "psql://root:hunter2@db"
CHUNKS = [
    {"role": "assistant", "type": "message", "start": True},
    {"role": "assistant", "type": "message", "content": "Hé\n"},
    {"role": "assistant", "type": "message", "content": "llo"},
    {"role": "assistant", "type": "message", "end": True},
]


class Kept(sk.Handler):
    """Writes each event as it comes."""

    def __init__(self, writer: EventStreamWriter) -> None:
        self.writer = writer
        self.written: list[bytes] = []

    def handle(self, event: sk.Event, /) -> None:
        self.written.append(self.writer.event(event))


def written(source: Any, writer: EventStreamWriter, *handlers: sk.Handler) -> list[bytes]:
    """What a writer makes of each event of a stream, whether it fails or not."""
    kept = Kept(writer)
    with sk.stream(source, *handlers, kept) as stream:
        try:
            stream.until_done()
        except Exception as error:
            assert stream.error is error
    return kept.written


def blocks(body: bytes) -> list[bytes]:
    assert b"\r" not in body
    assert body.endswith(b"\n\n") or not body
    return body.split(b"\n\n")[:-1]


def failing() -> Iterator[Any]:
    yield from CHUNKS[:2]
    raise ValueError(SECRET)


def test_the_native_protocol_is_the_events_with_their_cursors() -> None:
    """`id:` with the cursor, then one `data:` line; no `event:` line, LF only."""
    events = [codec.decode_event(line) for line in LINES]
    writer = EventStreamWriter("streamkit")
    assert writer.opening() == b"retry: 1000\n\n"
    assert [writer.event(event) for event in events] == [
        b"id: 7\ndata: " + LINES[0] + b"\n\n",
        b"data: " + LINES[1] + b"\n\n",
    ]
    assert writer.ending() == b""
    assert EventStreamWriter("streamkit", retry=None).opening() == KEEPALIVE == b": hb\n\n"
    assert EventStreamWriter("streamkit", retry=5).opening() == b"retry: 5\n\n"


LINES = [
    b'{"type":"text_delta","message_id":"m","value":"a\\nb \xe2\x80\xa8","cursor":7}',
    b'{"type":"text_delta","message_id":"m","value":"c"}',
]


def test_a_line_of_a_relay_goes_through_as_it_is() -> None:
    """Nothing decodes it; a snapshot is such a line."""
    writer = EventStreamWriter("streamkit", mask=ErrorMask())
    assert writer.line(b"{anything}", "2-91.9c0a3f21") == b"id: 2-91.9c0a3f21\ndata: {anything}\n\n"
    frame = writer.snapshot(LINES, dropped=3, cursor="2-5.00000000")
    id, data = frame.removesuffix(b"\n\n").split(b"\n")
    assert id == b"id: 2-5.00000000"
    wire = json.loads(data.removeprefix(b"data: "))
    assert (wire["type"], wire["dropped"], len(wire["events"])) == ("snapshot", 3, 2)
    assert writer.snapshot([]) == b'data: {"type":"snapshot","dropped":0,"events":[]}\n\n'
    with pytest.raises(sk.UsageError, match="read them as a stream"):
        EventStreamWriter("vercel_ui").line(LINES[0])


@pytest.mark.parametrize("cursor", ["a\nid: b", "a\r", "\0", ""])
def test_a_cursor_cannot_break_a_frame(cursor: str) -> None:
    """One that would is left out."""
    event = sk.TextDelta(message_id="m", value="x", position=cursor)
    frame = EventStreamWriter("streamkit").event(event)
    assert frame.startswith(b"data: ")
    assert frame.count(b"\n") == 2


def test_of_several_frames_the_last_has_the_id() -> None:
    """An event with no frame is not there."""
    source = [{"role": "assistant", "type": "reasoning", **one} for one in PIECES]
    counts: dict[str, list[bool]] = {}
    writer = EventStreamWriter("ag_ui")
    for number, event in enumerate(sk.stream(iter(source))):
        event.position = number
        counts[event.type] = [b"id: %d\n" % number in block for block in blocks(writer.event(event))]
    assert counts["reasoning_created"] == counts["reasoning_done"] == [False, True]
    assert counts["run_done"] == [True]
    assert counts["stream_end"] == []


PIECES: list[dict[str, Any]] = [{"start": True}, {"content": "x"}, {"end": True}]


def test_the_headers_and_sentinels_of_each_protocol() -> None:
    """Common to all; `useChat` wants one more. AG-UI's client cannot read a `[DONE]`."""
    assert dict(SSE_HEADERS) == {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache, no-transform",
        "X-Accel-Buffering": "no",
    }
    vercel = {**SSE_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}
    assert event_stream_headers("vercel_ui") == EventStreamWriter("vercel_ui").headers == vercel
    assert event_stream_headers("ag_ui") == EventStreamWriter("ag_ui").headers == SSE_HEADERS
    done = {name for name in protocols.names() if EventStreamWriter(name).ending() == b"data: [DONE]\n\n"}
    assert done >= {"vercel_ui", "openai_chat"}
    assert {name for name in protocols.names() if not EventStreamWriter(name).ending()} >= {"ag_ui", "streamkit"}
    with pytest.raises(sk.UsageError, match="no protocol 'nope'"):
        event_stream_headers("nope")


def test_half_of_a_surrogate_pair_is_sent_as_a_replacement() -> None:
    """It has no UTF-8 form."""
    message = sk.TextMessage(id="m")
    delta = sk.TextDelta(message_id="m", value="\ud800", snapshot=message)
    assert "\N{REPLACEMENT CHARACTER}".encode() in EventStreamWriter("streamkit").event(delta)
    writer = EventStreamWriter("vercel_ui")
    writer.event(sk.TextCreated(message))
    assert "\N{REPLACEMENT CHARACTER}".encode() in writer.event(delta)


# -- errors


class Raises(sk.EventHandler):
    """A hook that fails."""

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        raise KeyError(SECRET)


@pytest.mark.parametrize("name", protocols.names())
@pytest.mark.parametrize("fails_in", ["the source", "a hook"])
def test_no_protocol_shows_the_text_of_an_error(name: str, fails_in: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log, under the instance that the client gets where the protocol has a place for it."""
    mask = ErrorMask()
    writer = EventStreamWriter(name, mask=mask)
    source, handlers = (iter(failing()), ()) if fails_in == "the source" else (iter(CHUNKS), (Raises(),))
    with caplog.at_level(logging.ERROR, "streamkit"):
        body = b"".join(written(source, writer, *handlers))
    assert b"hunter2" not in body
    assert re.fullmatch("urn:uuid:[0-9a-f-]{36}", mask.instance)
    texts = [record for record in caplog.records if record.name == "streamkit" and record.levelno == logging.ERROR]
    assert all(mask.instance in record.message for record in texts)
    assert any("hunter2" in record.message and record.exc_info for record in texts)
    if name not in ("openai_assistants", "open_interpreter"):
        assert mask.instance.encode() in body


def test_the_native_protocol_names_our_own_errors_alone() -> None:
    """A `StreamkitError` by its class. Any other is no client's business."""
    for source, handlers, name, title in (
        (failing(), (), "SourceError", "The source failed."),
        (iter(CHUNKS[:2]), (), "IncompleteStreamError", "The source was cut off."),
        (iter(CHUNKS), (Raises(),), "StreamkitError", "The run failed."),
    ):
        mask = ErrorMask()
        kept = written(source, EventStreamWriter("streamkit", mask=mask), *handlers)
        items = [json.loads(block.partition(b"data: ")[2]) for frame in kept for block in blocks(frame)]
        [failed] = [item for item in items if item["type"] == "stream_exception"]
        assert failed["error"] == name
        assert failed["message"] == f"{title} ({mask.instance})"
        assert failed["details"] == {"title": title, "instance": mask.instance}
        [run] = [item["run"] for item in items if item["type"] == "run_done"]
        assert mask.instance in run["error"]["message"]
        # Whoever reads it as a stream has the same error.
        with pytest.raises(sk.StreamkitError, match=mask.instance) as raised:
            sk.stream([b"".join(kept)]).until_done()
        assert type(raised.value).__name__ == name


@pytest.mark.parametrize("name", ["streamkit", "vercel_ui", "ag_ui", "openai_chat"])
def test_errors_are_shown_where_the_caller_wants_it(name: str) -> None:
    """For development."""
    body = b"".join(written(iter(failing()), EventStreamWriter(name, mask=ErrorMask(expose=True))))
    assert b"hunter2" in body


def test_the_lines_of_a_relay_are_masked_too() -> None:
    """Those of errors, which are decoded for it, in a snapshot as well; an event that this process lacks is not changed."""
    failed = sk.StreamException("RunFailedError", SECRET, {"code": "rate_limit", "body": {"message": SECRET}})
    step = sk.RunStep(id="s", status="failed", error={"message": SECRET, "code": "rate_limit"})
    warning = sk.StreamWarning("decoder-error", f"KeyError: {SECRET}")
    lines = [codec.encode_event(event) for event in (failed, sk.RunStepDone(step), warning)]
    mask = ErrorMask()
    writer = EventStreamWriter("streamkit", mask=mask)
    for line in lines:
        frame = writer.line(line, "1")
        assert b"hunter2" not in frame
        assert mask.instance.encode() in frame
    assert b'"code":"rate_limit"' in writer.line(lines[0])
    snapshot = writer.snapshot([*LINES, *lines], 0, "3")
    assert b"hunter2" not in snapshot
    assert snapshot.count(mask.instance.encode()) == 4
    assert [as_frame(frame)[0] for frame in SseFramer().feed(snapshot)] == [b"3"]
    foreign = b'{"type":"of_another_application","error":"x"}'
    assert writer.line(foreign) == b"data: " + foreign + b"\n\n"


# -- the clients of providers


TEXT = [*CHUNKS[:3], CHUNKS[3]]


def body_of(name: str) -> bytes:
    """A whole stream in a protocol, with a keepalive comment before each event, and a cursor for each."""
    writer = EventStreamWriter(name)
    body = writer.opening()
    for number, event in enumerate(sk.stream(iter(TEXT))):
        event.position = number
        body += KEEPALIVE + writer.event(event)
    return body + writer.ending()


def test_the_clients_of_providers_read_it() -> None:
    """OpenAI's takes each block for an event, one of `retry:` or of `id:` alone too. So neither is in its protocols."""
    with ModelServer([Reply(raw=[body_of(name)]) for name in PROVIDERS]) as server:
        texts: list[str] = []
        with openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            with client.chat.completions.create(model="m", messages=[], stream=True) as chat:
                texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chat if chunk.choices))
            with client.responses.create(model="m", input="x", stream=True) as response:
                texts.append("".join(event.delta for event in response if event.type == "response.output_text.delta"))
        claude = anthropic.Anthropic(base_url=server.root_url, api_key="x", max_retries=0)
        with claude, claude.messages.stream(model="m", max_tokens=9, messages=[]) as stream:
            texts.append("".join(stream.text_stream))
    assert texts == ["Hé\nllo"] * 3


PROVIDERS = ("openai_chat", "openai_responses", "anthropic")


@pytest.mark.parametrize(
    ("protocol", "end"), [("openai_chat", "stop"), ("anthropic", "end_turn"), ("bedrock_converse", "end_turn")]
)
def test_a_run_whose_calls_have_outputs_does_not_end_with_calls(protocol: str, end: str) -> None:
    """A client would run them again."""
    call = sk.ToolCallMessage("c", call_id="call_1", name="look", content="{}")
    output = sk.ToolOutputMessage("o", call_id="call_1", content="3")
    text = sk.TextMessage("t", content="Three.")
    messages: tuple[Any, ...] = (call, output, text)
    events = [type(message).done_event(message) for message in messages]
    for count, reason in ((1, {"stop": "tool_calls", "end_turn": "tool_use"}[end]), (3, end)):
        items = [*events[:count], RunDone(Run(status="completed")), sk.StreamEnd("completed")]
        chunks = sk.stream(items).chunks(protocol)
        assert f"'{reason}'" in str([*chunks][-2:]), count
