"""Messages and events as values: their static forms, their wire form, and what a message keeps while it grows."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit import events
from streamkit import messages as m
from streamkit.answers import Confirmation
from streamkit.core.engine import Engine
from streamkit.errors import UsageError
from streamkit.events import EVENTS, Event
from streamkit.protocols import codec

from .costs import assert_costs, seconds_of

# Other tests declare events of their own.
OWN = {name: kind for name, kind in EVENTS.items() if kind.__module__ == "streamkit.events"}


law = settings(deadline=None, derandomize=True, database=None, max_examples=50)

# Every type of message of DESIGN's table, with the formats that it can have, and the class that tells of it.
KINDS: list[tuple[str, str | None, str, type[m.Message]]] = [
    ("message", None, "assistant", m.TextMessage),
    ("message", None, "user", m.TextMessage),
    ("message", "refusal", "assistant", m.RefusalMessage),
    ("message", "html", "assistant", m.Message),
    ("reasoning", None, "assistant", m.ReasoningMessage),
    ("reasoning", "summary", "assistant", m.ReasoningMessage),
    ("reasoning", "redacted", "assistant", m.ReasoningMessage),
    ("code", "python", "assistant", m.CodeMessage),
    ("code", "html", "computer", m.Message),
    ("console", "output", "computer", m.ConsoleMessage),
    ("image", "base64.png", "computer", m.ImageMessage),
    ("image", "url", "assistant", m.ImageMessage),
    ("audio", "wav", "assistant", m.AudioMessage),
    ("file", "path", "assistant", m.FileMessage),
    ("tool_call", None, "assistant", m.ToolCallMessage),
    ("tool_output", None, "computer", m.ToolOutputMessage),
    ("confirmation", "execution", "computer", m.Message),
    ("a_providers_own", "x", "assistant", m.Message),
]
kinds = st.sampled_from(KINDS)
texts = st.text(max_size=12)
names = st.text("abc_1é", min_size=1, max_size=4)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
annotations = st.builds(
    m.Annotation,
    type=st.sampled_from(("url_citation", "file_citation")),
    url=st.none() | texts,
    title=st.none() | texts,
    start=st.none() | st.integers(0, 99),
    end=st.none() | st.integers(0, 99),
    raw=st.none() | st.dictionaries(names, plain, max_size=2),
)
statuses = st.sampled_from(("in_progress", "completed", "incomplete", "cancelled", "failed"))


@st.composite
def messages(draw: st.DrawFn) -> m.Message:
    type, format, role, kind = draw(kinds)
    optional = {"recipient": names, "name": names, "call_id": names, "group": names, "run_id": names, "step_id": names}
    fields: dict[str, Any] = {key: draw(st.none() | values) for key, values in optional.items()}
    fields["created_at"] = draw(st.none() | st.integers(1, 2**31) | st.floats(1, 2**31))
    fields["index"], fields["choice"] = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    fields["metadata"] = draw(st.dictionaries(names, plain, max_size=2))
    fields["content"] = draw(st.none() | texts)
    fields["status"] = draw(statuses)
    if kind is m.TextMessage:
        fields["annotations"] = draw(st.lists(annotations, max_size=2))
    if kind is m.ToolCallMessage:
        fields["provider_executed"] = draw(st.booleans())
    return kind(draw(names), type=type, format=format, role=role, **fields)


def grown(kind: type[m.Message], pieces: list[str], *, done: bool = False) -> m.Message:
    """A message that took in these pieces, as the engine lets it."""
    engine = Engine()
    told = [kind.created_event(kind("a"))] + [kind.delta_event("a", piece) for piece in pieces]  # type: ignore[call-arg]
    list(engine.complete([*told, events.MessageDone(kind("a"))] if done else told))
    return engine.messages.all[0]


# -- the static form


@pytest.mark.slow
@law
@given(messages())
def test_the_static_form_keeps_all_of_a_message(message: m.Message) -> None:
    """`Message.from_dict(m.to_dict()) == m`, of the same class, also through JSON."""
    static = message.to_dict()
    again = m.Message.from_dict(static)
    assert again == message
    assert type(again) is type(message)
    assert again.to_dict() == static
    assert again.has_content == message.has_content
    assert m.Message.from_dict(json.loads(json.dumps(static))) == message


@pytest.mark.parametrize(("type", "format", "role", "kind"), KINDS)
def test_type_format_and_role_tell_a_messages_class(type: str, format: str | None, role: str, kind: Any) -> None:
    """The table of the message types."""
    assert m.message_class(type, format, role) is kind
    static = {"type": type, "role": role, **({"format": format} if format else {})}
    assert isinstance(m.Message.from_dict(static), kind)


def test_the_static_form_leaves_out_what_is_unset() -> None:
    """Open Interpreter's form: role, type, content, and a format where there is one."""
    assert m.TextMessage("a", content="hi").to_dict() == {
        "id": "a",
        "role": "assistant",
        "type": "message",
        "content": "hi",
    }
    assert m.ConsoleMessage("a").to_dict() == {"id": "a", "role": "computer", "type": "console", "format": "output"}


