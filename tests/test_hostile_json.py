"""JSON that is nested too deep, or is not quite JSON: it never ends a stream, and never loses more than it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.events import AnnotationAdded, Delta, RawEvent, StreamEnd, TextDelta, TextDone
from streamkit.messages import Annotation, TextMessage, ToolCallMessage, output_text
from streamkit.messages.json_text import MAX_NESTING
from streamkit.protocols import codec
from streamkit.protocols.framing import sse_frame
from streamkit.protocols.values import json_text
from streamkit.testing.check.recording import Recording, read_recording

from .faces import every_pair
from .recorded import own_recordings

PROTOCOLS = {
    "openai-responses": "openai_responses",
    "openai-chat": "openai_chat",
    "openai-assistants": "openai_assistants",
    "anthropic-messages": "anthropic",
    "letta": "letta",
    "open-interpreter": "open_interpreter",
}


def recorded(folder: str) -> Recording:
    """A recorded answer with text."""
    [path] = [path for path in own_recordings(folder) if path.stem == "text"]
    return read_recording(protocols.find(PROTOCOLS[folder]).Decoder, path, path.name)


def deep(levels: int, kind: str = "lists") -> bytes:
    opening, closing = (b"[", b"]") if kind == "lists" else (b'{"a":', b"}")
    return opening * levels + b"1" + closing * levels


def chunks(body: bytes, cut: str, recording: Recording) -> list[bytes]:
    if cut == "one chunk":
        return [body]
    if cut == "each event":
        end = b"\n" if recording.is_ndjson else b"\n\n"
        return [piece + end for piece in body.split(end) if piece]
    return [body[n : n + 7] for n in range(0, len(body), 7)]


# -- nesting


@every_pair
@pytest.mark.parametrize("kind", ["lists", "objects"])
@pytest.mark.parametrize("cut", ["one chunk", "each event", "7 bytes"])
@pytest.mark.parametrize("folder", PROTOCOLS)
def test_an_item_that_is_nested_too_deep_is_skipped(folder: str, cut: str, kind: str) -> None:
    """Wherever it stands: it may be one that a fast path reads."""
    recording = recorded(folder)
    plain = sk.stream([recording.body]).get_final_messages()
    for place in range(len(recording.frames)):
        id, name, data = recording.frames[place]
        if not data.startswith(b"{"):
            continue
        frames = [*recording.frames]
        frames.insert(place, (id, name, data[:-1] + b', "x": ' + deep(3000, kind) + b"}"))
        body = b"".join(recording.pieces(frames))
        stream = sk.stream(chunks(body, cut, recording), protocol=PROTOCOLS[folder])
        assert [m.content for m in stream.get_final_messages()] == [m.content for m in plain]
        assert [warning.code for warning in stream.warnings] == ["not-json"]
        assert stream.warnings[0].index == place
        assert "more than 200 levels deep" in stream.warnings[0].fault


def test_nesting_up_to_the_limit_is_read() -> None:
    """In a fast path's item as in any other; and brackets inside strings are no nesting."""
    recording = recorded("openai-chat")
    for extra in (deep(MAX_NESTING - 1), json.dumps("[{" * 3000).encode(), b"[" + b"[]," * 3000 + b"[]]"):
        frames = [(id, name, data.replace(b"{", b'{"x": ' + extra + b",", 1)) for id, name, data in recording.frames]
        stream = sk.stream([b"".join(recording.pieces(frames))])
        assert [m.content for m in stream.get_final_messages()] == [
            m.content for m in sk.stream([recording.body]).get_final_messages()
        ]
        assert not stream.warnings


@pytest.mark.parametrize("folder", PROTOCOLS)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_short_item_that_is_nested_too_deep_is_the_same_however_it_is_cut(folder: str, place: str) -> None:
    """The fast paths decode structs, which would skip what is deep in it; the tolerant paths refuse it."""
    recording = recorded(folder)
    extra = b'"zz": ' + deep(MAX_NESTING + 1)
    frames: list[Any] = []
    for id, name, data in recording.frames:
        frames.append((id, name, data))
        if data[:1] == b"{":
            more = data.replace(b"{", b"{" + extra + b",", 1) if place == "first" else data[:-1] + b"," + extra + b"}"
            frames.append((id, name, more))
    body = b"".join(recording.pieces(frames))
    assert min(len(data) for _, _, data in frames if extra in data) < 1000

    def read(pieces: list[bytes]) -> list[Any]:
        stream = sk.stream(pieces, protocol=PROTOCOLS[folder])
        return [[*map(codec.event_to_dict, stream)], [(warning.code, warning.index) for warning in stream.warnings]]

    whole = read([body])
    assert whole[1]
    for size in (1, 7, 500):
        assert read([body[at : at + size] for at in range(0, len(body), size)]) == whole
    assert read(recording.pieces(frames)) == whole


