"""What a provider sent for the way back returns to it byte for byte; another gets what it can take, and what is left out is
said."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.messages import ReasoningMessage, TextMessage, ToolCallMessage, ToolOutputMessage
from streamkit.protocols.openai_responses import Decoder as ResponsesDecoder
from streamkit.protocols.request_content import LeftOut

from .. import strict_servers as strict
from ..recorded import each_recording, in_a_loop, own_recordings
from ..telling import tell_bytes, tell_items

WEATHER = {"city": "Oslo"}


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 7 °C"


def saved(messages: Sequence[sk.Message]) -> list[sk.Message]:
    """The messages of a conversation that was saved as JSON and loaded."""
    return [sk.Message.from_dict(json.loads(json.dumps(message.to_dict()))) for message in messages]


def relayed(messages: Sequence[sk.Message]) -> list[sk.Message]:
    """The messages as another stream has them that read this one's events as canonical items."""
    items = [{"type": "message_done", "message": message.to_dict()} for message in messages]
    return list(tell_items(protocols.find("streamkit").Decoder, items).engine.messages.all)


def again(messages: Sequence[sk.Message], protocol: str, report: Callable[[LeftOut], object]) -> list[Any]:
    """The input of these messages, which is the same after saving and relaying."""
    direct = sk.to_input(messages, protocol, report=report)
    assert sk.to_input(saved(messages), protocol) == direct
    assert sk.to_input(relayed(messages), protocol) == direct
    return direct


# -- every recording


def _payloads(path: Path) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data:").strip() for line in path.read_text("utf-8").splitlines()]
    found = [protocols.values.parse_json(line) for line in lines if line.startswith("{")]
    return [item for item in found if isinstance(item, dict)]


@each_recording("openai-responses", complete=True)
def test_each_item_of_a_response_goes_back_as_it_came(path: Path) -> None:
    payloads = _payloads(path)
    received = [item["item"] for item in payloads if item.get("type") == "response.output_item.done"]
    left_out: list[LeftOut] = []
    story = tell_bytes(ResponsesDecoder, [path.read_bytes()])
    sent = again(story.engine.messages.all, "openai_responses", left_out.append)
    assert sent == received
    assert left_out == []


@each_recording("openai-chat", complete=True)
def test_the_reasoning_of_a_chat_goes_back_as_it_came(path: Path) -> None:
    """Under the key that it came under, with the pieces joined."""
    deltas = [
        delta
        for item in _payloads(path)
        for choice in item.get("choices") or ()
        if choice.get("index", 0) == 0 and isinstance(delta := choice.get("delta"), dict)
    ]
    story = tell_bytes(protocols.find("openai_chat").Decoder, [path.read_bytes()])
    left_out: list[LeftOut] = []
    sent = again(story.engine.messages.all, "openai_chat", left_out.append)
    if any(left.message.type == "reasoning" for left in left_out):
        return  # the answer was cut, so that there is nothing but reasoning
    for key in ("reasoning_content", "reasoning"):
        received = "".join(delta.get(key) or "" for delta in deltas)
        assert "".join(message.get(key, "") for message in sent) == received
    pieces = [piece for delta in deltas for piece in delta.get("reasoning_details") or ()]
    details = [detail for message in sent for detail in message.get("reasoning_details", ())]
    for key in ("text", "signature", "data"):
        assert "".join(x.get(key) or "" for x in details) == "".join(x.get(key) or "" for x in pieces)
    assert len(details) == len({(x.get("index"), x["type"]) for x in pieces})


@each_recording("anthropic-messages", complete=True)
def test_each_block_of_a_message_goes_back_as_it_came(path: Path) -> None:
    """But for texts of nothing but white space, which the API refuses, and calls that were cut."""
    sent = again(
        tell_bytes(protocols.find("anthropic").Decoder, [path.read_bytes()]).engine.messages.all, "anthropic", print
    )
    blocks = [block for turn in sent for block in turn["content"]]
    assert blocks == _received_blocks(_payloads(path))


