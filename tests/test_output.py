"""The output of a stream: the JSON in its answer, while it arrives, and as the type that it is read as in the end."""

from __future__ import annotations

import enum
import json
import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest

import streamkit as sk
from streamkit import events as e
from streamkit.streams.output_type import OutputType

from .faces import Face, body, both_shells, calls, chat, every_face
from .opcodes import growth, opcodes
from .test_json_tree import DOCUMENTS, begun, pieces_of


class Unit(enum.Enum):
    METRIC = "metric"
    OTHER = "other"


@dataclass
class Weather:
    city: str
    days: list[int]
    when: date
    unit: Unit
    place: tuple[int, int]


class Wind(TypedDict):
    speed: float


class Rain(msgspec.Struct, tag=True):
    amount: Decimal


class Snow(msgspec.Struct, tag=True):
    amount: Decimal
    inside: list[Rain] = []


class Storm(pydantic.BaseModel):
    name: str
    strength: int = pydantic.Field(gt=0)


class Node(msgspec.Struct):
    name: str
    children: list[Node]


@dataclass
class Report:
    storms: list[Storm]


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise LookupError("low is above high")


class Point(NamedTuple):
    x: int
    y: int


WEATHER = Weather("Oslo", [1, 2], date(2026, 11, 28), Unit.METRIC, (1, 2))
WEATHER_JSON = '{"city": "Oslo", "days": [1, 2], "when": "2026-11-28", "unit": "metric", "place": [1, 2]}'

TYPES: dict[str, tuple[Any, str, Any]] = {
    "a dataclass": (Weather, WEATHER_JSON, WEATHER),
    "a TypedDict": (Wind, '{"speed": 3}', {"speed": 3.0}),
    "a Struct": (Rain, '{"type": "Rain", "amount": 1.10}', Rain(Decimal("1.10"))),
    "a pydantic model": (Storm, '{"name": "Ida", "strength": 3}', Storm(name="Ida", strength=3)),
    "a dataclass with pydantic in it": (Report, '{"storms": [{"name": "a", "strength": 1}]}', Report([Storm(name="a", strength=1)])),
    "a type that contains itself": (Node, '{"name": "a", "children": [{"name": "b", "children": []}]}', Node("a", [Node("b", [])])),
    "a list": (list[Wind], '[{"speed": 1.5}, {"speed": 2}]', [{"speed": 1.5}, {"speed": 2.0}]),
    "a list of numbers": (list[int], "[1, 2, 3]", [1, 2, 3]),
    "a list of pydantic models": (list[Storm], '[{"name": "a", "strength": 1}]', [Storm(name="a", strength=1)]),
    "a list with a constraint": (Annotated[list[int], msgspec.Meta(min_length=1)], "[1]", [1]),
    "a dict": (dict[str, int], '{"a": 1}', {"a": 1}),
    "a union of structs": (Rain | Snow, '{"type": "Snow", "amount": 2}', Snow(Decimal(2))),
    "a union of pydantic models": (Storm | Report, '{"storms": []}', Report([])),
    "any list": (list, '[1, "a"]', [1, "a"]),
}  # fmt: skip


ENDED = (e.RunDone(sk.Run(status="completed")), e.StreamEnd())


def answer(text: str, *, size: int = 3, finish: str | None = "stop") -> list[dict[str, Any]]:
    return chat(*pieces_of(text, size), finish=finish)


@pytest.mark.parametrize("name", TYPES)
def test_the_answer_is_read_as_its_type(name: str) -> None:
    """By JSON's rules: an enum by its value, a date and a decimal by their text, a tuple from a list."""
    kind, text, value = TYPES[name]
    with sk.stream(answer(text), output_type=kind) as stream:
        assert stream.get_final_output() == value
        assert stream.get_final_output() == value, "as often as it is asked for"
    assert stream.get_final_text() == text


@both_shells
@body
async def test_every_face_returns_the_output(face: Face) -> None:
    async with face.stream(face.generator_of(answer(WEATHER_JSON)), output_type=Weather) as stream:
        assert await stream.get_final_output() == WEATHER
        assert stream.partial_output["city"] == "Oslo"