def test_a_strict_stream_names_the_item_that_is_nested_too_deep() -> None:
    recording = recorded("openai-chat")
    body = recording.pieces(recording.frames[:2])
    stream = sk.stream([*body, b"data: " + deep(5000) + b"\n\n"], strict=True)
    with pytest.raises(sk.ProtocolError, match=r"item 2: .* nested more than 200 levels deep \[not-json\]"):
        stream.until_done()


def test_no_source_is_nested_too_deep() -> None:
    """Parsed items, canonical events, the arguments of a call, a recording: nothing but our own errors."""
    value: Any = 1
    for _ in range(3000):
        value = [value]
    circle: list[Any] = []
    circle.append(circle)
    for nested in (value, circle):
        item = {"id": "c", "object": "chat.completion.chunk", "x": nested}
        choices = [{"index": 0, "delta": {"content": "Hi", "x": nested}, "finish_reason": "stop"}]
        assert sk.stream([{**item, "choices": choices}]).get_final_text() == "Hi"
        assert json_text(nested) == ""
        with pytest.raises(ValueError, match="levels deep"):
            codec.event_from_dict({"type": "raw_event", "name": "x", "data": nested})
    with pytest.raises(ValueError, match="levels deep"):
        codec.decode_event(b'{"type": "raw_event", "name": "x", "data": ' + deep(3000) + b"}")
    call = ToolCallMessage("t", name="f", content=deep(3000).decode())
    stream = sk.stream([sk.events.ToolCallDone(call), StreamEnd(status="completed")])
    assert [one.arguments for one in stream.get_final_messages()] == [{}]  # type: ignore[attr-defined]
    assert [warning.code for warning in stream.warnings] == ["bad-arguments"]


def test_a_recording_of_items_that_are_nested_too_deep_is_the_same_stream(tmp_path: Path) -> None:
    recording = recorded("openai-chat")
    pieces = recording.pieces(recording.frames)
    deep_item = pieces[1].replace(b"{", b'{"x": ' + deep(3000) + b",", 1)
    stream = sk.stream([*pieces[:2], deep_item, *pieces[2:]], sk.Recorder(tmp_path / "run.jsonl"))
    stream.until_done()
    again = sk.stream(tmp_path / "run.jsonl")
    again.until_done()
    assert [m.to_dict() for m in again.messages] == [m.to_dict() for m in stream.messages]
    assert [w.code for w in again.warnings] == [w.code for w in stream.warnings] == ["not-json"]


@pytest.mark.slow
def test_a_thread_with_a_small_stack_survives() -> None:
    """A deep item overflows the stack of a thread, where Python allows deeper recursion than the stack has room for."""
    program = """
import threading
from tests.test_hostile_json import PROTOCOLS, deep, recorded
import streamkit as sk
def work():
    for folder in PROTOCOLS:
        recording = recorded(folder)
        for levels in (199, 900, 3000, 10_000):
            for kind in ("lists", "objects"):
                deep_items = [(id, name, data[:-1] + b', "x": ' + deep(levels, kind) + b"}") for id, name, data in recording.frames if data[:1] == b"{"]
                pieces = [piece for pair in zip(recording.pieces(recording.frames), recording.pieces(deep_items)) for piece in pair]
                try:
                    sk.stream(iter(pieces), protocol=PROTOCOLS[folder]).until_done()
                except sk.StreamkitError:
                    pass
    print("survived")
threading.stack_size(256 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout.strip()) == (0, "survived"), run.stderr


# -- surrogates


def chat_chunk(content: str, finish: str | None = None) -> bytes:
    """A chunk, with escapes for all that is not ASCII."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def deltas(stream: Any) -> list[str]:
    return [event.value for event in stream if isinstance(event, TextDelta)]