def _received_blocks(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    blocks: dict[tuple[int, int], dict[str, Any]] = {}
    inputs: dict[tuple[int, int], str] = {}
    answer = 0
    for item in items:
        place = (answer, item.get("index", 0))
        match item:
            case {"type": "message_start", "message": message}:
                answer += 1
                blocks |= {(answer, index): dict(block) for index, block in enumerate(message.get("content") or ())}
            case {"type": "content_block_start", "content_block": block}:
                blocks[place] = dict(block)
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}:
                inputs[place] = inputs.get(place, "") + piece
            case {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": citation}}:
                blocks[place]["citations"] = [*(blocks[place].get("citations") or ()), citation]
            case {"type": "content_block_delta", "delta": {"type": "compaction_delta", **values}}:
                blocks[place] |= values
            case {"type": "content_block_delta", "delta": delta}:
                for key in delta.keys() & {"text", "thinking", "signature"}:
                    blocks[place][key] = blocks[place].get(key, "") + delta[key]
            case _:
                pass
    for place, text in inputs.items():
        if text:
            blocks[place]["input"] = protocols.values.parse_json(text)
    return [
        block
        for block in blocks.values()
        if not (block["type"] == "text" and not block["text"].strip()) and block.get("input", {}) is not None
    ]


# -- Responses

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed-1"}
STORED_REASONING = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}
OPEN_REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
OPEN_REASONING |= {"content": [{"type": "reasoning_text", "text": "I look."}], "encrypted_content": None}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": json.dumps(WEATHER),
    "namespace": "weather",
}
SERVER_ITEMS: dict[str, dict[str, Any]] = {
    "mcp_list_tools": {"id": "mcpl_1", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
    "mcp_call": {
        "id": "mcp_1",
        "status": "completed",
        "approval_request_id": None,
        "arguments": '{"q": 1}',
        "error": None,
        "name": "t",
        "output": "found",
        "server_label": "s",
    },
    "web_search_call": {"id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    "file_search_call": {"id": "fs_1", "status": "completed", "queries": ["q"], "results": [{"file_id": "f"}]},
    "code_interpreter_call": {
        "id": "ci_1",
        "status": "completed",
        "code": "print(1)",
        "container_id": "k",
        "outputs": [{"type": "logs", "logs": "1\n"}],
    },
    "image_generation_call": {"id": "ig_1", "status": "completed", "result": "iVBORw0K", "size": "1024x1024"},
    "tool_search_call": {"id": "ts_1", "status": "completed", "arguments": {"goal": "g"}, "call_id": None}
    | {"execution": "server"},
    "tool_search_output": {"id": "to_1", "status": "completed", "tools": [{"type": "function"}], "call_id": None}
    | {"execution": "server"},
    "shell_call": {
        "id": "sh_1",
        "status": "completed",
        "call_id": "sh",
        "action": {"commands": ["ls"], "max_output_length": 9, "timeout_ms": None},
        "environment": {"type": "container_reference", "container_id": "k"},
    },
    "shell_call_output": {
        "id": "so_1",
        "status": "completed",
        "call_id": "sh",
        "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "compaction": {"id": "cmp_1", "encrypted_content": "sealed-2", "created_by": "m"},
    "program": {"id": "prg_1", "call_id": "p", "code": "f()", "fingerprint": "seal"},
    "program_output": {"id": "po_1", "call_id": "p", "result": "1", "status": "completed"},
    "additional_tools": {"id": "at_1", "role": "developer", "tools": [{"type": "function", "name": "g"}]},
    "computer_call_output": {"id": "co_1", "call_id": "cc", "output": {"type": "computer_screenshot"}},
    "a_type_of_next_year": {"id": "x_1", "secret": {"a": [1, None, {"b": 0.5}]}},
}
ALL_SERVER_ITEMS = [{"type": type, **item} for type, item in SERVER_ITEMS.items()]


def answer_text(id: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": id, "type": "message", "status": "completed", "content": [part], "role": "assistant"}


@contextmanager
def ask_agent(server: strict.StrictServer, protocol: str, **options: Any) -> Iterator[sk.Agent]:
    kind: Any = anthropic.Anthropic if protocol == "anthropic" else openai.OpenAI
    with kind(base_url=server.url, api_key="k", max_retries=0) as client:
        yield sk.Agent(client, model="m", protocol=protocol, tools=[get_weather], **options)


def run_through(agent: sk.Agent, path: Path) -> str:
    """Two questions, with the conversation saved and loaded in between. Returns the last answer."""
    agent.stream("Is it warm?").until_done()
    agent.save(path)
    agent.load(path)
    return agent.stream("And now?").get_final_text()


RESPONSES = [
    pytest.param([REASONING], {}, id="encrypted reasoning"),
    pytest.param([STORED_REASONING], {}, id="reasoning that the provider stored"),
    pytest.param([OPEN_REASONING], {}, id="reasoning in the open"),
    pytest.param([REASONING, *ALL_SERVER_ITEMS], {}, id="after every kind of item"),
]


@pytest.mark.parametrize(("before", "options"), RESPONSES)
def test_an_agent_returns_items_to_the_responses_api(
    before: list[dict[str, Any]], options: dict[str, Any], tmp_path: Path
) -> None:
    """Unchanged, in each later request."""
    answers = [[*before, CALL], [answer_text("msg_2", "7 °C.")], [answer_text("msg_3", "Yes.")]]
    bodies = [strict.response_events(f"resp_{number}", *items) for number, items in enumerate(answers)]
    with (
        strict.StrictServer(bodies, strict.check_responses(answers)) as server,
        ask_agent(server, "openai_responses") as agent,
    ):
        assert run_through(agent, tmp_path / "c.json") == "Yes."
        assert server.refusals == []
        received = [item for item in server.requests[-1]["input"] if item.get("id")]
    assert received == [*answers[0], *answers[1]]


def test_reasoning_that_nobody_stored_is_left_out_and_said() -> None:
    """Without it the ids of its answer are left out as well: the API would look for the reasoning."""
    answers = [[STORED_REASONING, CALL]]
    events = strict.response_events("resp_1", *answers[0], store=False)
    messages = list(tell_items(ResponsesDecoder, events).engine.messages.all)
    messages.append(ToolOutputMessage("o", call_id="call_1", content="7"))
    left_out: list[LeftOut] = []
    items = sk.to_input(messages, "openai_responses", report=left_out.append)
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]
    assert strict.check_responses(answers, stored=False)({"input": items}) is None
    assert [str(left) for left in left_out] == [
        "reasoning 'rs_1' was left out: the provider did not store it, and it is not encrypted"
    ]


def test_an_item_without_the_reasoning_that_it_needs_is_left_out() -> None:
    """Somebody took the reasoning out of the conversation."""
    search = {"type": "web_search_call", **SERVER_ITEMS["web_search_call"]}
    answers = [[REASONING, search], [{**REASONING, "id": "rs_2"}, CALL]]
    events = [strict.response_events(f"resp_{n}", *items) for n, items in enumerate(answers)]
    told = [tell_items(ResponsesDecoder, each).engine.messages.all for each in events]
    messages = [m for m in itertools.chain(*told) if m.type != "reasoning"]
    messages.append(ToolOutputMessage("o", call_id="call_1", content="7"))
    left_out: list[LeftOut] = []
    items = sk.to_input(messages, "openai_responses", report=left_out.append)
    assert strict.check_responses(answers)({"input": items}) is None
    assert [left.reason for left in left_out] == ["the reasoning before it is not among the messages"]


def test_outputs_of_calls_that_the_provider_ran_are_none_of_ours() -> None:
    """The recipe for a request with `previous_response_id`: the outputs alone."""
    items = [*ALL_SERVER_ITEMS, CALL]
    messages = list(tell_items(ResponsesDecoder, strict.response_events("resp_1", *items)).engine.messages.all)
    messages.append(ToolOutputMessage("o", call_id="call_1", content="7"))
    outputs = [message for message in messages if message.type == "tool_output"]
    assert len(outputs) > 4
    left_out: list[LeftOut] = []
    assert sk.to_input(outputs, "openai_responses", report=left_out.append) == [
        {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    ]
    assert len(left_out) == len(outputs) - 1
    for protocol in ("openai_chat", "anthropic"):
        found = json.dumps(sk.to_input(outputs, protocol))
        assert "call_1" in found
        assert "found" not in found


def test_what_one_answer_brought_is_not_mixed_with_another() -> None:
    """Some servers count the ids of items anew in each response."""
    asked = [strict.response_events(f"r{n}", answer_text("msg_1", text)) for n, text in enumerate(("a", "b"))]
    messages = [m for events in asked for m in tell_items(ResponsesDecoder, events).engine.messages.all]
    assert [item["content"][0]["text"] for item in sk.to_input(messages, "openai_responses")] == ["a", "b"]


def test_a_changed_text_goes_back_changed() -> None:
    """The application may redact what it sends."""
    (message,) = tell_items(
        ResponsesDecoder, strict.response_events("r", answer_text("msg_1", "secret"))
    ).engine.messages.all
    changed = sk.Message.from_dict({**message.to_dict(), "content": "***"})
    assert sk.to_input([changed], "openai_responses") == [answer_text("msg_1", "***")]


def test_the_output_of_a_programs_call_says_so() -> None:
    """The API wants its caller back."""
    caller = {"type": "program", "caller_id": "p"}
    call = {**CALL, "caller": caller}
    messages = list(tell_items(ResponsesDecoder, strict.response_events("resp_1", call)).engine.messages.all)
    messages.append(ToolOutputMessage("o", call_id="call_1", content="7"))
    assert sk.to_input(messages, "openai_responses")[-1]["caller"] == caller


# -- Chat Completions

TOOL_CALL = {"index": 0, "id": "call_1", "type": "function"}
TOOL_CALL |= {"function": {"name": "get_weather", "arguments": json.dumps(WEATHER)}}
SIGNATURE = {"extra_content": {"google": {"thought_signature": "sealed"}}}
DETAILS = [
    {"type": "reasoning.text", "text": "I look.", "signature": "s1", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "sealed", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
]
BLOCKS = [
    {"type": "thinking", "thinking": "I look.", "signature": "s1"},
    {"type": "redacted_thinking", "data": "sealed"},
    {"type": "thinking", "thinking": "Again.", "signature": "s2"},
]
THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "I look."}]}]


def demands(key: str, wanted: Any, refusal: str) -> Callable[[Mapping[str, Any]], str | None]:
    """A server that refuses an assistant's message with calls without this value."""
    return lambda message: None if message.get(key) == wanted else refusal


def demands_signature(message: Mapping[str, Any]) -> str | None:
    found = message["tool_calls"][0].get("extra_content")
    refusal = "Function call is missing a thought_signature in functionCall parts."
    return None if found == SIGNATURE["extra_content"] else refusal


CHATS: dict[str, tuple[list[dict[str, Any]], Callable[[Mapping[str, Any]], str | None], list[str]]] = {
    "DeepSeek": (
        [{"reasoning_content": "I "}, {"reasoning_content": "look."}, {"tool_calls": [TOOL_CALL]}],
        demands(
            "reasoning_content",
            "I look.",
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        ["reasoning_content"],
    ),
    "Moonshot": (
        [{"reasoning_content": "I look."}, {"content": "So:"}, {"tool_calls": [TOOL_CALL]}],
        demands(
            "reasoning_content",
            "I look.",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        ),
        ["reasoning_content"],
    ),
    "Groq": (
        [{"reasoning": "I look."}, {"tool_calls": [TOOL_CALL]}],
        demands("reasoning", "I look.", "the reasoning is missing"),
        ["reasoning"],
    ),
    "Gemini": ([{"tool_calls": [{**TOOL_CALL, **SIGNATURE}]}], demands_signature, []),
    "OpenRouter": (
        [
            {"reasoning": "I ", "reasoning_details": [{**DETAILS[0], "text": "I ", "signature": None}]},
            {"reasoning": "look.", "reasoning_details": [{**DETAILS[0], "text": "look.", "signature": None}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "s1", "index": 0}]},
            {"content": "So:"},
            {"reasoning_details": [DETAILS[1]]},
            {"tool_calls": [TOOL_CALL]},
        ],
        demands("reasoning_details", DETAILS, "Invalid `signature` in `thinking` block"),
        ["reasoning", "reasoning_details"],
    ),
    "LiteLLM": (
        [
            {"reasoning_content": "I ", "thinking_blocks": [{**BLOCKS[0], "thinking": "I ", "signature": ""}]},
            {"reasoning_content": "look.", "thinking_blocks": [{**BLOCKS[0], "thinking": "look.", "signature": ""}]},
            {"thinking_blocks": [{**BLOCKS[0], "thinking": ""}]},
            {"thinking_blocks": [BLOCKS[1]]},
            {"reasoning_content": "Again.", "thinking_blocks": [{**BLOCKS[2], "signature": ""}]},
            {"thinking_blocks": [{**BLOCKS[2], "thinking": ""}]},
            {"tool_calls": [TOOL_CALL]},
        ],
        demands("thinking_blocks", BLOCKS, "Expected `thinking` or `redacted_thinking`, but found `tool_use`."),
        ["reasoning_content", "thinking_blocks"],
    ),
    "Mistral": (
        [{"content": THOUGHT}, {"content": "So:"}, {"tool_calls": [TOOL_CALL]}],
        demands("content", [*THOUGHT, {"type": "text", "text": "So:"}], "the thinking is missing"),
        [],
    ),
    "GitHub Copilot": (
        [{"reasoning_text": "I look."}, {"reasoning_opaque": "sealed"}, {"tool_calls": [TOOL_CALL]}],
        demands("reasoning_opaque", "sealed", "the reasoning is missing"),
        ["reasoning_text", "reasoning_opaque"],
    ),
}


@pytest.mark.parametrize("server_name", CHATS)
def test_an_agent_returns_what_a_chat_server_wants_back(server_name: str, tmp_path: Path) -> None:
    """In the next request, and after the conversation was saved."""
    deltas, required, allowed = CHATS[server_name]
    bodies = [
        strict.chat_chunks(*deltas, finish_reason="tool_calls"),
        strict.chat_chunks({"content": "7 °C."}),
        strict.chat_chunks({"content": "Yes."}),
    ]
    with (
        strict.StrictServer(bodies, strict.check_chat(required, allowed)) as server,
        ask_agent(server, "openai_chat") as agent,
    ):
        assert run_through(agent, tmp_path / "c.json") == "Yes."
        assert server.refusals == []


@pytest.mark.parametrize("server_name", CHATS)
def test_what_a_chat_server_wants_back_is_the_same_however_it_is_kept(server_name: str) -> None:
    """Saved, relayed, and read as Chat Completions from a stream of ours."""
    deltas, required, allowed = CHATS[server_name]
    chat = protocols.find("openai_chat")
    story = tell_items(chat.Decoder, strict.chat_chunks(*deltas, finish_reason="tool_calls"))
    (message,) = again(story.engine.messages.all, "openai_chat", print)
    assert required(message) is None
    assert message.keys() <= {"role", "content", "tool_calls", *allowed}


def test_a_call_without_reasoning_does_not_break_a_server_that_wants_it_with_each() -> None:
    """Moonshot and DeepSeek refuse a conversation in which one of the calls has none."""
    chat = protocols.find("openai_chat")
    told = [
        tell_items(chat.Decoder, strict.chat_chunks(*deltas, finish_reason="tool_calls")).engine.messages.all
        for deltas in ([{"reasoning_content": "I look."}, {"tool_calls": [TOOL_CALL]}], [{"tool_calls": [TOOL_CALL]}])
    ]
    output = ToolOutputMessage("o", call_id="call_1", content="7")
    first, _, second, _ = sk.to_input([*told[0], output, *told[1], output], "openai_chat")
    assert first["reasoning_content"] == "I look."
    assert second["reasoning_content"] == " "
    (alone, _) = sk.to_input([*told[1], output], "openai_chat")
    assert "reasoning_content" not in alone


@pytest.mark.parametrize(
    ("host", "keys"),
    [
        (None, {"reasoning_content", "extra_content"}),
        ("models.example.org", {"reasoning_content", "extra_content"}),
        ("api.openai.com", set()),
        ("me.openai.azure.com", set()),
        ("api.deepseek.com", {"reasoning_content"}),
        ("generativelanguage.googleapis.com", {"extra_content"}),
    ],
)
def test_a_server_that_refuses_what_others_want_back_does_not_get_it(host: str | None, keys: set[str]) -> None:
    """And it is said."""
    chat = protocols.find("openai_chat")
    deltas = [{"reasoning_content": "I look."}, {"tool_calls": [{**TOOL_CALL, **SIGNATURE}]}]
    messages = tell_items(chat.Decoder, strict.chat_chunks(*deltas, finish_reason="tool_calls")).engine.messages.all
    left_out: list[LeftOut] = []
    (message,) = sk.to_input(messages, "openai_chat", host=host, report=left_out.append)
    found = {*message, *message["tool_calls"][0]} & {"reasoning_content", "extra_content"}
    assert found == keys
    assert len(left_out) == 2 - len(keys)


# -- Anthropic Messages

THINKING = {"type": "thinking", "thinking": "I look.", "signature": "s1"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": WEATHER}
SERVER_BLOCKS = [
    {"type": "redacted_thinking", "data": "sealed"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "sealed"}],
    },
    {"type": "compaction", "content": "So far.", "encrypted_content": "sealed"},
]