def test_empty_content_differs_from_no_content() -> None:
    """What is known to be empty stays known."""
    assert m.Message.from_dict({"type": "message", "content": ""}).has_content
    assert not m.Message.from_dict({"type": "message", "content": None}).has_content


def test_unknown_keys_are_in_the_metadata() -> None:
    """Another program's keys survive."""
    message = m.Message.from_dict({"type": "message", "content": "a", "start": True, "metadata": {"b": 1}})
    assert message.metadata == {"b": 1, "start": True}


WRONG: list[dict[str, Any]] = [
    {"id": 1},
    {"content": 5},
    {"content": ["a"]},
    {"type": 3},
    {"type": ["message"]},
    {"role": {}},
    {"format": 1, "type": "code"},
    {"name": b"a"},
    {"index": "1"},
    {"index": True},
    {"choice": 1.5},
    {"created_at": "now"},
    {"created_at": True},
    {"metadata": [1]},
    {"metadata": "a"},
    {"metadata": 5, "another": 1},
    {"annotations": "a", "type": "message"},
    {"annotations": [1], "type": "message"},
    {"annotations": [{"type": 1}], "type": "message"},
    {"annotations": [{}], "type": "message"},
    {"provider_executed": "yes", "type": "tool_call"},
    {"status": "dancing"},
    {"status": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_value_of_the_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    """`from_dict` says which key is wrong."""
    with pytest.raises(UsageError):
        m.Message.from_dict(wrong)


@pytest.mark.slow
@law
@given(st.dictionaries(st.sampled_from(sorted(m.ToolCallMessage.fields() | {"annotations", "x"})), plain, max_size=5))
def test_from_dict_raises_nothing_but_usage_errors(value: dict[str, Any]) -> None:
    """Whatever the values are; and what it takes, it gives again."""
    try:
        message = m.Message.from_dict(value)
    except UsageError:
        return
    assert m.Message.from_dict(message.to_dict()) == message


# -- messages that grow


@pytest.mark.parametrize("kind", [m.TextMessage, m.CodeMessage, m.ToolCallMessage, m.Message])
@pytest.mark.parametrize("reading", [1, 3, 700, 10_000], ids="read every {}".format)
def test_content_is_the_sum_of_the_pieces_whenever_it_is_read(kind: type[m.Message], reading: int) -> None:
    """Joining lazily is not seen from outside, on both sides of the limit at which pieces are folded."""
    engine = Engine()
    list(engine.complete([kind.created_event(kind("a"))]))
    message, expected = engine.messages.all[0], ""
    for number in range(1500):
        list(engine.complete([kind.delta_event("a", f"{number},")]))  # type: ignore[call-arg]
        expected += f"{number},"
        if number % reading == 0:
            assert message.content == expected
            assert message.delta_count == number + 1
    assert message.content == expected
    assert message.delta_count == 1500


def read_beside(function: Callable[[], object], read: Callable[[], str]) -> list[str]:
    """What `read` gives in threads that begin before each instruction of a function's."""
    threads: list[threading.Thread] = []
    seen: list[str] = []

    def trace(frame: Any, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            threads.append(threading.Thread(target=lambda: seen.append(read())))
            threads[-1].start()
            threads[-1].join(0.01)  # it may have to wait for the function
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    for thread in threads:
        thread.join()
    assert len(seen) == len(threads)
    return seen


@pytest.mark.parametrize("kind", [m.TextMessage, m.AudioMessage])
@pytest.mark.parametrize("does", ["read", "compact", "finish"])
def test_another_thread_may_read_the_content_at_any_time(kind: type[m.Message], does: str) -> None:
    """Also while it is joined: it never misses anything."""
    for traced in ("once", "again"):  # from 3.12 on a function's first call is not traced in each instruction
        message = kind("a", content="aaaa", status="in_progress")
        message.pieces.extend(("bbbb", "cccc"))
        functions: dict[str, Callable[[], object]]
        functions = {"read": partial(getattr, message, "content"), "compact": message.compact, "finish": message.finish}
        seen = read_beside(functions[does], partial(getattr, message, "content"))
        assert {*seen, message.content} == {"aaaabbbbcccc"}
        # 3.13 traces no further instruction of code that an untraced thread has run.
        assert traced == "once" or len(seen) > (4 if sys.version_info >= (3, 13) else 10)


FORKING = """
import os, threading, time
import streamkit
from streamkit.messages.message import JOINING

held = threading.Event()

def join():
    with JOINING:
        held.set()
        time.sleep(0.2)

threading.Thread(target=join).start()
held.wait()
child = os.fork()
if child == 0:
    message = streamkit.TextMessage("a", status="in_progress")
    message.pieces.append("Hello")
    os._exit(0 if message.content == "Hello" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_is_forked_while_text_is_joined_can_read() -> None:
    """It has a copy of that lock, and no thread that would release it."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


def test_a_copy_keeps_its_moment() -> None:
    """The copy stays as it is while the message grows and is done."""
    engine = Engine()
    list(engine.complete([events.TextDelta("a", "one")]))
    message = engine.messages.all[0]
    copy = message.copy()
    assert copy == message and copy is not message
    annotation = m.Annotation(type="url_citation")
    more = [events.TextDelta("a", "two"), events.AnnotationAdded("a", annotation), events.MessageDone(m.Message("a"))]
    list(engine.complete(more))
    assert (copy.content, copy.status, copy.annotations) == ("one", "in_progress", [])  # type: ignore[attr-defined]
    assert (message.content, message.status) == ("onetwo", "completed")


@pytest.mark.slow
@law
@given(messages())
def test_a_copy_is_equal_and_of_the_same_class(message: m.Message) -> None:
    """Also where the content was never told, and where it is empty."""
    copy = message.copy()
    assert copy == message
    assert type(copy) is type(message)
    assert copy.has_content == message.has_content


@pytest.mark.slow
@law
@given(messages())
def test_a_header_is_the_message_before_its_first_delta(message: m.Message) -> None:
    """All but content, annotations and status."""
    header = message.header()
    assert header.content == ""
    assert header.status == "in_progress"
    assert not header.has_content
    kept = {key: value for key, value in message.to_dict().items() if key not in ("content", "annotations", "status")}
    assert header.to_dict() == {**kept, "status": "in_progress"}


def test_many_small_pieces_cost_little_more_than_their_text() -> None:
    """A hundred thousand one-character pieces are not kept as a hundred thousand strings."""
    message = grown(m.TextMessage, ["é"] * 100_000)
    size = sum(map(sys.getsizeof, (message._text, message.pieces, *message.pieces)))
    assert len(message.content) == 100_000
    assert size < 100_000 + 10_000


def test_messages_are_equal_by_their_static_form() -> None:
    """Not by identity; nothing that grows can be a key."""
    assert m.TextMessage("a", content="b") == m.TextMessage("a", content="b")
    assert m.TextMessage("a", content="b") != m.TextMessage("a", content="c")
    assert m.TextMessage("a") != "a"
    with pytest.raises(TypeError):
        hash(m.TextMessage("a"))


# -- tool calls


@pytest.mark.slow
@law
@given(st.dictionaries(names, plain, max_size=4), st.lists(st.integers(0, 200), max_size=5))
def test_the_arguments_of_a_done_call_are_its_parsed_content(value: dict[str, Any], places: list[int]) -> None:
    """However the JSON text is cut, and whether or not it was read before."""
    text = json.dumps(value)
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]
    engine = Engine()
    for piece in pieces:
        list(engine.complete([events.ToolCallDelta("a", piece)]))
        assert isinstance(engine.messages.all[0].arguments, dict)  # type: ignore[attr-defined]
    list(engine.complete([events.MessageDone(m.ToolCallMessage("a", name="f"))]))
    assert engine.messages.all[0].arguments == value  # type: ignore[attr-defined]


def test_arguments_can_be_read_while_they_stream() -> None:
    """The part that can be read already, a string that is not closed included."""
    call = grown(m.ToolCallMessage, ['{"code": "prin'])
    assert isinstance(call, m.ToolCallMessage)
    assert call.arguments == {"code": "prin"}


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '"a"', "5", "null", "{", '{"a":', "\ud800", '{"a": "\\ud800"}'])
def test_arguments_that_are_no_object_are_empty(text: str) -> None:
    """Reading them never raises, streaming or done."""
    for done in (False, True):
        call = grown(m.ToolCallMessage, [text], done=done) if text else m.ToolCallMessage("a", content=text)
        assert isinstance(call, m.ToolCallMessage)
        assert call.arguments == {} or "ud800" in text


