"""The conversation as a model reads it: every call with its output, in an order that all providers accept."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit.agent.apis.chat import outputs_after_calls
from streamkit.agent.history import UNRECORDED, model_view
from streamkit.agent.model_request import ModelRequest
from streamkit.agent.requests import Provider
from streamkit.testing import ModelServer, Reply

from .parts import PNG, PROVIDERS


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "type": "message", "content": text}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "type": "message", "content": text, **more}


def call(id: str, name: str = "f", content: str = "{}", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "type": "tool_call", "name": name, "call_id": id, "content": content, **more}


def executes(id: str, source: str, **more: Any) -> list[dict[str, Any]]:
    content = f'{{"language": "python", "code": "{source}"}}'
    field = {"field": "execute.code"}
    return [
        call(id, "execute", content, **more),
        {**ran(source), "call_id": id, "metadata": field, **more},
    ]


def output(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": "computer", "type": "tool_output", "name": "f", "call_id": id, "content": text, **more}


def ran(source: str, language: str = "python") -> dict[str, Any]:
    return {"role": "assistant", "type": "code", "format": language, "content": source}


def console(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "computer", "type": "console", "format": "output", "content": text, **more}


def image(**more: Any) -> dict[str, Any]:
    return {"role": "computer", "type": "image", "format": "base64.png", "content": PNG, **more}


HTML = {"role": "computer", "type": "code", "format": "html", "content": "<b>hi</b>"}
STEP = {"run_id": "r", "step_id": "s"}
NEXT = {"run_id": "r", "step_id": "t"}

# name -> the messages, and (type, content) of the view
VIEWS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "nothing": ([], []),
    "talk": ([user("a"), says("b"), user("c")], [("message", "a"), ("message", "b"), ("message", "c")]),
    "the fragment of an answer that failed": (
        [user("a"), says("b", status="failed"), user("c"), says("d", status="cancelled")],
        [("message", "a"), ("message", "c"), ("message", "d")],
    ),
    "a call and its output": (
        [call("1"), output("1", "x"), says("y")],
        [("tool_call", "{}"), ("tool_output", "x"), ("message", "y")],
    ),
    "a call without an answer": (
        [call("1"), user("and?")],
        [("tool_call", "{}"), ("tool_output", UNRECORDED), ("message", "and?")],
    ),
    "the last call": ([call("1")], [("tool_call", "{}"), ("tool_output", UNRECORDED)]),
    "a call that was cut off": ([call("1", status="cancelled"), user("and?")], [("message", "and?")]),
    "its code": (
        [*executes("1", "x", status="incomplete"), user("and?")],
        [("message", "and?")],
    ),
    "parallel calls, answered in another order": (
        [call("1", **STEP), call("2", **STEP), output("2", "b", **STEP), output("1", "a", **STEP), says("c", **NEXT)],
        [("tool_call", "{}"), ("tool_call", "{}"), ("tool_output", "a"), ("tool_output", "b"), ("message", "c")],
    ),
    "a call that is answered before the next of its answer": (
        [call("1", **STEP), output("1", "a", **STEP), says("and", **STEP), call("2", **STEP), output("2", "b", **STEP)],
        [("tool_call", "{}"), ("message", "and"), ("tool_call", "{}"), ("tool_output", "a"), ("tool_output", "b")],
    ),
    "rounds": (
        [call("1", **STEP), output("1", "a", **STEP), call("2", **NEXT), output("2", "b", **NEXT)],
        [("tool_call", "{}"), ("tool_output", "a"), ("tool_call", "{}"), ("tool_output", "b")],
    ),
    "code of a call": (
        [*executes("1", "x"), console("1\n", call_id="1"), console("2\n", call_id="1"), says("y")],
        [("tool_call", "python: x"), ("tool_output", "1\n2\n"), ("message", "y")],
    ),
    "silent code": (
        [*executes("1", "x"), console("", call_id="1")],
        [("tool_call", "python: x"), ("tool_output", "(no output)")],
    ),
    "code that was not run": ([*executes("1", "x")], [("tool_call", "python: x"), ("tool_output", UNRECORDED)]),
    "code that was interrupted": (
        [*executes("1", "x"), console("1\n", call_id="1", status="cancelled")],
        [("tool_call", "python: x"), ("tool_output", "1\n\n(interrupted)")],
    ),
    "code of Open Interpreter's": (
        [user("go"), ran("x"), console("1\n"), says("y"), ran("z", "shell"), console(""), says("w")],
        [
            ("message", "go"),
            *(("tool_call", "python: x"), ("tool_output", "1\n"), ("message", "y")),
            *(("tool_call", "shell: z"), ("tool_output", "(no output)"), ("message", "w")),
        ],
    ),
    "code of Open Interpreter's, not run": (
        [ran("x"), user("no")],
        [("tool_call", "python: x"), ("tool_output", UNRECORDED), ("message", "no")],
    ),
    "a console without code": (
        [console("1\n"), user("what?")],
        [("message", "The computer shows:\n1\n"), ("message", "what?")],
    ),
    "an image of code": (
        [*executes("1", "x"), image(call_id="1"), says("y")],
        [
            *(("tool_call", "python: x"), ("tool_output", "(no output)")),
            *(("message", "This image was displayed:"), ("image", PNG), ("message", "y")),
        ],
    ),
    "two images of Open Interpreter's": (
        [ran("x"), image(), console("between"), image(format="base64")],
        [
            *(("tool_call", "python: x"), ("tool_output", "between")),
            *(("message", "These 2 images were displayed:"), ("image", PNG), ("image", PNG)),
        ],
    ),
    "images come after all outputs": (
        [*executes("1", "x", **STEP), call("2", **STEP), image(call_id="1", **STEP), output("2", "b", **STEP)],
        [
            *(("tool_call", "python: x"), ("tool_call", "{}"), ("tool_output", "(no output)"), ("tool_output", "b")),
            *(("message", "This image was displayed:"), ("image", PNG)),
        ],
    ),
    "what cannot be shown is named": (
        [ran("x"), HTML, image(format="path", content="/tmp/a.png"), console("end")],
        [("tool_call", "python: x"), ("tool_output", "hi\n[displayed: image: /tmp/a.png]\nend")],
    ),
    "ids that come again": (
        [call("0"), output("0", "a"), user("b"), call("0"), output("0", "c")],
        [("tool_call", "{}"), ("tool_output", "a"), ("message", "b"), ("tool_call", "{}"), ("tool_output", "c")],
    ),
    "code that a provider ran": (
        [
            *(call("1", **STEP), {**ran("z"), "call_id": "ci", **STEP}, console("9", call_id="ci", **STEP)),
            *(output("1", "a", **STEP), says("b", **NEXT)),
        ],
        [("tool_call", "{}"), ("code", "z"), ("console", "9"), ("tool_output", "a"), ("message", "b")],
    ),
    "a call that a provider ran": (
        [call("s", provider_executed=True), output("s", "found"), says("b")],
        [("tool_call", "{}"), ("tool_output", "found"), ("message", "b")],
    ),
    "half a thought": ([{"role": "assistant", "type": "reasoning", "content": "x", "status": "cancelled"}], []),
    "an output of no call": (
        [output("9", "x"), user("a")],
        [("message", "The output of a tool:\nx"), ("message", "a")],
    ),
    "an output without an id": (
        [call("9"), {**output("9", "x"), "call_id": None}, user("a")],
        [("tool_call", "{}"), ("tool_output", "x"), ("message", "a")],
    ),
    "an image of no call": (
        [user("a"), image(), user("b")],
        [
            *(("message", "a"), ("message", "This image was displayed:"), ("image", PNG)),
            ("message", "b"),
        ],
    ),
    "an image of another call": (
        [*executes("1", "x"), image(call_id="0"), user("b")],
        [
            *(("tool_call", "python: x"), ("tool_output", UNRECORDED)),
            *(("message", "This image was displayed:"), ("image", PNG), ("message", "b")),
        ],
    ),
    "a table": (
        [*executes("1", "x"), {**HTML, "metadata": {"text": "   a\n0  1"}, "call_id": "1"}],
        [("tool_call", "python: x"), ("tool_output", "   a\n0  1\n")],
    ),
    "a table without its text": (
        [ran("x"), {**HTML, "content": "<table><tr><th>a<th>b<tr><td>1<td>2</table>"}],
        [("tool_call", "python: x"), ("tool_output", "a\tb\n1\t2\n")],
    ),
    "a document without any text": (
        [ran("x"), {**HTML, "content": "<svg></svg>"}],
        [("tool_call", "python: x"), ("tool_output", "[displayed: html]\n<svg></svg>\n")],
    ),
    "a script": (
        [ran("x"), {**HTML, "format": "javascript", "content": "alert(1)"}],
        [("tool_call", "python: x"), ("tool_output", "[displayed: javascript]\nalert(1)\n")],
    ),
    "a progress bar": (
        [ran("x"), console("\r0% \r10%\r100%\nabc\rX\r\nend\n")],
        [("tool_call", "python: x"), ("tool_output", "100%\nXbc\nend\n")],
    ),
}


def brief(message: sk.Message) -> tuple[str, str]:
    if isinstance(message, sk.ToolCallMessage) and message.name == "execute":
        arguments = json.loads(message.content)
        return message.type, f"{arguments['language']}: {arguments['code']}"
    return message.type, message.content


@pytest.mark.parametrize(("given", "wanted"), VIEWS.values(), ids=VIEWS)
def test_the_view_pairs_calls_with_outputs(given: list[dict[str, Any]], wanted: list[tuple[str, str]]) -> None:
    """All calls of a round come before their outputs, with nothing else in between."""
    messages = [sk.Message.from_dict(message) for message in given]
    before = [message.to_dict() for message in messages]
    assert [brief(message) for message in model_view(messages, limit=1000)] == wanted
    assert [message.to_dict() for message in messages] == before  # it is a view


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("given", [given for given, _ in VIEWS.values()], ids=VIEWS)
def test_every_call_has_one_output_with_every_provider(provider: str, given: list[dict[str, Any]]) -> None:
    """With its id, after it, and before anything that is not an output or call of its round."""
    view = model_view([sk.Message.from_dict(message) for message in given], limit=1000)
    with ModelServer(Reply("I see.")) as server, _client(provider, server) as client:
        sk.stream(Provider(client, provider).request(ModelRequest(client, "m", view, "", [], {}, 1))).until_done()
        sent = server.requests[0].body
    calls, outputs = _pairs(provider, sent["input"] if provider == "openai_responses" else sent["messages"])
    assert calls == outputs
    assert len(set(calls)) == len(calls)


def _client(provider: str, server: ModelServer) -> Any:
    if provider == "anthropic":
        return anthropic.Anthropic(base_url=server.root_url, api_key="any")
    return openai.OpenAI(base_url=server.url, api_key="any")


def _pairs(provider: str, wire: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The ids of all calls and of all outputs. On Chat and Anthropic each output directly follows the calls' message."""
    if provider == "openai_responses":
        calls = [item["call_id"] for item in wire if item["type"] == "function_call"]
        return calls, [item["call_id"] for item in wire if item["type"] == "function_call_output"]
    calls, outputs = [], []
    open_calls: set[str] = set()
    for item in wire:
        if provider == "openai_chat":
            made = [call["id"] for call in item.get("tool_calls") or []]
            given = [item["tool_call_id"]] if item["role"] == "tool" else []
        else:
            made = [block["id"] for block in item["content"] if block["type"] == "tool_use"]
            given = [block["tool_use_id"] for block in item["content"] if block["type"] == "tool_result"]
        assert given or not open_calls, "something stands between calls and their outputs"
        open_calls = (open_calls | set(made)) - set(given)
        calls += made
        outputs += given
    assert not open_calls
    return calls, outputs