@pytest.mark.parametrize("before", [[THINKING], [THINKING, *SERVER_BLOCKS]], ids=["thinking", "all"])
def test_an_agent_returns_blocks_to_the_messages_api(before: list[dict[str, Any]], tmp_path: Path) -> None:
    """Unchanged, with the result right after its call."""
    answers = [[*before, TOOL_USE], [{"type": "text", "text": "7 °C."}], [{"type": "text", "text": "Yes."}]]
    reasons = ["tool_use", "end_turn", "end_turn"]
    bodies = [
        strict.anthropic_events(f"msg_{n}", *blocks, stop_reason=reason)
        for n, (blocks, reason) in enumerate(zip(answers, reasons, strict=True))
    ]
    with (
        strict.StrictServer(bodies, strict.check_anthropic(answers)) as server,
        ask_agent(server, "anthropic") as agent,
    ):
        assert run_through(agent, tmp_path / "c.json") == "Yes."
        assert server.refusals == []


def test_an_agent_stays_in_the_container_in_which_code_waits() -> None:
    """Code that calls a tool of ours waits for its result in a container, which the next request has to name."""
    bodies = [
        strict.anthropic_events("msg_1", TOOL_USE, stop_reason="tool_use"),
        strict.anthropic_events("msg_2", {"type": "text", "text": "7 °C."}),
    ]
    bodies[0][-2]["delta"]["container"] = {"id": "container_1", "expires_at": "2030-01-01T00:00:00Z"}
    with (
        strict.StrictServer(bodies, strict.check_anthropic([[TOOL_USE]])) as server,
        ask_agent(server, "anthropic") as agent,
    ):
        assert agent.stream("Is it warm?").get_final_text() == "7 °C."
        assert [request.get("container") for request in server.requests] == [None, "container_1"]


