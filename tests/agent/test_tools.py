"""Python functions as tools: their schemas, how they are called, and their outputs."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import functools
import json
import re
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, TypedDict

import anyio
import pydantic
import pytest

import streamkit as sk
from streamkit.agent import Tool, ToolContext, progress, tool
from streamkit.agent.tool_context import current_progress
from streamkit.agent.tools import parse_docstring
from streamkit.testing import ModelServer, Reply, ToolCall

from ..faces import Face, async_faces, body, both_shells, every_face, every_pair
from .parts import PNG, agent_on, every_provider, outputs_of


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclasses.dataclass
class Place:
    name: str
    height: float = 0.0


class Span(TypedDict):
    start: int
    end: int


def a(text: str) -> None: ...
def b(n: int = 3) -> None: ...
def c(flag: bool, ratio: float = 0.5) -> None: ...
def d(tags: list[str], counts: dict[str, int]) -> None: ...
def e(size: Literal["s", "l"] = "s") -> None: ...
def f(note: str | None = None) -> None: ...
def g(unit: Unit) -> None: ...
def h(place: Place, span: Span) -> None: ...
def i(anything, other=1) -> None: ...  # type: ignore[no-untyped-def]
def j(first: int, /, second: int, *, third: int = 3) -> tuple[int, int, int]:
    return first, second, third


ROOT = PurePosixPath("/")


def k(path: Path, to: PurePosixPath = ROOT) -> None: ...
def m(many: Annotated[int, "how many"], few: Annotated[int, "how few"] | None = None) -> None: ...
def n(note: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def o(unit: Unit = Unit.F) -> None: ...
def p(__x: int = 1, __class__: str = "") -> None: ...


# function -> its properties, and which are required
SCHEMAS: list[tuple[Any, dict[str, Any], list[str]]] = [
    (a, {"text": {"type": "string"}}, ["text"]),
    (b, {"n": {"type": "integer", "default": 3}}, []),
    (c, {"flag": {"type": "boolean"}, "ratio": {"type": "number", "default": 0.5}}, ["flag"]),
    (
        d,
        {
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        ["tags", "counts"],
    ),
    (e, {"size": {"enum": ["l", "s"], "default": "s"}}, []),
    (f, {"note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, []),
    (g, {"unit": {"$ref": "#/$defs/Unit"}}, ["unit"]),
    (h, {"place": {"$ref": "#/$defs/Place"}, "span": {"$ref": "#/$defs/Span"}}, ["place", "span"]),
    (i, {"anything": {}, "other": {"default": 1}}, ["anything"]),
    (lambda: None, {}, []),
    (k, {"path": {"type": "string", "format": "path"}, "to": {"type": "string", "format": "path"}}, ["path"]),
    (
        m,
        {
            "many": {"type": "integer", "description": "how many"},
            "few": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "how few"},
        },
        ["many"],
    ),
    (n, {"note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, []),
    (o, {"unit": {"$ref": "#/$defs/Unit", "default": "fahrenheit"}}, []),
    (p, {"__x": {"type": "integer", "default": 1}, "__class__": {"type": "string", "default": ""}}, []),
]


@pytest.mark.parametrize(("function", "properties", "required"), SCHEMAS)
def test_a_signature_is_a_schema(function: Any, properties: dict[str, Any], required: list[str]) -> None:
    """Annotations and defaults, in the signature's order. Further arguments are refused."""
    made = Tool(function, name="t")
    assert made.parameters["properties"] == properties
    assert [*made.parameters["properties"]] == [*properties]
    assert made.parameters.get("required", []) == required
    assert (made.parameters["type"], made.parameters["additionalProperties"]) == ("object", False)
    assert {*made.parameters.get("$defs", {})} == {
        ref["$ref"].rpartition("/")[2] for ref in properties.values() if "$ref" in ref
    }


