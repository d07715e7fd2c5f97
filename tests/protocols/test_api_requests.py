"""Requests to model APIs, read as what an agent is asked: `from_request` of each."""

from __future__ import annotations

from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols import ApiRequest, ToolChoice, anthropic, openai_chat, openai_responses

from ..agent.parts import PNG


def chat(*messages: dict[str, Any], **more: Any) -> ApiRequest:
    return openai_chat.from_request({"model": "m", "messages": [*messages], **more})


def flat(messages: list[Any]) -> list[tuple[str, str, str]]:
    return [(message.role, message.type, message.content) for message in messages]


USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_conversation_ends_with_the_input() -> None:
    request = chat(
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "yes", "refusal": "no", "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "out"}]},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "now"}]},
    )
    assert request.system == "Be kind.\n\nBe brief."
    assert flat(request.history) == [
        ("user", "message", "hi"),
        ("assistant", "message", "yes"),
        ("assistant", "message", "no"),
        ("assistant", "tool_call", "{}"),
        ("computer", "tool_output", "out"),
    ]
    assert flat(request.input) == [("user", "message", "and"), ("user", "message", "now")]
    assert [(one.call_id, one.output) for one in request.answers] == [("c1", "out")]


def test_a_call_without_an_output_is_not_open() -> None:
    """An agent would otherwise run what a client claims that it had called."""
    request = chat(USER, {"role": "assistant", "tool_calls": [CALL]}, USER)
    assert flat(request.history)[-1] == ("computer", "tool_output", "No output of this call was recorded.")


def test_images_that_an_answer_showed_do_not_go_back_to_the_model() -> None:
    request = chat(
        {"role": "assistant", "content": f"See ![image](data:image/png;base64,{PNG}), and ![x](http://y)"}, USER
    )
    assert request.history[0].content == "See [image], and ![x](http://y)"


def test_tools_are_schemas_as_an_agent_takes_them() -> None:
    function = {"name": "f", "description": "Do.", "parameters": {"type": "object"}, "strict": True}
    request = chat(USER, tools=[{"type": "function", "function": function}], tool_choice="required")
    assert request.tools == [{"name": "f", "description": "Do.", "parameters": {"type": "object"}}]
    assert request.tool_choice == ToolChoice(mode="required")


def test_options_are_named_as_all_apis_have_them() -> None:
    body = {"model": "m", "messages": [USER], "max_completion_tokens": 5, "response_format": {"type": "json_object"}}
    request = openai_chat.from_request(body, options=["max_output_tokens", "response_format"])
    assert request.options == {"max_output_tokens": 5, "response_format": {"type": "json_object"}}
    assert request.ignored == []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}
                ]
            },
            "messages[0].content[0].image_url.url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "messages[0].content[0].file.file_id",
        ),
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logprobs": True}, "logprobs"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a"}}] * 2}, "tools[1].function.name"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_fault_has_its_place_in_the_clients_words(more: dict[str, Any], path: str) -> None:
    with pytest.raises(sk.RequestError) as refused:
        openai_chat.from_request({"model": "m", "messages": [USER], **more})
    assert refused.value.path == path


# -- Messages


def messages(*turns: dict[str, Any], **more: Any) -> ApiRequest:
    return anthropic.from_request({"model": "m", "max_tokens": 5, "messages": [*turns], **more})


def test_blocks_of_messages_are_flat_messages() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "no"}], "is_error": True}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpg", "data": "aGk="}}
    document = {"type": "document", "title": "d", "source": {"type": "text", "media_type": "text/plain", "data": "dd"}}
    assistant = [
        {"type": "thinking", "thinking": "ours", "signature": ""},
        {"type": "thinking", "thinking": "signed", "signature": "s"},
        {"type": "text", "text": "yes", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    request = messages(
        USER,
        {"role": "assistant", "content": assistant},
        {"role": "user", "content": [result, image, document, {"type": "text", "text": "go"}]},
        system=[{"type": "text", "text": "Be kind."}],
    )
    assert flat(request.history) == [
        ("user", "message", "hi"),
        ("assistant", "reasoning", "signed"),
        ("assistant", "message", "yes"),
        ("assistant", "tool_call", '{"a":1}'),
        ("computer", "tool_output", "no"),
    ]
    assert flat(request.input) == [("user", "image", "aGk="), ("user", "message", "dd"), ("user", "message", "go")]
    assert [(one.call_id, one.failed) for one in request.answers] == [("t1", True)]
    assert (request.system, request.ignored) == ("Be kind.", ["max_tokens"])


def test_what_a_client_of_messages_wants_of_its_tools() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}]
    request = messages(USER, tools=tools, tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True})
    assert request.tool_choice == ToolChoice(mode="required", name="f", parallel=False)
    assert ([tool["name"] for tool in request.tools], request.ignored[-1]) == (["f"], "tools.bash_20250124")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"messages": [USER, {"role": "assistant", "content": "I"}]}, "messages[1]"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}
                ]
            },
            "messages[0].content[0].source.file_id",
        ),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [{"name": ""}]}, "tools[0].name"),
    ],
)
def test_a_fault_of_messages_has_its_place(more: dict[str, Any], path: str) -> None:
    with pytest.raises(sk.RequestError) as refused:
        anthropic.from_request({"model": "m", "max_tokens": 5, "messages": [USER], **more})
    assert refused.value.path == path


# -- Responses


def test_items_of_responses_are_flat_messages() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    request = openai_responses.from_request(
        {
            "model": "m",
            "instructions": "Be kind.",
            "input": [
                {"role": "developer", "content": "Be brief."},
                USER,
                {"type": "reasoning", "id": "rs", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
                {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "web_search_call", "id": "ws"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "out"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "go"}, image]},
            ],
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
        },
        options=["reasoning_effort"],
    )
    assert request.system == "Be kind.\n\nBe brief."
    assert flat(request.history) == [
        ("user", "message", "hi"),
        ("assistant", "message", "yes"),
        ("assistant", "tool_call", "{}"),
        ("computer", "tool_output", "out"),
    ]
    assert flat(request.input) == [("user", "message", "go"), ("user", "image", "aGk=")]
    assert (request.options, request.ignored) == ({"reasoning_effort": "low"}, ["reasoning.summary", "text.verbosity"])
    assert (request.store, request.background) == (True, False)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
        ({"input": [{"type": "nothing"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        ({"background": True, "store": False}, "background"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"conversation": "c"}, "conversation"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ],
)
def test_a_fault_of_responses_has_its_place(more: dict[str, Any], path: str) -> None:
    with pytest.raises(sk.RequestError) as refused:
        openai_responses.from_request({"model": "m", "input": "hi", **more})
    assert refused.value.path == path