# -- another provider


def _responses() -> list[sk.Message]:
    return list(tell_items(ResponsesDecoder, strict.response_events("r", REASONING, CALL)).engine.messages.all)


def _chat() -> list[sk.Message]:
    chunks = strict.chat_chunks(
        {"reasoning_content": "I look."}, {"tool_calls": [TOOL_CALL]}, finish_reason="tool_calls"
    )
    return list(tell_items(protocols.find("openai_chat").Decoder, chunks).engine.messages.all)


def _anthropic() -> list[sk.Message]:
    events = strict.anthropic_events("m", THINKING, {**TOOL_USE, "id": "call_1"}, stop_reason="tool_use")
    return list(tell_items(protocols.find("anthropic").Decoder, events).engine.messages.all)


SOURCES: dict[str, Callable[[], list[sk.Message]]] = {
    "openai_responses": _responses,
    "openai_chat": _chat,
    "anthropic": _anthropic,
}


@pytest.mark.parametrize(
    ("source", "target"), [(a, b) for a in SOURCES for b in SOURCES if a != b], ids=lambda name: str(name)
)
def test_another_provider_gets_the_call_without_the_reasoning(source: str, target: str) -> None:
    """Which is said."""
    messages = [*SOURCES[source](), ToolOutputMessage("o", call_id="call_1", content="7")]
    left_out: list[LeftOut] = []
    items = again(messages, target, left_out.append)
    assert [left.message.type for left in left_out] == ["reasoning"]
    assert "I look." not in json.dumps(items)
    assert json.dumps(items).count("call_1") == 2
    assert not any(item.get("id") for item in items)