# arguments -> what the function is called with, or None where it is not
CALLS: list[tuple[Any, str, Any]] = [
    (a, '{"text": "x"}', {"text": "x"}),
    (a, '{"text": 1}', None),
    (a, "{}", None),
    (a, '{"text": "x", "more": 1}', None),
    (a, '{"text": "x"', None),
    (a, '["x"]', None),
    (b, "", {}),
    (b, '{"n": "4"}', {"n": 4}),
    (b, '{"n": "four"}', None),
    (c, '{"flag": "true", "ratio": 1}', {"flag": True, "ratio": 1.0}),
    (e, '{"size": "m"}', None),
    (f, '{"note": null}', {"note": None}),
    (g, '{"unit": "celsius"}', {"unit": Unit.C}),
    (
        h,
        '{"place": {"name": "A"}, "span": {"start": 1, "end": 2}}',
        {"place": Place("A"), "span": Span(start=1, end=2)},
    ),
    (i, '{"anything": [1, {"x": null}]}', {"anything": [1, {"x": None}]}),
    (j, '{"third": 9, "second": 2, "first": 1}', {"first": 1, "second": 2, "third": 9}),
    (k, '{"path": "a/b"}', {"path": Path("a/b")}),
    (k, '{"path": 5}', None),
    (n, '{"note": null}', {"note": None}),
    (p, '{"__x": 2}', {"__x": 2}),
]


@pytest.mark.parametrize(("function", "arguments", "wanted"), CALLS)
def test_arguments_become_python_values(function: Any, arguments: str, wanted: Any) -> None:
    """Converted and checked. Where they do not fit, the error says why, and the function is not called."""
    made = Tool(function)
    if wanted is None:
        with pytest.raises(ValueError, match=f"invalid arguments for {made.name}: "):
            made.bind(arguments)
    else:
        assert made.bind(arguments).arguments == wanted


def test_each_kind_of_parameter_is_passed_as_it_is_declared() -> None:
    """Positional-only ones by place, keyword-only ones by name."""
    assert Tool(j).call('{"third": 9, "second": 2, "first": 1}') == (1, 2, 9)
    assert Tool(functools.partial(j, 7)).call('{"second": 2}') == (7, 2, 3)


class Counter:
    """Counts."""

    def up(self, by: int = 1) -> int:
        """Count up.

        Args:
            by: how far
        """
        return by

    async def wait(self) -> None: ...

    def __call__(self, to: int) -> int:
        """Count to it."""
        return to


def test_methods_and_objects_are_functions_too() -> None:
    """With their own names and docstrings."""
    up = Tool(Counter().up)
    assert (up.name, up.description, up.parameters["properties"]["by"]) == (
        "up",
        "Count up.",
        {"type": "integer", "description": "how far", "default": 1},
    )
    assert (Tool(Counter()).name, Tool(Counter()).description) == ("Counter", "Count to it.")
    assert [Tool(one).is_async for one in (Counter().wait, Counter().up)] == [True, False]


def rest_of(x: int) -> int:
    """What is left."""
    return x


def test_a_decorated_function_is_still_the_function() -> None:
    """With and without arguments of the decorator, and where it is called with the function."""

    @tool
    def plain(x: int) -> int:
        """Plain."""
        return x

    @tool(name="other_name", description="Said otherwise.", confirm=True)
    def named(x: int) -> int:
        return x

    called = tool(rest_of, name="rest", confirm=True, timeout=2)

    assert (plain(2), named(x=3), called(x=4)) == (2, 3, 4)
    assert (called.name, called.confirm, called.timeout) == ("rest", True, 2)
    assert (plain.name, plain.description, plain.confirm) == ("plain", "Plain.", False)
    assert (named.name, named.description, named.confirm) == ("other_name", "Said otherwise.", True)