def test_long_output_is_cut_in_the_view_only() -> None:
    """The view has its head, its tail, and how much is missing. So it is with what a function returned."""
    text = "".join(f"{n}\n" for n in range(10_000))
    given = [*executes("1", "x"), console(text, call_id="1"), call("2"), output("2", text)]
    messages = [sk.Message.from_dict(message) for message in given]
    view = model_view(messages, limit=500)
    assert len(view[1].content) == 500
    assert view[1].content.startswith("0\n1\n")
    assert view[1].content.endswith("9998\n9999\n")
    assert "characters left out" in view[1].content
    assert view[3].content == view[1].content
    assert messages[2].content == messages[4].content == text


def test_a_model_that_takes_no_images_reads_that_there_were_some() -> None:
    """In the output of the code that displayed them."""
    messages = [sk.Message.from_dict(message) for message in [*executes("1", "x"), image(call_id="1")]]
    view = model_view(messages, limit=500, images=False)
    assert [brief(message) for message in view] == [
        ("tool_call", "python: x"),
        ("tool_output", "[displayed: image]\n"),
    ]


def test_the_users_images_are_told_in_words_as_well() -> None:
    """Where the model takes none: what they were, with the text that came with them."""
    attached = {"role": "user", "type": "image", "format": "base64.png", "content": PNG}
    messages = [
        sk.Message.from_dict(message)
        for message in (
            {**attached, "metadata": {"path": "plot.png"}},
            {**attached, "format": "url", "content": "https://x.org/a.png"},
            *executes("1", "x"),
            image(call_id="1", metadata={"text": "<a figure>"}),
        )
    ]
    view = model_view(messages, limit=500, images=False)
    assert [brief(message) for message in view] == [
        ("message", "[image: plot.png]"),
        ("message", "[image: https://x.org/a.png]"),
        ("tool_call", "python: x"),
        ("tool_output", "[displayed: image] <a figure>\n"),
    ]


