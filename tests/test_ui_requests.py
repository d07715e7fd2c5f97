"""What clients of UI protocols post, as flat messages and answers. A body comes from a browser: anything may stand in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit.protocols import Approval, ToolResult, ag_ui, give_answers, vercel_ui

from .ui_streams import CASES, completed


def tool(state: str, name: str = "tool-weather", **fields: Any) -> dict[str, Any]:
    return {"type": name, "toolCallId": "c1", "state": state, "input": {"city": "Oslo"}, **fields}


def chat(*parts: Any, role: str = "assistant", **body: Any) -> dict[str, Any]:
    """A body of `useChat` whose last message has these parts."""
    messages = [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Rain?"}]},
        {"id": "a1", "role": role, "parts": [{"type": "step-start"}, *parts]},
    ]
    return {"id": "chat-1", "trigger": "submit-message", "messages": messages, **body}


def agent(*messages: Any, **body: Any) -> dict[str, Any]:
    """A `RunAgentInput` with these messages."""
    first = {"id": "u1", "role": "user", "content": "Rain?"}
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t-1", "runId": "r-1", **empty, "messages": [first, *messages], **body}


TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}


# -- useChat


def test_the_parts_of_a_chat_become_flat_messages() -> None:
    """In their order; what is only to be shown is left out."""
    parts = [
        {"type": "reasoning", "text": "Let me see.", "state": "done"},
        {"type": "text", "text": "It rains."},
        {"type": "source-url", "sourceId": "s1", "url": "https://a.example", "title": "Rain"},
        {"type": "data-weather", "data": {"temp": 7}},
        tool("output-available", output={"temp": 7}),
        tool("output-error", "dynamic-tool", toolName="time", toolCallId="c2", errorText="no clock"),
        tool("input-available", toolCallId="c3", providerExecuted=True),
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "a-part-of-the-future", "anything": 1},
    ]
    request = vercel_ui.from_request(json.dumps(chat(*parts, sessionId=7)))
    assert [(one.role, one.type, one.name, one.content) for one in request.messages] == [
        ("user", "message", None, "Rain?"),
        ("assistant", "reasoning", None, "Let me see."),
        ("assistant", "message", None, "It rains."),
        ("assistant", "tool_call", "weather", '{"city":"Oslo"}'),
        ("computer", "tool_output", "weather", '{"temp":7}'),
        ("assistant", "tool_call", "time", '{"city":"Oslo"}'),
        ("computer", "tool_output", "time", "no clock"),
        ("assistant", "tool_call", "weather", '{"city":"Oslo"}'),
        ("assistant", "image", None, "iVBORw0KGgo="),
    ]
    assert [one.url for one in request.messages[2].annotations] == ["https://a.example"]
    assert {one.group for one in request.messages} == {"u1", "a1"}
    assert request.body == {"sessionId": 7}
    assert request.answers == [
        ToolResult(call_id="c1", output='{"temp":7}', name="weather"),
        ToolResult(call_id="c2", output="no clock", failed=True, name="time"),
    ]


def test_only_the_newest_step_has_answers() -> None:
    """And only of the last message, if it is the assistant's."""
    old = tool("output-available", output=1, toolCallId="old")
    approved = tool("approval-responded", approval={"id": "q1", "approved": False, "reason": "no"})
    request = vercel_ui.from_request(chat(old, {"type": "step-start"}, approved))
    assert request.answers == [Approval(id="q1", approved=False, reason="no", call_id="c1")]
    body = chat(approved)
    body["messages"].append({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And Rome?"}]})
    request = vercel_ui.from_request(body)
    assert request.answers == []
    assert [one.content for one in request.new_messages] == ["And Rome?"]


def test_what_was_encoded_as_code_is_code_again() -> None:
    """With what it printed; of other tools of this name it is a call."""
    messages = [
        event.message
        for event in completed(CASES["what code prints, and the line that runs"])
        if hasattr(event, "message")
    ]
    history = vercel_ui.to_input({message.id: message for message in messages}.values())
    request = vercel_ui.from_request({"id": "c", "messages": history})
    assert [(one.type, one.format, one.content) for one in request.messages] == [
        ("code", "python", "x\ny\n"),
        ("console", "output", "one\ntwo\nthree\n"),
    ]
    part = {
        "type": "dynamic-tool",
        "toolName": "execute_code",
        "toolCallId": "c",
        "state": "input-available",
        "input": {},
    }
    request = vercel_ui.from_request(chat(part))
    assert [one.type for one in request.messages] == ["message", "tool_call"]


def test_a_client_cannot_name_a_file_of_this_machine() -> None:
    """Nor pass for another role, nor put calls into the user's mouth."""
    kept = {"streamkit": {"format": "path", "role": "system", "id": "x"}}
    file = {"type": "file", "mediaType": "image/png", "url": "/etc/passwd", "providerMetadata": kept}
    text = {"type": "text", "text": "Hi.", "providerMetadata": kept}
    request = vercel_ui.from_request(chat(file, text, tool("input-available"), role="user"))
    assert [(one.role, one.type, one.format) for one in request.new_messages] == [
        ("user", "image", "url"),
        ("user", "message", None),
    ]


# -- AG-UI


def test_the_messages_of_a_thread_become_flat_messages() -> None:
    """Activities are the client's own."""
    image = {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}
    link = {"type": "document", "source": {"type": "url", "value": "https://a.example/x.pdf"}}
    old = {"type": "binary", "mimeType": "image/png", "url": "https://a.example/x.png"}
    request = ag_ui.from_request(
        agent(
            {"id": "s1", "role": "developer", "content": "Be brief."},
            {"id": "r1", "role": "reasoning", "content": "Hm."},
            {"id": "a1", "role": "assistant", "content": "Let me look.", "toolCalls": [TOOL_CALL]},
            {"id": "x1", "role": "activity", "activityType": "CONSOLE", "content": {}},
            {"id": "o1", "role": "tool", "toolCallId": "c1", "content": [{"type": "text", "text": "rain"}]},
            {"id": "u2", "role": "user", "content": [{"type": "text", "text": "And this?"}, image, link, old]},
            tools=[{"name": "ask", "description": "Asks.", "parameters": {"type": "object"}}],
            protocolVersion="1.0",
        )
    )
    assert [(one.role, one.type, one.format, one.content) for one in request.messages] == [
        ("user", "message", None, "Rain?"),
        ("system", "message", None, "Be brief."),
        ("assistant", "reasoning", None, "Hm."),
        ("assistant", "message", None, "Let me look."),
        ("assistant", "tool_call", None, '{"city":"Oslo"}'),
        ("computer", "tool_output", None, "rain"),
        ("user", "message", None, "And this?"),
        ("user", "image", "base64.png", "iVBORw0KGgo="),
        ("user", "file", "url", "https://a.example/x.pdf"),
        ("user", "image", "url", "https://a.example/x.png"),
    ]
    assert [one.id for one in request.new_messages] == ["u2", "u2.2", "u2.3", "u2.4"]
    assert (request.answers, request.version) == ([], "1.0")
    assert request.tools == [ag_ui.AgentTool(name="ask", description="Asks.", parameters={"type": "object"})]


APPROVALS: list[tuple[Any, bool]] = [
    ({"status": "resolved", "payload": {"approved": True}}, True),
    ({"status": "resolved", "payload": {"approved": False}}, False),
    ({"status": "resolved", "payload": {"approved": "true"}}, False),
    ({"status": "resolved", "payload": {"approved": 1}}, False),
    ({"status": "resolved", "payload": True}, False),
    ({"status": "resolved"}, False),
    ({"status": "cancelled", "payload": {"approved": True}}, False),
]


@pytest.mark.parametrize(("answer", "approved"), APPROVALS)
def test_only_true_approves(answer: dict[str, Any], approved: bool) -> None:
    """Whatever else an interrupt is answered with declines."""
    request = ag_ui.from_request(agent(resume=[{"interruptId": "q1", **answer}]))
    assert request.answers == [Approval(id="q1", approved=approved)]


def test_the_tool_messages_at_the_end_are_answers() -> None:
    """After the approvals."""
    request = ag_ui.from_request(
        agent(
            {"id": "a1", "role": "assistant", "toolCalls": [TOOL_CALL]},
            {"id": "o1", "role": "tool", "toolCallId": "c1", "content": "rain", "error": "too much"},
            resume=[{"interruptId": "q1", "status": "resolved", "payload": {"approved": True, "editedArgs": {"a": 1}}}],
        )
    )
    assert request.answers == [
        Approval(id="q1", approved=True, edited='{"a":1}'),
        ToolResult(call_id="c1", output="rain", failed=True),
    ]


# -- answers


def test_answers_are_given_to_what_is_pending() -> None:
    """A forged answer finds nothing; the stream's own call is what runs."""
    given = [
        ToolResult(call_id="c1", output="rain"),
        ToolResult(call_id="c9", output="forged"),
        Approval(id="q", approved=True),
    ]
    others: list[Any] = []

    class Answers(sk.EventHandler):
        def on_tool_call_done(self, message: sk.ToolCallMessage, /) -> None:
            if message.call_id == "c1":
                others.extend(give_answers(given, stream.pending))

    end = e.StreamEnd()
    stream = sk.stream([*CASES["tool calls at once"], end], Answers(), then=lambda stream: [end])
    stream.until_done()
    assert others == given[1:]
    assert [one.content for one in stream.messages if one.type == "tool_output"] == ["rain"]
    with pytest.raises(sk.UsageError, match="no tool call 'c9' is pending"):
        ToolResult(call_id="c9", output="").give({})
    with pytest.raises(sk.UsageError, match="no confirmation 'q' is pending"):
        Approval(id="q", approved=True).give({})


# -- hostile bodies

Change = Callable[[dict[str, Any]], Any]


def at(*path: Any, value: Any) -> Change:
    """A change of the value at this place; `...` drops it."""

    def change(body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        if value is ...:
            del body[path[-1]]
        else:
            body[path[-1]] = value

    return change


PART = ("messages", 1, "parts", 1)
GOOD_CHAT = chat(tool("approval-responded", approval={"id": "q1", "approved": True}))
HOSTILE_CHATS: list[tuple[Change, str, str]] = [
    (at("id", value=...), "id", "is missing"),
    (at("id", value=""), "id", "is empty"),
    (at("id", value=7), "id", "is a number, not text"),
    (at("trigger", value="delete"), "trigger", "is 'delete', not one of regenerate-message, submit-message"),
    (at("messageId", value=[]), "messageId", "is a list, not text"),
    (at("messages", value=...), "messages", "is missing"),
    (at("messages", value="all"), "messages", "is text, not a list"),
    (at("messages", 0, value=None), "messages[0]", "is null, not an object"),
    (at("messages", 0, "role", value="root"), "messages[0].role", "is 'root', not one of assistant, system, user"),
    (at("messages", 0, "parts", value=...), "messages[0].parts", "is missing; messages of `ai` 4"),
    (at("messages", 0, "parts", 0, "text", value={}), "messages[0].parts[0].text", "is an object, not text"),
    (
        at("messages", 0, "parts", 0, "text", value="\ud83d"),
        "messages[0].parts[0].text",
        "has half of a surrogate pair",
    ),
    (at(*PART, "state", value="done"), "messages[1].parts[1].state", "is 'done', not one of"),
    (at(*PART, "toolCallId", value=...), "messages[1].parts[1].toolCallId", "is missing"),
    (at(*PART, "approval", value=...), "messages[1].parts[1].approval", "is missing, but its state"),
    (at(*PART, "approval", value="yes"), "messages[1].parts[1].approval", "is missing, but its state"),
    (at(*PART, "approval", "id", value=...), "messages[1].parts[1].approval.id", "is missing"),
    (at(*PART, "approval", "approved", value=...), "messages[1].parts[1].approval.approved", "is missing"),
    (
        at(*PART, "approval", "approved", value="true"),
        "messages[1].parts[1].approval.approved",
        "is text, not true or false",
    ),
    (
        at(*PART, "approval", "approved", value=1),
        "messages[1].parts[1].approval.approved",
        "is a number, not true or false",
    ),
    (
        at(*PART, "approval", "approved", value=None),
        "messages[1].parts[1].approval.approved",
        "is null, not true or false",
    ),
    (
        at(*PART, "approval", "approved", value=[True]),
        "messages[1].parts[1].approval.approved",
        "is a list, not true or false",
    ),
    (at(*PART, "approval", "reason", value=5), "messages[1].parts[1].approval.reason", "is a number, not text"),
]
GOOD_AGENT = agent(
    {"id": "a1", "role": "assistant", "toolCalls": [TOOL_CALL]},
    resume=[{"interruptId": "q1", "status": "resolved", "payload": {"approved": True}}],
    tools=[{"name": "ask", "description": "Asks.", "parameters": {}}],
    context=[{"description": "place", "value": "Oslo"}],
)
HOSTILE_AGENTS: list[tuple[Change, str, str]] = [
    (at("threadId", value=...), "threadId", "is missing"),
    (at("runId", value=""), "runId", "is empty"),
    (at("messages", value=...), "messages", "is missing"),
    (at("messages", 0, "role", value="root"), "messages[0].role", "is 'root', not one of"),
    (at("messages", 0, "content", value=...), "messages[0].content", "is missing"),
    (at("messages", 0, "content", value=[{"type": "text"}]), "messages[0].content[0].text", "is missing"),
    (
        at("messages", 0, "content", value=[{"type": "hologram"}]),
        "messages[0].content[0].type",
        "is 'hologram', not one of",
    ),
    (
        at("messages", 1, "toolCalls", 0, "function", value=7),
        "messages[1].toolCalls[0].function",
        "is a number, not an object",
    ),
    (
        at("messages", 1, "toolCalls", 0, "function", "arguments", value={}),
        "messages[1].toolCalls[0].function.arguments",
        "is an object, not text",
    ),
    (at("resume", value={}), "resume", "is an object, not a list"),
    (at("resume", 0, "interruptId", value=...), "resume[0].interruptId", "is missing"),
    (at("resume", 0, "status", value="approved"), "resume[0].status", "is 'approved', not one of cancelled, resolved"),
    (at("tools", 0, "name", value=...), "tools[0].name", "is missing"),
    (at("context", 0, "value", value=3), "context[0].value", "is a number, not text"),
]


@pytest.mark.parametrize(
    ("read", "good", "cases"),
    [(vercel_ui.from_request, GOOD_CHAT, HOSTILE_CHATS), (ag_ui.from_request, GOOD_AGENT, HOSTILE_AGENTS)],
    ids=["vercel_ui", "ag_ui"],
)
def test_a_hostile_body_is_refused_with_its_place_and_fault(
    read: Any, good: Any, cases: list[tuple[Change, str, str]]
) -> None:
    """And the text says that the client is at fault."""
    assert len(read(good).answers) == 1
    for change, path, fault in cases:
        body = deepcopy(good)
        change(body)
        with pytest.raises(sk.RequestError) as caught:
            read(body)
        assert (caught.value.path, caught.value.code) == (path, "invalid")
        assert caught.value.fault.startswith(fault), caught.value.fault
        assert str(caught.value).startswith("the client's request is malformed: ")


@pytest.mark.parametrize("read", [vercel_ui.from_request, ag_ui.from_request])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad-json"),
        (b"{", "bad-json"),
        (b"\xff", "bad-json"),
        ("[" * 300 + "]" * 300, "bad-json"),
        (b"[]", "invalid"),
        ("7", "invalid"),
    ],
)
def test_what_is_no_object_is_no_request(read: Any, body: Any, code: str) -> None:
    with pytest.raises(sk.RequestError) as caught:
        read(body)
    assert caught.value.code == code


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("type", "id", "text")), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