REFUSED_TYPES: list[Any] = [
    int,
    str,
    bool,
    None | Weather,
    Weather | str,
    object,
    Literal["a"],
    complex,
    Callable,
    "Weather",
    5,
]


@pytest.mark.parametrize("kind", REFUSED_TYPES, ids=repr)
def test_what_no_object_or_list_is_read_as_is_refused_before_any_request(kind: Any) -> None:
    asked: list[int] = []
    for face in (sk.stream, sk.astream):
        with pytest.raises(sk.UsageError, match="output_type"):
            face(lambda: asked.append(1), output_type=kind)
    assert not asked


def test_without_a_type_there_is_no_output_to_return() -> None:
    """Everything else of it is there: the part of the JSON that has come."""
    with sk.stream(answer('{"a": [1]}')) as stream:
        with pytest.raises(sk.UsageError, match=r"get_final_output.*output_type"):
            stream.get_final_output()
        assert stream.partial_output == {"a": [1]}
        with pytest.raises(sk.UsageError, match=r"output_items.*output_type"):
            next(stream.output_items())
    with pytest.raises(sk.UsageError, match="list"):
        next(sk.stream(answer("{}"), output_type=Weather).output_items())


# -- while it arrives


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_partial_output_is_exactly_what_has_come(document: str) -> None:
    """At each delta, read by a handler; and in the loop after it."""
    seen: list[Any] = []

    class Reader(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            expected = begun(snapshot.content) if document.strip()[0] in "{[" else None
            assert self.stream.partial_output == expected
            seen.append(expected)

    with sk.stream(answer(document, size=1), Reader()) as stream:
        assert stream.partial_output is None
        stream.until_done()
        assert stream.partial_output == (seen[-1] if seen else None)
    assert len(seen) == len(document)


@both_shells
@body
async def test_partial_outputs_gives_the_live_value_after_each_delta_of_its_text(face: Face) -> None:
    """Once it has begun: the same objects each time."""
    seen: list[Any] = []
    async with face.stream(face.generator_of(answer('Here:\n{"a": "xyz", "b": [1, 2]}', size=4))) as stream:
        async for partial in stream.partial_outputs:
            assert not seen or partial is seen[-1]
            seen.append(partial)
    assert seen[-1] == {"a": "xyz", "b": [1, 2]}
    assert len(seen) == 7


def test_a_part_that_is_held_grows() -> None:
    """Whoever wants a moment copies it."""
    with sk.stream(answer('{"a": {"b": "xyz"}}', size=1)) as stream:
        loop = iter(stream.partial_outputs)
        inner = next(partial for partial in loop if isinstance(partial, dict) and "a" in partial)["a"]
        moment = dict(inner)
        assert isinstance(stream.partial_output, dict)
        for _ in loop:
            pass
    assert (moment, inner) == ({}, {"b": "xyz"})


def test_a_text_that_is_replaced_has_another_output() -> None:
    """As by a repair, where the final content is not the sum of the deltas."""
    source = [
        e.TextDelta("a", '{"a": "x'),
        e.TextDelta("a", '{"b": "y"}', True),
        e.MessageDone(sk.TextMessage("a", content='{"b": "y"}')),
        *ENDED,
    ]
    seen: list[Any] = []
    with sk.stream(source, protocol="streamkit") as stream:
        for event in stream:
            if isinstance(event, sk.TextDelta):
                seen.append(dict(stream.partial_output))  # type: ignore[arg-type]  # an object
    assert seen == [{"a": "x"}, {"b": "y"}]


# -- which text, and where in it


WHERE: list[tuple[str, Any]] = [
    ("", None),
    (" \n\t ", None),
    ("No JSON here.", None),
    ("Say {this} and [that].", None),
    ('{"a": 1}', {"a": 1}),
    (' \n {"a": 1}', {"a": 1}),
    ('Here it is:\n{"a": 1}', {"a": 1}),
    ('Here it is:\r\n  {"a": 1}\nThat was it.', {"a": 1}),
    ('```json\n{"a": 1}\n```', {"a": 1}),
    ('```\n{"a": 1}\n```\nand\n```\n{"b": 2}\n```', {"a": 1}),
    ('{"a": 1} {"b": 2}', {"a": 1}),
    ('{"a": 1}\n{"b": 2}', {"a": 1}),
    ('{"a": }\n{"b": 2}', {}),
    ("Text {\n[1, 2]", [1, 2]),
]


@pytest.mark.parametrize(("text", "value"), WHERE)
def test_json_begins_at_the_first_bracket_of_a_line_and_ends_where_it_closes(text: str, value: Any) -> None:
    """However the text is cut; nothing is searched behind a failure."""
    for size in (1, 2, 5, 100):
        with sk.stream(answer(text, size=size)) as stream:
            for _ in stream:
                pass
            assert stream.partial_output == value


def test_the_type_says_which_bracket() -> None:
    text = '[1] is a footnote\n{"speed": 1}\n[{"speed": 2}]'
    assert sk.stream(answer(text), output_type=Wind).get_final_output() == {"speed": 1}
    assert sk.stream(answer('{\n[{"speed": 2}]'), output_type=list[Wind]).get_final_output() == [{"speed": 2}]


def messages(*made: sk.Message) -> list[Any]:
    """A stream of canonical events with these messages, each in one delta."""
    return [*(e.MessageDone(message) for message in made), *ENDED]


def test_the_output_is_in_the_newest_text_of_the_first_choice() -> None:
    source = messages(
        sk.TextMessage("a", content='{"speed": 1}'),
        sk.TextMessage("b", content='{"speed": 2}'),
        sk.TextMessage("c", content='{"speed": 3}', choice=1),
        sk.TextMessage("d", content='{"speed": 4}', role="user"),
        sk.ReasoningMessage("e", content='{"speed": 5}'),
        sk.TextMessage("f", content='{"speed": 6}', parent_id="call-1"),
        sk.ToolCallMessage("g", name="f", content="{}", parent_id="call-1", provider_executed=True),
    )
    with sk.stream(source, protocol="streamkit", output_type=Wind) as stream:
        assert stream.get_final_output() == {"speed": 2}
        assert stream.partial_output == {"speed": 2}


def test_the_output_is_that_of_the_last_step_that_ended_without_a_call_of_ours() -> None:
    """A step that called a tool was no answer, whatever it said before."""
    step = [e.RunStepCreated(sk.RunStep(id=f"s{number}")) for number in range(4)]
    source = [
        step[0],
        e.MessageDone(sk.TextMessage("a", content='{"speed": 1}')),
        step[1],
        e.MessageDone(sk.TextMessage("b", content='{"speed": 2}')),
        e.MessageDone(sk.ToolCallMessage("c", name="search", content="{}", provider_executed=True)),
        step[2],
        e.MessageDone(sk.TextMessage("d", content='{"speed": 3}')),
        e.MessageDone(sk.ToolCallMessage("e", name="f", call_id="call", content="{}")),
        e.MessageDone(sk.ToolOutputMessage("f", call_id="call", content="out")),
        *ENDED,
    ]
    assert sk.stream(source, protocol="streamkit", output_type=Wind).get_final_output() == {"speed": 2}


# -- where there is none


def responses_refusal() -> list[Any]:
    return [
        e.MessageDone(sk.TextMessage("a", content='{"speed": 1}')),
        e.MessageDone(sk.RefusalMessage("b", content="I cannot help with that.")),
        *ENDED,
    ]


NONE: dict[str, tuple[Sequence[Any], str, str]] = {
    "no text": (answer(""), "missing", ""),
    "no JSON": (answer("It is cold."), "missing", "It is cold."),
    "a scalar": (answer("5"), "missing", "5"),
    "the other bracket": (answer("[1]"), "missing", "[1]"),
    "malformed": (answer('{"speed": 1,}'), "invalid", '{"speed": 1,}'),
    "not closed, although complete": (answer('{"speed": 1'), "invalid", '{"speed": 1'),
    "another object": (answer('{"pace": 1}'), "invalid", '{"pace": 1}'),
    "another type": (answer('{"speed": "fast"}'), "invalid", '{"speed": "fast"}'),
    "a number that is none": (answer('{"speed": NaN}'), "invalid", '{"speed": NaN}'),
    "half of a surrogate pair": (answer('{"speed": 1, "\\ud83d": 2}'), "invalid", '{"speed": 1, "\\ud83d": 2}'),
    "201 levels": (answer('{"a":' * 201 + "1" + "}" * 201, size=1000), "invalid", '{"a":' * 201 + "1" + "}" * 201),
    "cut short": (answer('{"speed": 1', finish="length"), "incomplete", '{"speed": 1'),
    "cut short before it began": (answer("Let me", finish="length"), "incomplete", "Let me"),
    "cut short without any text": (answer("", finish="length"), "incomplete", ""),
    "filtered": (answer('{"speed": 1', finish="content_filter"), "incomplete", '{"speed": 1'),
    "refused": (responses_refusal(), "refused", "I cannot help with that."),
    "refused without a text": (
        [e.RunDone(sk.Run(status="incomplete", finish_reason="refusal")), e.StreamEnd()],
        "refused",
        "",
    ),
    "a call": (calls("f"), "requires_action", ""),
}


@pytest.mark.parametrize("name", NONE)
def test_an_answer_without_an_output_says_why(name: str) -> None:
    """And nothing else of the stream is another: it ends, and returns, as without a type."""
    source, reason, text = NONE[name]
    plain = sk.stream(list(source))
    plain.until_done()
    stream = sk.stream(list(source), output_type=Wind)
    stream.until_done()
    assert (stream.status, stream.error, stream.get_final_text()) == (plain.status, None, plain.get_final_text())
    with pytest.raises(sk.OutputError) as raised:
        stream.get_final_output()
    error = raised.value
    assert (error.reason, error.text) == (reason, text)
    assert list(error.messages) == list(stream.messages)
    restored = pickle.loads(pickle.dumps(error))
    assert (restored.reason, restored.text, str(restored)) == (error.reason, error.text, str(error))


@pytest.mark.parametrize(
    ("kind", "text", "cause"),
    [
        (Wind, '{"speed": "fast"}', msgspec.ValidationError),
        (Storm, '{"name": "a", "strength": 0}', pydantic.ValidationError),
        (Checked, '{"low": 2, "high": 1}', LookupError),
        (Wind, '{"speed": 1e}', type(None)),
    ],
    ids=["msgspec", "pydantic", "the application", "no JSON"],
)
def test_the_cause_of_an_invalid_output_is_the_validators_own_error(kind: Any, text: str, cause: type) -> None:
    with pytest.raises(sk.OutputError, match=r"speed|strength|above|malformed") as raised:
        sk.stream(answer(text), output_type=kind).get_final_output()
    assert raised.value.reason == "invalid"
    assert isinstance(raised.value.__cause__, cause)


def test_an_answer_that_was_cut_short_after_its_json_has_an_output() -> None:
    assert sk.stream(answer('{"speed": 1} and', finish="length"), output_type=Wind).get_final_output() == {"speed": 1}


@both_shells
@body
async def test_a_stream_that_failed_raises_its_own_error(face: Face) -> None:
    source = face.generator_of(answer('{"speed": 1}'), error=ConnectionError("gone"))
    stream = face.stream(source, output_type=Wind)
    with pytest.raises(sk.SourceError, match="gone"):
        await stream.get_final_output()
    assert stream.partial_output == {"speed": 1}


@both_shells
@body
async def test_a_text_that_was_withdrawn_is_no_output(face: Face) -> None:
    """Of two attempts with as many messages the second one's counts."""
    attempts = iter(
        [
            face.generator_of(answer('{"speed": 1')[:2], error=ConnectionError("gone")),
            face.generator_of(answer('{"speed": 2}')),
        ]
    )

    class Looking(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            seen.append(dict(self.stream.partial_output))

    seen: list[Any] = []
    stream = face.stream(lambda: next(attempts), Looking(), output_type=Wind, retry=sk.Retry(max_wait=0, restart=True))
    await stream.until_done()
    assert (seen[-1], stream.partial_output) == ({"speed": 2}, {"speed": 2})


@every_face
@body
async def test_our_own_cancel_leaves_what_had_come(face: Face) -> None:
    """An output that was complete is returned."""
    for text, closed in (('{"speed": 1}', True), ('{"speed": 1', False)):
        async with face.stream(face.generator_of(answer(text, size=100)), output_type=Wind) as stream:
            async for _ in stream.partial_outputs:
                stream.cancel()
            if closed:
                assert await stream.get_final_output() == {"speed": 1}
            else:
                with pytest.raises(sk.OutputError) as raised:
                    await stream.get_final_output()
                assert raised.value.reason == "incomplete"


# -- the elements of a list


@every_face
@body
async def test_elements_are_handed_out_as_they_close(face: Face) -> None:
    """Each before the next one begins, however many come in a piece."""
    text = '```\n[{"name": "a", "strength": 1}, {"name": "b]", "strength": 2},{"name": "c", "strength": 3}]\n```'
    for size in (1, 7, 200):
        got: list[Any] = []
        async with face.stream(face.generator_of(answer(text, size=size)), output_type=list[Storm]) as stream:
            async for item in stream.output_items():
                got.append(item)
                if size == 1:
                    assert len(stream.partial_output) == len(got)
            assert got == await stream.get_final_output()
        assert [one.name for one in got] == ["a", "b]", "c"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (list[int], "[1, -20 ,300]"),
        (list[str], '["a", "b\\n", ""]'),
        (list[bool | None], "[true,null,false]"),
        (list[list[int]], "[[1, 2], [], [3]]"),
        (list[Decimal], "[1.10, 2]"),
        (list[Rain | Snow], '[{"type": "Rain", "amount": 1}, {"type": "Snow", "amount": 2}]'),
        (list[date], '["2026-11-28"]'),
        (list[int], "[]"),
    ],
)
def test_elements_of_any_kind_are_read_from_their_own_text(kind: Any, text: str) -> None:
    for size in (1, 3, 100):
        with sk.stream(answer(text, size=size), output_type=kind) as stream:
            assert [*stream.output_items()] == stream.get_final_output()


def test_a_second_loop_goes_on_with_the_next_element() -> None:
    with sk.stream(answer("[1, 2, 3, 4]", size=100), output_type=list[int]) as stream:
        first = next(iter(stream.output_items()))
        assert [first, *stream.output_items()] == [1, 2, 3, 4]


@every_face
@body
async def test_an_element_of_another_type_raises_where_it_closes(face: Face) -> None:
    """Those before it were handed out, and the stream has not failed."""
    got: list[int] = []
    async with face.stream(face.generator_of(answer('[1, 2, "three", 4]')), output_type=list[int]) as stream:
        with pytest.raises(sk.OutputError, match="element 2") as raised:
            async for item in stream.output_items():
                got.append(item)
        assert (got, raised.value.reason) == ([1, 2], "invalid")
        assert isinstance(raised.value.__cause__, msgspec.ValidationError)
        assert stream.error is None
        await stream.until_done()


@every_face
@body
async def test_a_list_that_does_not_close_is_no_output(face: Face) -> None:
    """A loop that ends without an error has handed out all elements."""
    got: list[int] = []
    async with face.stream(face.generator_of(answer("[1, 2, 3", finish="length")), output_type=list[int]) as stream:
        with pytest.raises(sk.OutputError) as raised:
            async for item in stream.output_items():
                got.append(item)
    assert (got, raised.value.reason) == ([1, 2], "incomplete")


# -- a value that a provider is asked for in an object


@pytest.mark.parametrize(
    ("kind", "inner", "value"),
    [
        (int, "5", 5),
        (str, '"a"', "a"),
        (Unit, '"metric"', Unit.METRIC),
        (list[int], "[1, 2]", [1, 2]),
        (Weather | None, "null", None),
        (list[Storm], '[{"name": "a", "strength": 1}]', [Storm(name="a", strength=1)]),
        (Point, "[1, 2]", Point(1, 2)),
    ],
)
def test_a_wrapped_value_is_unwrapped_everywhere(kind: Any, inner: str, value: Any) -> None:
    """In what arrives, in the elements, and in the end."""
    text = f'{{"value": {inner}}}'
    with sk.stream(answer(text, size=1), output_type=OutputType(kind, wraps=True)) as stream:  # type: ignore[call-overload]
        seen = [partial for partial in stream.partial_outputs if partial is not None]
        assert not seen or seen[-1] == json.loads(inner)
        assert stream.get_final_output() == value
    if isinstance(value, list):
        with sk.stream(answer(text), output_type=OutputType(kind, wraps=True)) as stream:
            assert [*stream.output_items()] == value


def test_where_the_object_around_a_value_is_missing_the_error_says_so() -> None:
    """The model reads it, where it is asked again."""
    with pytest.raises(sk.OutputError, match=r'the answer has no JSON object \{"value": …\}') as raised:
        sk.stream(answer("[1, 2]"), output_type=OutputType(list[int], wraps=True)).get_final_output()  # type: ignore[call-overload]
    assert raised.value.reason == "missing"


Named = NewType("Named", Storm)


class Seen(NamedTuple):
    storm: Storm


STORM = '{"name": "Oslo", "strength": 1}'


@pytest.mark.parametrize(
    ("kind", "text"), [(Named, STORM), (list[Seen], f"[[{STORM}]]")], ids=["NewType", "NamedTuple"]
)
def test_pydantic_reads_what_has_one_of_its_types_inside(kind: Any, text: str) -> None:
    assert "Oslo" in repr(sk.stream(answer(text), output_type=kind).get_final_output())


def test_why_a_type_cannot_be_read_is_in_the_error() -> None:
    """In the words of the package that refuses it."""
    with pytest.raises(sk.UsageError, match=r"Unable to generate .* schema for .*socket") as raised:
        sk.stream(answer("{}"), output_type=dict[str, Storm | socket.socket])
    assert "For further information" not in str(raised.value)


def test_an_object_is_not_wrapped() -> None:
    assert not any(OutputType(kind, wraps=True).is_wrapped for kind in (Weather, Wind, Storm, Node, dict[str, int]))


# -- what it costs


def read_at_each_delta(size: int) -> None:
    class Reader(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            _ = self.stream.partial_output

    sk.stream(answer(json.dumps({"text": "word " * size, "n": [1] * size}), size=4), Reader()).until_done()


def test_reading_the_output_at_each_delta_is_linear() -> None:
    assert growth(read_at_each_delta, 20) < 2.2


def test_a_stream_with_a_type_costs_no_more_a_delta() -> None:
    """Counted are instructions of a whole stream, with more deltas and with fewer: what a type costs is the same for both."""

    def extra(count: int) -> int:
        text = json.dumps({"speed": 1, "text": "x" * count})
        typed = opcodes(lambda: sk.stream(answer(text, size=1), output_type=Wind).until_done())
        return typed - opcodes(lambda: sk.stream(answer(text, size=1)).until_done())

    extra(1)
    assert extra(400) - extra(100) < 100


def test_many_messages_are_looked_at_once_each() -> None:
    """A text that grows beside many calls."""

    def read(count: int) -> None:
        source: list[Any] = [e.TextDelta("text", "{")]
        for number in range(count):
            source += [e.ToolCallCreated(sk.ToolCallMessage(f"c{number}", name="f")), e.TextDelta("text", '"a')]
        with sk.stream(source, protocol="streamkit") as stream, pytest.raises(sk.IncompleteStreamError):
            for _ in stream:
                _ = stream.partial_output

    assert growth(read, 20) < 2.3


def test_an_output_that_nobody_reads_imports_nothing() -> None:
    """Neither what reads JSON in pieces, nor pydantic."""
    import subprocess
    import sys

    code = (
        "import sys, streamkit as sk\n"
        "sk.stream([], protocol='openai_chat').close()\n"
        "print([name for name in sys.modules if 'json_tree' in name or 'streams.output' in name or name == 'pydantic'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"