SPLIT = [
    (["a\ud83d", "\ude00b"], ["a", "😀b"], 0),
    (["\ud83d", "\ude00"], ["😀"], 0),
    (["\ud83d", "\ude00\ud83d", "\ude01", "x"], ["😀", "😁", "x"], 0),
    (["a\ud83d", "b", "c"], ["a", "\ufffd", "b", "c"], 1),
    (["a\ud83d", "\ud83d\ude00"], ["a", "\ufffd", "😀"], 1),
    (["a", "b\ud83d"], ["a", "b", "\ufffd"], 1),
    (["\ude00b", "c"], ["\ufffdb", "c"], 0),
    (["a\ud83db", "c"], ["a\ufffdb", "c"], 1),
]


def sources(pieces: list[str], kind: str) -> Any:
    body = [chat_chunk(piece) for piece in pieces] + [chat_chunk("", "stop"), b"data: [DONE]\n\n"]
    if kind == "one chunk":
        return [b"".join(body)]
    if kind == "events":
        return body
    items = [json.loads(piece.removeprefix(b"data: ")) for piece in body[:-1]]
    if kind == "dicts":
        return items
    if kind == "raw text":
        return ["data: " + json.dumps(item, ensure_ascii=False) + "\n\n" for item in items]
    message = TextMessage("m")
    return [
        sk.events.TextCreated(message),
        *(TextDelta("m", piece) for piece in pieces),
        TextDone(message),
        StreamEnd(),
    ]


@pytest.mark.parametrize("kind", ["one chunk", "events", "dicts", "raw text", "canonical"])
@pytest.mark.parametrize(("pieces", "expected", "warnings"), SPLIT)
def test_a_surrogate_pair_that_was_cut_is_joined(
    pieces: list[str], expected: list[str], warnings: int, kind: str
) -> None:
    """A half that stays alone is U+FFFD. What a handler gets can always be encoded."""
    stream = sk.stream(sources(pieces, kind))
    told = deltas(stream)
    assert "".join(told) == "".join(expected) == stream.get_final_text()
    assert all(piece.encode() for piece in told)
    if kind != "canonical":
        assert told == expected


@pytest.mark.parametrize("kind", ["one chunk", "events", "dicts", "raw text", "canonical"])
@pytest.mark.parametrize(("pieces", "expected", "warnings"), SPLIT)
def test_the_recording_of_a_cut_pair_is_the_same_stream(
    pieces: list[str], expected: list[str], warnings: int, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    text = sk.stream(sources(pieces, kind), sk.Recorder(path)).get_final_text()
    assert sk.stream(path).get_final_text() == text == "".join(expected)


def test_a_lone_surrogate_anywhere_else_is_replaced() -> None:
    """In an annotation, from bytes and from dicts; and what is told can be encoded as canonical events."""
    annotation = {"type": "url_citation", "url": "https://x", "title": "\ud800", "start_index": 0, "end_index": 1}
    part = {"item_id": "m", "output_index": 0, "content_index": 0}
    items = [
        {"type": "response.created", "response": {"id": "r\ud800", "object": "response", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"id": "m", "type": "message", "role": "assistant", "content": []},
        },
        {"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": "", "annotations": []}},
        {"type": "response.output_text.delta", **part, "delta": "Hi"},
        {"type": "response.output_text.annotation.added", **part, "annotation_index": 0, "annotation": annotation},
        {
            "type": "response.completed",
            "response": {"id": "r\ud800", "object": "response", "status": "completed", "output": []},
        },
    ]
    for source in (items, [b"data: " + json.dumps(item).encode() + b"\n\n" for item in items]):
        stream = sk.stream(source)
        events = [*stream]
        [added] = [event for event in events if isinstance(event, AnnotationAdded)]
        assert added.annotation.title == "\ufffd"
        assert all(codec.decode_event(codec.encode_event(event)) for event in events)
        assert {warning.code for warning in stream.warnings} == {"lone-surrogate"}
        assert stream.current_run is not None
        assert stream.current_run.id == "r\ufffd"