@pytest.mark.parametrize(
    "ids",
    [
        ["functions.get_weather:0"],
        ["call_1|fc_1", "call_1"],
        ["a.b", "a:b", "a_b", "a_b_2"],
        ["Stra\u00dfe"],
        ["call_1", "toolu-2"],
        [""],
        ["call", ""],
    ],
)
def test_the_messages_api_gets_ids_that_it_takes_whoever_gave_them(ids: list[str]) -> None:
    """It refuses a request with other characters. Each call has an id of its own, which its result names."""
    calls: list[sk.Message] = [ToolCallMessage(id, call_id=id, name="f", content="{}", group="m") for id in ids]
    outputs = [ToolOutputMessage(f"{id}-output", call_id=id, content=f"of {id}") for id in ids]
    assistant, user = sk.to_input([*calls, *outputs], "anthropic")
    sent = [block["id"] for block in assistant["content"]]
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in sent)
    assert len({*sent}) == len(ids)
    assert [(block["tool_use_id"], block["content"][0]["text"]) for block in user["content"]] == [
        *zip(sent, [f"of {id}" for id in ids], strict=True)
    ]
    assert [id for id in ids if re.fullmatch("[a-zA-Z0-9_-]+", id, re.ASCII)] == [id for id in sent if id in ids]