def test_a_call_without_an_answer_raises_the_reason() -> None:
    """`respond` on a passive call raises; nothing waits."""
    for provider_executed in (False, True):
        call = m.ToolCallMessage("a", name="f", content="{}", provider_executed=provider_executed)
        assert not call.waiting
        with pytest.raises(UsageError, match="its provider runs it" if provider_executed else "then="):
            call.respond("b")


# -- audio


@law
@given(st.lists(st.binary(max_size=7), max_size=6))
def test_pieces_of_audio_are_joined_as_bytes(pieces: list[bytes]) -> None:
    """Each piece of base64 has padding of its own."""
    audio = grown(m.AudioMessage, [base64.b64encode(piece).decode() for piece in pieces if piece])
    assert isinstance(audio, m.AudioMessage)
    assert audio.data == b"".join(pieces)
    assert base64.b64decode(audio.content, validate=True) == b"".join(pieces)


@law
@given(st.lists(st.text("AB=é {", max_size=6), min_size=1, max_size=4), st.booleans())
def test_audio_that_is_not_base64_does_not_raise(pieces: list[str], again: bool) -> None:
    """What cannot be decoded is left out, while it grows and when it is read again."""
    audio = grown(m.AudioMessage, [piece for piece in pieces if piece] or ["A"])
    if again:
        _ = audio.content
    assert isinstance(audio.data, bytes)  # type: ignore[attr-defined]