def rest(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def untold(x: object) -> None: ...
def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def final(x: Final[int] = 3) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize("function", [rest, keywords, untold, unknown, final, Counter.up, 5, lambda: None])
def test_what_cannot_be_described_to_a_model_is_refused_at_once(function: Any) -> None:
    """When the tool is created."""
    with pytest.raises(sk.UsageError):
        Tool(function)


DOCSTRINGS = [
    ("", "", {}),
    ("One line.", "One line.", {}),
    ("One.\n\nMore\nof it.", "One.\n\nMore\nof it.", {}),
    (
        "One.\n\nArgs:\n    x: the x,\n        and more\n    y (int): the y\n\nReturns:\n    z: nothing",
        "One.",
        {"x": "the x, and more", "y": "the y"},
    ),
    ("One.\n\nArgs:\n    x: the x\n\nAfter it.", "One.\n\nAfter it.", {"x": "the x"}),
    (
        "One.\n\n:param x: the x\n    and more\n:param int y: the y\n:returns: z",
        "One.",
        {"x": "the x and more", "y": "the y"},
    ),
    ("One.\n\nRaises:\n    ValueError: never\n", "One.", {}),
    ("One.\n\nArgs:\n    *rest: all", "One.", {"rest": "all"}),
    ("One: not\na section.", "One: not\na section.", {}),
    (
        "One.\n\nMore of it.\n\nParameters\n----------\nx : int\n    the x,\n    and more\ny, z : str, optional\n    both\n\n"
        "Returns\n-------\nstr\n    nothing\n",
        "One.\n\nMore of it.",
        {"x": "the x, and more", "y": "both", "z": "both"},
    ),
    (
        "One.\n\n:param x: the x\n:type x: int\n:param y: the y\n:raises ValueError: never\n:return: z",
        "One.",
        {"x": "the x", "y": "the y"},
    ),
    ("One.\n\nArgs:\n    x: the x\n    garbage", "One.", {"x": "the x"}),
]


@pytest.mark.parametrize(("text", "summary", "parameters"), DOCSTRINGS)
def test_a_docstring_describes_the_parameters(text: str, summary: str, parameters: dict[str, str]) -> None:
    """In sections or fields. Descriptions of results and errors are left out."""
    assert parse_docstring(text) == (summary, parameters)


# -- pydantic's models


class Street(pydantic.BaseModel):
    name: str
    number: int = pydantic.Field(gt=0)


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: Street
    city: str = "Oslo"


def move(address: Address, others: list[Address] | None = None, at: Address = Address(street=Street(name="x", number=1))) -> None: ...  # fmt: skip  # noqa: B008
def near(
    place: Annotated[Address, pydantic.Field(description="the place")],
    radius: Annotated[int, pydantic.Field(description="metres")] = 5,
) -> None: ...


def test_pydantic_models_are_arguments() -> None:
    """Their schemas, with the descriptions and the types that they refer to, and checked values of them."""
    made = Tool(move)
    assert made.parameters["required"] == ["address"]
    assert {"Street"} <= {*made.parameters["$defs"]}
    assert '"$defs":' not in json.dumps(made.parameters["properties"])
    for reference in re.findall(r'"#/\$defs/(\w+)"', json.dumps(made.parameters)):
        assert reference in made.parameters["$defs"]
    bound = made.bind(
        '{"address": {"street": {"name": "A", "number": "3"}}, "others": [{"street": {"name": "B", "number": 4}}]}'
    )
    assert bound.arguments == {
        "address": Address(street=Street(name="A", number=3)),
        "others": [Address(street=Street(name="B", number=4))],
    }
    for wrong in ('{"address": {}}', '{"address": {"street": {"name": "A", "number": 0}}}', '{"address": 5}'):
        with pytest.raises(ValueError, match="invalid arguments for move: "):
            made.bind(wrong)
    properties = Tool(near).parameters["properties"]
    assert properties["radius"] == {"type": "integer", "description": "metres", "default": 5}
    assert properties["place"]["description"] == "the place"


def test_two_types_of_one_name_are_refused() -> None:
    """A reference could mean either."""
    other = pydantic.create_model("Street", lane=(int, ...))
    holder = pydantic.create_model("Holder", street=(other, ...))

    def both(address: Address, holder: holder) -> None: ...  # type: ignore[valid-type]

    both.__annotations__ = {"address": Address, "holder": holder}
    with pytest.raises(sk.UsageError, match="'Street'"):
        Tool(both)


# -- in a conversation


def failing() -> str:
    raise LookupError("nothing there")


def unsaid() -> object:
    return object()


def nothing() -> None:
    return None


def listing() -> list[Any]:
    return [1, Place("A"), {"x": None}]


def garbled() -> None:
    raise FileNotFoundError("no file \udcff")


class Stubborn:
    def model_dump(self, mode: str) -> None:
        raise RuntimeError("never")


def stubborn() -> Stubborn:
    return Stubborn()


OUTPUTS: list[tuple[Any, dict[str, Any] | str, str]] = [
    (nothing, {}, "null"),
    (listing, {}, '[1,{"name":"A","height":0.0},{"x":null}]'),
    (failing, {}, "Error: LookupError: nothing there"),
    (a, {"text": 1}, "Error: invalid arguments for a: Expected `str`, got `int` - at `$.text`"),
    (garbled, {}, "Error: FileNotFoundError: no file \ufffd"),
    (stubborn, {}, "Error: RuntimeError: never"),
    (unsaid, {}, "Error: a tool's output is text or what JSON can hold, not object"),
    (a, '{"text": ', "Error: invalid arguments for a: "),
]


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize(("function", "arguments", "told"), OUTPUTS)
@body
async def test_the_model_reads_the_output_or_the_error(
    face: Face, provider: str, function: Any, arguments: Any, told: str
) -> None:
    """Hooks receive an error as a warning as well. The stream continues."""
    with ModelServer([Reply(ToolCall(function.__name__, arguments)), Reply("I see.")]) as server:
        async with agent_on(face, server, provider, tools=[function]) as talker:
            handler = face.told()
            stream = await talker.say("Go.", handler)
        (output,) = outputs_of(server.requests[1]).values()
        body = server.requests[1].content.decode()
    assert output.startswith(told)
    message = next(m for m in stream.messages if m.type == "tool_output")
    failed = told.startswith("Error: ")
    assert (message.status, message.metadata.get("error")) == (("failed", True) if failed else ("completed", None))
    assert ("tool-failed" in [warning.code for warning in handler.of("on_warning")]) == failed
    assert ('"is_error":true' in body.replace(" ", "")) == (failed and provider == "anthropic")
    assert stream.status == "completed"


@both_shells
@body
async def test_the_model_reads_that_a_tool_does_not_exist(face: Face) -> None:
    """With the names of those that do."""
    with ModelServer([Reply(ToolCall("fly", {})), Reply("Then not.")]) as server:
        async with agent_on(face, server, tools=[nothing, {"name": "ask", "parameters": {}}]) as talker:
            stream = await talker.say("Go.")
        assert outputs_of(server.requests[1]) == {
            "call_1_0": "Error: there is no tool 'fly'; the available tools are: nothing, ask"
        }
    assert stream.status == "completed"


@both_shells
@body
async def test_a_tool_reports_progress(face: Face) -> None:
    """At once, as deltas of its output. The output then replaces them, and is all that the model reads."""
    seen: list[str] = []
    heard = threading.Event()

    def work(steps: int) -> str:
        """Work."""
        for step in range(steps):
            progress(f"{step + 1} of {steps}\n")
            assert heard.wait(10)  # the first is told while the tool still runs
        return "worked"

    def hear(handler: Any, delta: sk.ToolOutputDelta, snapshot: sk.ToolOutputMessage) -> None:
        seen.append(f"{'=' if delta.replace else '+'}{delta.value}")
        heard.set()

    with ModelServer([Reply(ToolCall("work", {"steps": 1})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[work]) as talker:
            stream = await talker.say("Go.", face.told(on_tool_output_delta=hear))
        assert outputs_of(server.requests[1]) == {"call_1_0": "worked"}
    assert seen == ["+1 of 1\n", "=worked"]
    assert list(stream.warnings) == []
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["worked"]


@every_face
@body
async def test_a_function_may_return_an_awaitable(face: Face) -> None:
    """An async agent awaits it; with a sync one it is an error."""

    async def work() -> str:
        return "worked"

    with ModelServer([Reply(ToolCall("later")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[Tool(lambda: work(), name="later")]) as talker:
            await talker.say("Go.")
        (told,) = outputs_of(server.requests[1]).values()
    assert told == "worked" if face.is_async else told.startswith("Error: ")


@async_faces
@body
async def test_an_async_tool_reports_progress(face: Face) -> None:
    """Like one in a thread."""
    heard = anyio.Event()

    async def work() -> str:
        progress("half")
        await heard.wait()
        return "worked"

    with ModelServer([Reply(ToolCall("work")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[work]) as talker:
            handler = face.told(on_tool_output_delta=lambda self, delta, snapshot: heard.set())
            await talker.say("Go.", handler)
    assert [delta.value for delta in handler.of("on_tool_output_delta")] == ["half", "worked"]


def test_progress_outside_of_a_tool_does_nothing() -> None:
    """So that a function can be called from anywhere."""
    progress("half")


@pytest.mark.slow
@both_shells
@body
async def test_unread_progress_is_bounded(face: Face) -> None:
    """Progress that was not read yet is joined, and none of it is lost."""
    count = 40_000
    done = threading.Event()

    def work() -> str:
        for _ in range(count):
            progress("x")
        done.set()
        return "worked"

    def wait(handler: Any, delta: sk.ToolOutputDelta, snapshot: sk.ToolOutputMessage) -> None:
        done.wait(10)

    with ModelServer([Reply(ToolCall("work")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[work]) as talker:
            handler = face.told(on_tool_output_delta=wait)
            await talker.say("Go.", handler)
    deltas = [delta for delta in handler.of("on_tool_output_delta") if not delta.replace]
    assert sum(len(delta.value) for delta in deltas) == count
    assert len(deltas) < 10


@async_faces
@body
async def test_progress_of_calls_side_by_side_is_bounded(face: Face) -> None:
    """Even if they alternate, each call has one unread delta."""
    count = 10_000
    tell_other: list[Any] = []
    ready, both = anyio.Event(), anyio.Event()

    async def first() -> str:
        tell_other.append(current_progress.get())
        ready.set()
        await both.wait()
        return "first"

    async def second() -> str:
        await ready.wait()
        for _ in range(count):
            progress("2")
            tell_other[0]("1")
        both.set()
        return "second"

    calls = [ToolCall("first"), ToolCall("second")]
    with ModelServer([Reply(*calls), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[first, second]) as talker:
            handler = face.told()
            await talker.say("Go.", handler)
    deltas = [delta for delta in handler.of("on_tool_output_delta") if not delta.replace]
    assert sum(len(delta.value) for delta in deltas) == 2 * count
    assert len(deltas) < 10


@every_face
@body
async def test_an_interrupt_inside_a_tool_ends_the_stream(face: Face) -> None:
    """It is not an error of the tool, and no request tells the model about it."""

    class Interrupt(BaseException):
        """As KeyboardInterrupt, which an event loop takes for itself."""

    def interrupted() -> None:
        raise Interrupt

    with ModelServer([Reply(ToolCall("interrupted")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[interrupted]) as talker:
            stream = talker.stream("Go.")
            with pytest.raises(Interrupt):
                await stream.until_done()
        assert len(server.requests) == 1
    assert stream.ended


@both_shells
@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError("mine")], ids=lambda error: type(error).__name__
)
@body
async def test_what_a_tool_raises_is_its_error(face: Face, error: BaseException) -> None:
    """Also what would end a program or a task: the stream goes on, and so does its caller."""

    def leaving() -> None:
        raise error

    async def leaving_too() -> None:
        raise error

    tools = [leaving, *([leaving_too] if face.is_async else [])]
    with ModelServer([Reply(*(ToolCall(one.__name__) for one in tools)), Reply("I see.")]) as server:
        async with agent_on(face, server, tools=tools) as talker:
            stream = await talker.say("Go.")
        outputs = outputs_of(server.requests[1])
    assert {*outputs.values()} == {f"Error: {type(error).__name__}: {error}"}
    assert await stream.get_final_text() == "I see."


@every_face
@body
async def test_a_tool_may_have_a_timeout(face: Face) -> None:
    """The model reads that its time was over. What the function still does counts for nothing; the other calls are made."""
    released = threading.Event()
    ended: list[str] = []

    @tool(timeout=0.05)
    def stuck() -> str:
        released.wait(10)
        ended.append("stuck")
        return "late"

    @tool(timeout=10)
    def quick() -> str:
        return "quick"

    @tool(timeout=0.05)
    async def slow() -> str:
        try:
            await anyio.sleep(60)
        finally:
            ended.append("slow")
        return "late"

    tools = [stuck, quick, *([slow] if face.is_async else [])]
    with ModelServer([Reply(*(ToolCall(one.name) for one in tools)), Reply("I see.")]) as server:
        async with agent_on(face, server, tools=tools) as talker:
            handler = face.told()
            stream = await talker.say("Go.", handler)
            released.set()
        outputs = outputs_of(server.requests[1])
    late = "Error: the tool took longer than 0.05 seconds and"
    assert outputs["call_1_0"] == f"{late} could not be stopped, and may still run"
    assert outputs["call_1_1"] == "quick"
    if face.is_async:
        assert outputs["call_1_2"] == f"{late} was stopped"
        assert ended[0] == "slow"
    assert [warning.code for warning in handler.of("on_warning")] == ["tool-failed"] * (1 + face.is_async)
    assert await stream.get_final_text() == "I see."


@every_face
@body
async def test_a_tool_past_its_time_ends_where_it_reports_progress(face: Face) -> None:
    """Its thread is not left behind then."""
    ended = threading.Event()

    @tool(timeout=1)  # in which its thread begins
    def busy() -> None:
        try:
            while True:
                progress(".")
                time.sleep(0.001)
        finally:
            ended.set()

    with ModelServer([Reply(ToolCall("busy")), Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[busy]) as talker:
            await talker.say("Go.")
    assert await face.in_thread(lambda: ended.wait(10))


@pytest.mark.parametrize("seconds", [0, -1, "5"])
def test_a_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    """Anything else is refused when the tool is made."""
    with pytest.raises(sk.UsageError, match="timeout"):
        Tool(nothing, timeout=seconds)


@both_shells
@every_provider
@body
async def test_a_tool_may_return_images(face: Face, provider: str, tmp_path: Path) -> None:
    """Alone or in a list with text: the model sees them after the output. A missing file is the tool's error."""
    path = tmp_path / "plot.png"
    path.write_bytes(base64.b64decode(PNG))

    def draw() -> sk.ImageMessage:
        return sk.ImageMessage(format="base64.png", content=PNG)

    def look() -> list[Any]:
        return ["a plot", sk.ImageMessage(format="path", content=str(path)), {"n": 1}]

    def lost() -> sk.ImageMessage:
        return sk.ImageMessage(format="path", content="/nowhere.png")

    with ModelServer([Reply(ToolCall("draw"), ToolCall("look"), ToolCall("lost")), Reply("I see.")]) as server:
        async with agent_on(face, server, provider, tools=[draw, look, lost]) as talker:
            handler = face.told()
            await talker.say("Go.", handler)
        request = server.requests[1]
    outputs = outputs_of(request)
    assert outputs["call_1_0"] == "[image]"
    assert outputs["call_1_1"] == f'a plot\n[image: {path}]\n{{"n":1}}'
    assert outputs["call_1_2"].startswith("Error: the image '/nowhere.png' cannot be read: ")
    assert request.content.count(PNG.encode()) == 2
    images = [message for message in talker.messages if message.type == "image"]
    assert [(m.role, m.call_id, m.content) for m in images] == [
        ("computer", "call_1_0", PNG),
        ("computer", "call_1_1", PNG),
    ] or face.is_async
    assert len(handler.of("on_image_file_done")) == 2


@both_shells
@every_provider
@body
async def test_long_outputs_of_tools_are_cut_for_the_model(face: Face, provider: str) -> None:
    """As those of code are. The conversation has all of it."""

    def long() -> str:
        return "x" * 1_000_000

    with ModelServer([Reply(ToolCall("long")), Reply("I see.")]) as server:
        async with agent_on(face, server, provider, tools=[long], output_limit=500) as talker:
            await talker.say("Go.")
        (output,) = outputs_of(server.requests[1]).values()
    assert 450 < len(output) <= 500
    assert "characters left out" in output
    assert len(talker.messages[2].content) == 1_000_000


@both_shells
@body
async def test_a_tool_may_know_its_call(face: Face) -> None:
    """In a parameter with the annotation, which the model does not see."""
    seen: list[Any] = []

    def first(n: int, context: ToolContext) -> None:
        seen.append((n, context.call_id, context.call.name, context.stream.messages[0].content))

    def second(context: ToolContext | None = None) -> None:
        seen.append(context.call_id if context is not None else None)

    calls = Reply(ToolCall("first", {"n": 1}), ToolCall("second"))
    with ModelServer([calls, Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[first, second]) as talker:
            await talker.say("Go.")
        (one, two) = (tool["function"]["parameters"] for tool in server.requests[0].body["tools"])
    assert ([*one["properties"]], [*two["properties"]]) == (["n"], [])
    assert sorted(seen, key=str) == [(1, "call_1_0", "first", '{"n": 1}'), "call_1_1"]
    Tool(second).call("")
    assert seen[-1] is None
    with pytest.raises(sk.UsageError, match="ToolContext"):
        Tool(first).call('{"n": 1}')
