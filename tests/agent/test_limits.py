"""What one run of an agent may use and take."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ToolCall

from ..faces import Face, body, both_shells
from .parts import agent_on, every_provider, outputs_of


def look() -> str:
    return "seen"


@both_shells
@every_provider
@body
async def test_a_run_ends_before_a_model_call_when_it_has_used_its_tokens(face: Face, provider: str) -> None:
    """What the tools of the call before gave is in the conversation, which goes on with a budget of its own."""
    with ModelServer(Reply(ToolCall("look"))) as server:
        async with agent_on(face, server, provider, tools=[look], max_steps=1) as talker:
            used = (await talker.say("Go.")).usage.total_tokens
    with ModelServer([Reply(ToolCall("look")) for _ in range(9)]) as server:
        async with agent_on(face, server, provider, tools=[look], max_total_tokens=2 * used) as talker:
            stream = await talker.say("Go.")
            assert len(server.requests) == 3
            assert outputs_of(server.requests[2]).keys() == {"call_1_0", "call_2_0"}
            assert (stream.status, stream.current_run.finish_reason) == ("incomplete", "max_total_tokens")
            assert talker.messages[-1].content == "seen"
            await talker.say()
            assert len(server.requests) == 6


@both_shells
@body
async def test_the_first_model_call_is_always_made(face: Face) -> None:
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server, max_total_tokens=1) as talker:
            stream = await talker.say("Go.")
    assert (stream.status, talker.contents[-1]) == ("completed", ("message", "Hello."))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1000"])
def test_a_number_of_tokens_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(sk.UsageError, match="`max_total_tokens` is a whole number from 1 on, or None"):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", max_total_tokens=wrong)