# -- events on the wire


def an_event(kind: type[Event]) -> Event:
    """An event of this class, with something in each of its fields."""
    if issubclass(kind, events.Created | events.Done):
        family = kind.family or m.Message
        message = family("a", type="x" if family is m.Message else None, status="in_progress", group="g")
        return kind(message, position="c-1")
    values: dict[str, Any] = {
        "message_id": "a",
        "value": "é\n",
        "replace": True,
        "metadata": {"stream": "stderr"},
        "line": 3,
        "annotation": m.Annotation(type="url_citation", url="u", raw={"k": [1]}),
        "run": events.Run(id="r", model="m", usage=events.Usage(1, 2, 3), metadata={"k": "v"}),
        "run_step": events.RunStep(id="s", run_id="r", status="failed", error={"message": "no"}),
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 3,
        "details": {"cached_tokens": 1},
        "confirmation": Confirmation("c", m.CodeMessage("a", format="python", content="1"), reason="why"),
        "code": "bad",
        "fault": "it was bad",
        "index": 4,
        "kind": "chunk",
        "name": "raw.name",
        "data": {"type": "raw.name", "k": None},
        "error": "SourceError",
        "message": "gone",
        "attempt": 2,
        "delay": 0.5,
        "withdrawn": ["a"],
        "status": "failed",
    }
    fields = [field for field in kind.__struct_fields__ if field in values]
    return kind(**{field: values[field] for field in fields}, position="c-1")


@pytest.mark.parametrize("kind", OWN.values(), ids=lambda kind: kind.type)
def test_every_event_goes_over_the_wire_and_comes_back(kind: type[Event]) -> None:
    """Its type is its class's, nothing of this process stays in it, and the same is read from it again."""
    event = an_event(kind)
    event.raw_item = b'{"raw": 1}'
    plain = codec.event_to_dict(event)
    assert plain["type"] == kind.type
    assert not {"source", "snapshot", "exception", "raw"} & set(plain)
    assert json.loads(codec.encode_event(event)) == plain
    for again in (codec.decode_event(codec.encode_event(event)), codec.event_from_dict(plain)):
        assert type(again) is kind
        assert codec.event_to_dict(again) == plain
        assert again.cursor == "c-1"
        assert again.raw is None