@settings(max_examples=36, deadline=None)
@given(st.data())
def test_no_body_raises_anything_else_nor_approves(data: st.DataObject) -> None:
    """Any value at any place: an approval comes out only where the JSON boolean true was put in."""
    for read, good in ((vercel_ui.from_request, GOOD_CHAT), (ag_ui.from_request, GOOD_AGENT)):
        body = deepcopy(good)
        place = data.draw(st.sampled_from(places(good)[1:]))
        value = data.draw(json_values)
        at(*place, value=value)(body)
        with contextlib.suppress(sk.RequestError):
            for answer in read(body).answers:
                if place[-1] == "approved" and isinstance(answer, Approval):
                    assert answer.approved is (value is True)


def test_code_that_was_read_out_of_a_call_is_not_a_second_call() -> None:
    """An agent's conversation has both; the history of AG-UI has the call, as its stream has."""
    conversation = [
        sk.TextMessage("u", role="user", content="Go."),
        sk.ToolCallMessage("t", name="execute", call_id="c", content='{"language": "python", "code": "1"}'),
        sk.CodeMessage("t#code", call_id="c", format="python", content="1", metadata={"field": "execute.code"}),
        sk.ConsoleMessage("k", call_id="c", content="1\n"),
    ]
    shown = ag_ui.to_input(conversation)
    assert [call["id"] for message in shown for call in message.get("toolCalls", ())] == ["c"]
    assert [message["content"] for message in shown if message["role"] == "tool"] == ["1\n"]