def test_a_canonical_event_with_a_lone_surrogate_is_encoded() -> None:
    annotation = Annotation(type="url", title="\ud800")
    for event in (AnnotationAdded("m", annotation), TextDelta("m", "a\ud83d"), RawEvent("x", {"\ud800": ["\udfff"]})):
        encoded = codec.encode_event(event)
        assert b"\xef\xbf\xbd" in encoded
        assert codec.event_to_dict(event) == codec.event_to_dict(codec.decode_event(encoded))
    assert codec.decode_event(rb'{"type": "text_delta", "message_id": "m", "value": "a\ud83d"}').value == "a\ufffd"  # type: ignore[attr-defined]


def emitted(how: str, pieces: list[str]) -> sk.Emitter:
    """An emitter that has emitted these pieces, in one of its ways, and closed."""
    way, _, kind = how.partition(" ")
    with sk.Emitter() as emitter:
        write: Any = {
            "emitter": getattr(emitter, kind, None),
            "part": way == "part" and getattr(emitter, f"begin_{kind}")().write,
            "lane": way == "lane" and getattr(emitter.lane("l"), kind),
            "event": lambda piece: emitter.emit(TextDelta("m", piece)),
        }[way]
        for piece in pieces:
            write(piece)
    return emitter


EMITTED = [f"{way} {kind}" for way in ("emitter", "part", "lane") for kind in ("text", "reasoning", "code", "console")]


@pytest.mark.parametrize("how", [*EMITTED, "event text"])
@pytest.mark.parametrize(("pieces", "expected", "warnings"), SPLIT)
def test_an_emitter_joins_a_surrogate_pair_that_was_cut(
    pieces: list[str], expected: list[str], warnings: int, how: str
) -> None:
    """Whichever call it came from; and its readers get what can be encoded."""
    stream = sk.stream(emitted(how, pieces))
    events = [*stream]
    assert all(codec.decode_event(codec.encode_event(event)) for event in events)
    assert "".join(event.value.encode().decode() for event in events if isinstance(event, Delta)) == "".join(expected)
    assert [message.content for message in stream.messages] == ["".join(expected)]
    assert stream.status == "completed"


def test_the_half_that_one_message_ends_with_is_not_joined_to_another() -> None:
    with sk.Emitter() as emitter:
        emitter.text("a\ud83d")
        emitter.reasoning("\ude00b")
        emitter.text("\ude00c")
        emitter.text("d")
    stream = sk.stream(emitter)
    assert [message.content for message in stream.get_final_messages()] == ["a\ufffd", "\ufffdb", "\ufffdcd"]
    assert [warning.code for warning in stream.warnings] == ["lone-surrogate"]


@pytest.mark.parametrize("way", ["stream", "emitter"])
def test_an_event_of_this_process_that_is_no_delta_has_no_lone_surrogates(way: str) -> None:
    """It is read as from its wire form; what its caller has stays as it was."""
    annotation = Annotation(type="url", title="\ud800")
    message = TextMessage("m", content="a\ud83d\ude00\ud83d", annotations=[annotation], metadata={"k": ["\udfff"]})
    call = ToolCallMessage("t", name="f\ud800", call_id="c", content='{"a": "\udfff"}', provider_executed=True)
    raw = RawEvent("x", {"\ud800": ["\udfff"]})
    source: list[Any] = [raw, TextDone(message), sk.events.ToolCallDone(call)]
    emitter = sk.Emitter()
    if way == "emitter":
        with emitter:
            for event in source:
                emitter.emit(event)
    stream = sk.stream(emitter if way == "emitter" else [*source, StreamEnd()])
    events = [*stream]
    text, one = stream.messages
    assert isinstance(text, TextMessage) and isinstance(one, ToolCallMessage)
    assert (text.content, text.annotations[0].title, text.metadata) == ("a😀\ufffd", "\ufffd", {"k": ["\ufffd"]})
    assert (one.name, one.arguments) == ("f\ufffd", {"a": "\ufffd"})
    assert [event.data for event in events if isinstance(event, RawEvent)] == [{"\ufffd": ["\ufffd"]}]
    assert (message.content, annotation.title, call.name) == ("a\ud83d\ude00\ud83d", "\ud800", "f\ud800")