def test_what_is_left_out_is_said_in_words() -> None:
    """The report takes a value that can be printed."""
    said: list[str] = []
    messages = [
        TextMessage("t", content="hi"),
        ReasoningMessage("r", content="hm"),
        ToolCallMessage("c", name="f", status="incomplete"),
        ToolOutputMessage("o", call_id="c", content="x", metadata={"block_type": "web_search_tool_result"}),
        TextMessage("t2", content="other", choice=1),
    ]
    sk.to_input(messages, "openai_chat", report=lambda left: said.append(str(left)))
    assert said == [
        "reasoning 'r' was left out: it is reasoning of another protocol",
        "tool_call 'c' was left out: the call is not complete",
        "tool_output 'o' was left out: its call does not go back",
        "message 't2' was left out: it is of another choice",
    ]


@pytest.mark.parametrize(
    ("target", "left_out"),
    [
        ("openai_responses", []),
        ("openai_chat", ["code", "console"]),
        ("anthropic", []),
        ("letta", []),
        ("open_interpreter", []),
        ("openai_assistants", ["reasoning"]),
    ],
)
def test_what_an_encoder_left_out_can_be_said(target: str, left_out: list[str]) -> None:
    """By reading what it wrote: no list of each protocol's."""
    messages = [
        ReasoningMessage("r", content="I think."),
        TextMessage("t", content="I look."),
        sk.CodeMessage("c", format="python", content="print(1)"),
        sk.ConsoleMessage("o", content="1 is printed"),
    ]
    events: list[dict[str, Any]] = [{"type": "message_done", "message": message.to_dict()} for message in messages]
    stream = sk.stream([*events, {"type": "run_done", "run": {"status": "completed"}}, {"type": "stream_end"}])
    items = list(stream.chunks(target))
    assert [left.message.type for left in protocols.left_out_of(stream.messages, items, target)] == left_out