def test_the_view_has_edited_code_as_it_ran() -> None:
    """In the call, with a note that it was edited."""
    first, second = executes("1", "x")
    second = {**second, "content": "y", "metadata": {**second["metadata"], "edited": True}}
    view = model_view(
        [sk.Message.from_dict(message) for message in [first, second, console("1", call_id="1")]], limit=500
    )
    assert brief(view[0]) == ("tool_call", "python: y")
    assert view[1].content == "(The user edited the code before it ran; the call above shows the edited code.)\n1"


_STEPS: list[dict[str, Any]] = [{}, STEP, NEXT, {"run_id": "q", "step_id": "s"}]


@st.composite
def anything(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages of all kinds in any order, with ids that come again."""
    out: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 12))):
        id = draw(st.sampled_from(["1", "2", ""]))
        step = draw(st.sampled_from(_STEPS))
        status = draw(st.sampled_from(["completed", "completed", "cancelled"]))
        bare = {} if not id else {"call_id": id}
        kinds = [
            [user("a")],
            [says("b", **step)],
            [call(id, **step, status=status)],
            executes(id, "x", **step, status=status),
            [output(id, "c", **step)],
            [console("d", **bare, **step, status=status)],
            [image(**bare, **step)],
            [{**ran("x"), **bare, **step}],
            [call(id, provider_executed=True, **step)],
            [{**HTML, **bare, **step}],
        ]
        out += draw(st.sampled_from(kinds))
    return out


@pytest.mark.slow
@given(anything(), st.sampled_from(PROVIDERS))
@settings(max_examples=100, deadline=None)
def test_any_conversation_can_be_sent(given: list[dict[str, Any]], provider: str) -> None:
    """To every provider: no message raises, and each call has one output, where the provider requires it."""
    view = model_view([sk.Message.from_dict(message) for message in given], limit=1000)
    wire = sk.to_input(view, provider)
    calls, outputs = _pairs(provider, outputs_after_calls(wire) if provider == "openai_chat" else wire)
    assert sorted(calls) == sorted(outputs)
    assert len(set(calls)) == len(calls)
    said = sum(message["type"] == "message" and message["role"] == "user" for message in given)
    assert sum(message.content == "a" for message in view) == said