def nested(levels: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


CIRCLE: list[Any] = []
CIRCLE += [CIRCLE, CIRCLE]
UNREADABLE = {
    "as deep as may be": nested(MAX_NESTING - 2),
    "deep": nested(MAX_NESTING + 1),
    "very deep": nested(5000),
    "deep objects": nested(5000, dict),
    "circle": CIRCLE,
    "long number": 10**5000,
    "half a pair": "\ud800",
    "a tuple as a key": {(1, 2): 3},
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_event_with_what_no_reader_takes_is_written_without_it(kind: str, tmp_path: Path) -> None:
    """By the codec, in a recording, and by an emitter: the rest of the event is there."""
    value = UNREADABLE[kind]
    message = TextMessage("m", content="Hi", metadata={"k": value, "other": 1})
    events = [TextDelta("m", "Hi", metadata={"k": value}), TextDone(message), RawEvent("x", {"k": value, "other": 1})]
    for event in events:
        read = codec.decode_event(codec.encode_event(event))
        assert codec.event_from_dict(codec.event_to_dict(event)) == read or isinstance(event, TextDone)
        assert type(read) is type(event)
    raw: Any = codec.decode_event(codec.encode_event(events[-1]))
    assert raw.data["other"] == 1
    path = tmp_path / "run.jsonl"
    assert sk.stream([*events, StreamEnd()], sk.Recorder(path)).get_final_text() == "Hi"
    again = sk.stream(path)
    assert again.get_final_text() == "Hi"
    assert again.messages[0].metadata["other"] == 1
    with sk.Emitter() as emitter:
        for event in events:
            emitter.emit(event)
    emitted = sk.stream(emitter)
    assert [codec.decode_event(codec.encode_event(event)).type for event in emitted]
    assert emitted.messages[0].content == "Hi"


@pytest.mark.parametrize("output", ["a\ud83d\ude00\ud83d", {"a": "\ud83d\ude00\ud83d"}, ["\ud83d\ude00\ud83d"]])
def test_an_output_with_half_of_a_surrogate_pair_is_an_output(output: Any) -> None:
    """Python's names of files have them for bytes that are not UTF-8."""
    text = output_text(output)
    assert text.encode()
    assert "😀\ufffd" in text


@pytest.mark.parametrize("protocol", ["openai_responses", "openai_chat", "anthropic"])
def test_what_a_user_wrote_can_be_sent(protocol: str) -> None:
    """Also half of a surrogate pair, as a terminal gives for bytes that are not UTF-8."""
    call = ToolCallMessage("t", name="f", call_id="c", content='{"a": "\ud83d"}', role="assistant")
    output = sk.ToolOutputMessage("o", call_id="c", content="\udcff")
    messages = [TextMessage("m", role="user", content="Hi \udcff"), call, output]
    sent = sk.to_input(messages, protocol)
    text = json.dumps(sent, ensure_ascii=False)
    assert text.encode().count(b"\xef\xbf\xbd") >= 2
    assert "Hi \ufffd" in text


# -- not quite JSON


@pytest.mark.parametrize(
    ("text", "expected", "what"),
    [
        (b'"content": "a", "score": NaN', "a", "NaN"),
        (b'"content": "a", "score": [Infinity, -Infinity]', "a", "-Infinity and Infinity"),
        (b'"content": "a\tb\x01"', "a\tb\x01", "control characters that are not escaped"),
        (b'"content": "a\xffb"', "a\ufffdb", "bytes that are not UTF-8"),
    ],
)
def test_what_is_not_quite_json_is_read(text: bytes, expected: str, what: str) -> None:
    """One such value does not lose the rest of its item. A strict stream refuses it."""
    item = b'data: {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {%s}}]}\n\n' % text
    body = [chat_chunk(""), item, chat_chunk("", "stop"), b"data: [DONE]\n\n"]
    stream = sk.stream(body)
    assert stream.get_final_text() == expected
    [warning] = stream.warnings
    assert (warning.code, warning.index) == ("lenient-json", 1)
    assert f"it has {what};" in warning.fault
    with pytest.raises(sk.ProtocolError, match="lenient-json"):
        sk.stream(body, strict=True).until_done()


def test_a_warning_about_bytes_that_are_not_utf8_does_not_depend_on_the_cut() -> None:
    """They stand where no reader looks. An event with a name that the decoder heeds may come in the same chunk or not."""

    def event(name: str, fields: bytes) -> bytes:
        return sse_frame(b'{"type": "%b", %b}' % (name.encode(), fields), name)

    text = b'"index": 0, "delta": {"type": "text_delta", "text": "a"}'
    pieces = [
        event("message_start", b'"message": {"id": "m", "role": "assistant", "content": []}'),
        event("content_block_start", b'"index": 0, "content_block": {"type": "text", "text": ""}'),
        event("content_block_delta", text),
        event("content_block_delta", text + b', "x": "\xff"'),
        event("error", b'"error": {"message": "it broke"}'),
    ]
    found: list[Any] = []
    for start in range(len(pieces)):
        stream = sk.stream([*pieces[:start], b"".join(pieces[start:])])
        with pytest.raises(sk.RunFailedError):
            stream.until_done()
        found.append(([warning.code for warning in stream.warnings], [message.content for message in stream.messages]))
    assert found == [([], ["aa"])] * len(pieces)


def test_warnings_about_what_follows_the_end_of_an_answer_do_not_depend_on_the_cut() -> None:
    """Deltas that are not plain, after a chunk with an error."""

    def refusal(text: str, extra: bytes = b"") -> bytes:
        return chat_chunk(text).replace(b'"content"', b'%b"refusal"' % extra)

    error = b'data: {"id": "c", "error": {"message": "it broke"}, "choices": []}\n\n'
    pieces = [refusal("a"), refusal("b"), error, *[refusal("c", b'"x": "\xff", ')] * 3]
    found: list[Any] = []
    for start in range(len(pieces)):
        stream = sk.stream([*pieces[:start], b"".join(pieces[start:])])
        with pytest.raises(sk.RunFailedError):
            stream.until_done()
        found.append(([warning.index for warning in stream.warnings], [message.content for message in stream.messages]))
    assert found == [found[0]] * len(pieces)


def test_what_is_not_quite_json_is_recognised_and_recorded(tmp_path: Path) -> None:
    """As the first item, and as the last one without its newline."""
    body = [chat_chunk("\ud83d").replace(b'"index"', b'"x": NaN, "index"'), chat_chunk("\ude00", "stop").rstrip()]
    stream = sk.stream(body, sk.Recorder(tmp_path / "run.jsonl"))
    assert stream.get_final_text() == "😀"
    assert [warning.code for warning in stream.warnings] == ["lenient-json"]
    again = sk.stream(tmp_path / "run.jsonl")
    assert again.get_final_text() == "😀"
    assert [warning.code for warning in again.warnings] == ["lenient-json"]


def test_the_raw_item_is_parsed_as_far_as_it_can_be() -> None:
    [event] = [
        event for event in sk.stream([chat_chunk("a\ud83d"), chat_chunk("", "stop")]) if type(event) is TextDelta
    ][:1]
    assert event.raw["choices"][0]["delta"]["content"] == "a\ufffd"


_HUGE = 10**300  # seconds: no float of Python's has so many milliseconds, and no date is so late
_WITH_A_TIME: dict[str, list[Any]] = {
    "vercel_ui": [
        {"type": "start", "messageId": "m", "messageMetadata": {"createdAt": _HUGE}},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "hi"},
        {"type": "text-end", "id": "t"},
        {"type": "finish"},
    ],
    "ag_ui": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "timestamp": _HUGE},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "hi"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ],
    "openai_chat": [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": _HUGE,
            "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],
        }
    ],
    "openai_completions": [
        {
            "id": "c",
            "object": "text_completion",
            "created": _HUGE,
            "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}],
        }
    ],
    "openai_responses": [
        {"type": "response.created", "response": {"id": "r", "created_at": _HUGE, "status": "in_progress"}},
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "hi"},
        {"type": "response.completed", "response": {"id": "r", "created_at": _HUGE, "status": "completed"}},
    ],
}


@pytest.mark.parametrize("digits", [300, 400])
@pytest.mark.parametrize("protocol", _WITH_A_TIME)
def test_a_time_of_hundreds_of_digits_is_no_time(protocol: str, digits: int) -> None:
    """In items, and in bytes."""
    items = json.loads(json.dumps(_WITH_A_TIME[protocol]).replace(str(_HUGE), str(10**digits)))
    body = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items)
    for source in (items, [body]):
        stream = sk.stream(source, protocol=protocol)
        assert stream.get_final_text() == "hi"
        assert (stream.status, stream.get_final_run().created_at, [*stream.warnings]) == ("completed", None, [])