# -- what is for the user alone


def _told_twice() -> list[sk.Message]:
    """A conversation in which each kind of message is there twice: once for the user alone."""
    values: list[dict[str, Any]] = [
        {"role": "computer", "type": "console", "format": "output"},
        {"role": "computer", "type": "message"},
        {"role": "assistant", "type": "message"},
        {"role": "user", "type": "message"},
    ]
    return [
        sk.Message.from_dict({**value, "id": f"{n}-{recipient}", "content": f"for {recipient}", "recipient": recipient})
        for n, value in enumerate(values)
        for recipient in ("user", "assistant")
    ]


@pytest.mark.parametrize("protocol", protocols.BUILT_IN)
def test_what_is_for_the_user_alone_is_not_sent_to_a_model(protocol: str) -> None:
    """And the report says so. Formats that people read keep it."""
    is_for_people = protocol in ("open_interpreter", "streamkit", "vercel_ui", "ag_ui")
    left_out: list[str] = []
    text = json.dumps(sk.to_input(_told_twice(), protocol, report=lambda one: left_out.append(one.message.id)))
    assert ("for user" in text) is is_for_people
    assert "for assistant" in text
    if not is_for_people:
        assert [id for id in left_out if id.endswith("-user")] == [f"{n}-user" for n in range(4)]