def test_runs_travel_without_their_providers_own_object() -> None:
    """`raw` stays behind; `usage` goes along."""
    run = events.Run(id="r", raw={"big": 1}, usage=events.Usage(1, 2, 3, raw_item=b"{}"))
    assert codec.event_to_dict(events.RunDone(run)) == {
        "type": "run_done",
        "run": {"id": "r", "usage": {"type": "usage", "input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
    }
    assert run.raw == {"big": 1}


def test_a_value_that_json_lacks_is_encoded_as_text() -> None:
    """A provider's metadata may hold anything."""
    delta = events.TextDelta("a", "b", metadata={"when": complex(1, 2)})
    assert codec.event_to_dict(delta)["metadata"] == {"when": "(1+2j)"}
    assert json.loads(codec.encode_event(delta))["metadata"] == {"when": "(1+2j)"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'{"type": "nothing"}',
        b'{"type": 5}',
        b'{"type": "text_delta"}',
        b'{"type": "text_delta", "message_id": 1, "value": "a"}',
        b'{"type": "text_created", "message": 5}',
        b'{"type": "text_created", "message": {"id": 5}}',
        b'{"type": "confirmation_created", "confirmation": {}}',
        b'{"type": "confirmation_created", "confirmation": {"id": "a"}}',
        b'{"type": "confirmation_created", "confirmation": []}',
        b'{"type": "confirmation_created", "confirmation": {"id": 5, "subject": {}}}',
        b'{"type": "confirmation_created", "confirmation": {"id": "a", "subject": {}, "status": 1}}',
        b'{"type": "run_created", "run": {"status": "dancing"}}',
        b'{"type": "annotation_added", "message_id": "a", "annotation": {}}',
    ],
)
def test_what_is_no_event_is_refused_with_a_value_error(data: bytes) -> None:
    """Never with anything else: msgspec's errors are value errors too."""
    with pytest.raises(ValueError):
        codec.decode_event(data)


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], 5, None, {"type": "nothing"}, {"type": "text_delta"}),
        {"type": "text_delta", "message_id": 1, "value": "a"},
        {"type": "text_created", "message": {"id": 5}},
        {"type": "confirmation_created", "confirmation": {"id": "a", "subject": {}, "status": 1}},
        {"type": "run_created", "run": {"status": "dancing"}},
    ],
)
def test_plain_data_is_refused_with_the_words_that_its_json_is(value: Any) -> None:
    """Whichever way an event comes in."""
    with pytest.raises(ValueError):
        codec.event_from_dict({"type": value})
    with pytest.raises(ValueError) as plain:
        codec.event_from_dict(value)
    with pytest.raises(ValueError) as text:
        codec.decode_event(json.dumps(value))
    assert str(plain.value) == str(text.value)


def test_plain_data_costs_about_what_its_json_does() -> None:
    """The classes of events are not gone through for each of them: ten times as much would be far too much."""
    plain = codec.event_to_dict(events.TextDelta("m", "some text"))
    data = json.dumps(plain)

    def from_dicts() -> None:
        for _ in range(2_000):
            codec.event_from_dict(plain)

    def from_json() -> None:
        for _ in range(2_000):
            codec.decode_event(data)

    assert_costs(lambda: seconds_of(from_dicts), 10, lambda: seconds_of(from_json))


@pytest.mark.slow
@law
@given(
    st.sampled_from(sorted(OWN)),
    st.dictionaries(
        st.sampled_from(sorted({f for kind in OWN.values() for f in kind.__struct_encode_fields__})),
        plain | st.dictionaries(st.sampled_from(("id", "subject", "status", "type", "content")), plain, max_size=4),
        max_size=6,
    ),
)
def test_no_fields_make_decoding_raise_anything_but_a_value_error(type: str, fields: dict[str, Any]) -> None:
    """Arbitrary JSON values in an event's fields; what is taken can be told again."""
    try:
        event = codec.event_from_dict({**fields, "type": type})
    except ValueError:
        return
    again = codec.decode_event(codec.encode_event(event))
    assert codec.event_to_dict(again) == codec.event_to_dict(event)


def test_raw_is_what_the_event_came_from() -> None:
    """JSON bytes are parsed when they are read; what is no JSON is text; objects are given as they came."""
    assert events.TextDelta("a", "b", raw_item=b'{"k": 1}').raw == {"k": 1}
    assert events.TextDelta("a", "b", raw_item=b"\xffnope").raw == "\ufffdnope"
    assert events.TextDelta("a", "b", raw_item={"k": 1}).raw == {"k": 1}
    assert events.TextDelta("a", "b").raw is None


def test_each_event_class_is_declared_once() -> None:
    """Wire types and hooks are computed from the classes, and no two share a wire type."""
    assert len({kind.type for kind in OWN.values()}) == len(OWN)
    for kind in OWN.values():
        assert kind.__name__ in events.__all__
        assert kind.hook.startswith("on_")
        assert msgspec.structs.fields(kind)


@pytest.mark.parametrize("how", ["made", "read", "copied", "grown"])
def test_the_arguments_of_a_call_are_there_however_it_came_to_be(how: str) -> None:
    """Not only those of a call that was streamed."""
    call = m.ToolCallMessage("c", name="f", content='{"a": 1}')
    match how:
        case "read":
            call = m.Message.from_dict(call.to_dict())  # type: ignore[assignment]
        case "copied":
            call = call.copy()
        case "grown":
            call = m.ToolCallMessage("c", name="f")
            assert call.arguments == {}
            call.replace_content('{"a": 1}')
        case _:
            pass
    assert call.arguments == {"a": 1}