# -- metadata that is not as it was written


_ODD: tuple[Any, ...] = (None, 3, True, "x", [], [None], {}, {"a": 1})


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value in a JSON value stands; of lists, the first two items."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from _paths(inner, (*at, number))


def _with_odd_metadata(messages: Sequence[sk.Message]) -> Iterator[list[sk.Message]]:
    """Yield these messages again and again, each time with another value in one place of the metadata of one of them."""
    values = [message.to_dict() for message in messages]
    for number, value in enumerate(values):
        for *way, last in _paths(value.get("metadata", {})):
            for odd in _ODD:
                changed = json.loads(json.dumps(value))
                holder = changed["metadata"]
                for key in way:
                    holder = holder[key]
                holder[last] = odd
                yield [sk.Message.from_dict(one) for one in (*values[:number], changed, *values[number + 1 :])]


_FOLDERS = ("openai-responses", "openai-chat", "anthropic-messages", "vercel-ui", "ag-ui", "letta")


@in_a_loop("path", own_recordings(*_FOLDERS, complete=True))
def test_messages_with_odd_metadata_go_back_to_every_provider(path: Path) -> None:
    """A saved conversation may have been changed by hand, or written by another program."""
    protocol = path.parent.name.replace("-", "_").removesuffix("_messages")
    stream = sk.stream(path.read_bytes(), protocol=protocol)
    with suppress(sk.RunFailedError):
        stream.until_done()
    assert stream.messages
    for changed in _with_odd_metadata(stream.messages):
        for name in {protocol, "openai_chat", "openai_responses", "anthropic"}:
            assert isinstance(sk.to_input(changed, name), list)
