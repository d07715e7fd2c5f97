"""An agent's stream a second time: recorded and replayed, as the source of another stream, and as other protocols' chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from ..faces import Face, body, both_shells, every_face, every_pair
from .parts import Approving, ToyComputer, agent_on, code, every_provider


def weather(city: str) -> str:
    return f"{city}: sun"


def failing() -> None:
    raise LookupError("no")


SCRIPTS: dict[str, tuple[Reply, ...]] = {
    "tools and code": (
        Reply(Text("Hm. "), ToolCall("weather", {"city": "Oslo"}), ToolCall("failing"), code("say 1\nshow\nsay 2")),
        Reply(code("shrug", "shell"), code("say 3")),
        Reply("Done."),
    ),
    "declined": (Reply(code("say no")), Reply("Never.")),
    "not answered": (Reply(Text("Hm. "), code("say perhaps")), Reply("Never.")),
    "broken": (Reply(ToolCall("execute", "{}")), Reply("Sorry.")),
    "not there": (Reply(code("x", "cobol")), Reply("Sorry.")),
    "cut short": (Reply(Text("Hm. "), finish_reason="length"),),
    "too many": (Reply(code("say again")),),
}


class Deciding(sk.EventHandler):
    """Declines one piece of code, and does not answer another."""

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        if confirmation.subject.content == "say no":
            confirmation.decline()
        elif confirmation.subject.content != "say perhaps":
            confirmation.approve()


def story(messages: Any) -> list[Any]:
    return [(m.type, m.role, m.format, m.content, m.status, m.call_id) for m in messages]


@both_shells
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@body
async def test_another_stream_emits_the_same_events(face: Face, script: tuple[Reply, ...]) -> None:
    """Law 6, for relays, servers and chains: each event, the run's end, and what waits."""
    with ModelServer(script) as server:
        options: dict[str, Any] = {"tools": [weather, failing], "computer": ToyComputer(), "max_steps": 3}
        async with agent_on(face, server, **options) as talker:
            first, second = face.told(), face.told()
            inner = talker.agent.stream("Go.", first, Deciding())
            outer = face.stream(inner, second)
            await outer.until_done()
    assert second.hooks == first.hooks
    assert story(outer.messages) == story(inner.messages)
    assert (outer.status, outer.current_run.status) == (inner.status, inner.current_run.status)
    assert outer.current_run.finish_reason == inner.current_run.finish_reason
    assert outer.pending == inner.pending == {}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@body
async def test_a_recording_replays_the_same_messages(
    face: Face, provider: str, script: tuple[Reply, ...], tmp_path: Path
) -> None:
    """The same messages in the same steps, and the run ends for the same reason."""
    with ModelServer(script) as server:
        options: dict[str, Any] = {"tools": [weather, failing], "computer": ToyComputer(), "max_steps": 3}
        async with agent_on(face, server, provider, **options) as talker:
            original = await talker.say("Go.", Deciding(), sk.Recorder(tmp_path / "run.jsonl"))
    replayed = face.stream(tmp_path / "run.jsonl")
    await replayed.until_done()
    assert story(replayed.messages) == story(original.messages)
    assert [m.step_id for m in replayed.messages] == [m.step_id for m in original.messages]
    assert replayed.status == original.status
    assert (await replayed.get_final_run()).finish_reason == (await original.get_final_run()).finish_reason
    assert len(await replayed.get_final_run_steps()) == len(await original.get_final_run_steps())


@both_shells
@pytest.mark.parametrize("protocol", ["open_interpreter", "openai_chat", "openai_responses", "anthropic", "letta"])
@body
async def test_other_protocols_can_carry_it(face: Face, protocol: str) -> None:
    """As far as they can express it: no encoder raises, and the text arrives."""
    with ModelServer(SCRIPTS["tools and code"]) as server:
        async with agent_on(face, server, tools=[weather, failing], computer=ToyComputer()) as talker:
            shaped = talker.stream("Go.", Approving())
            chunks = [chunk async for chunk in shaped.chunks(protocol)]
    read = sk.stream(chunks, protocol=protocol)
    assert "Done." in read.get_final_text()


@every_face
@pytest.mark.parametrize("protocol", ["vercel_ui", "ag_ui", "open_interpreter", "letta"])
@body
async def test_a_client_of_another_protocol_sees_what_waits_for_it(face: Face, protocol: str) -> None:
    """A question that nobody answered is not shown as declined, and the run requires action."""
    with ModelServer(SCRIPTS["not answered"]) as server:
        async with agent_on(face, server, computer=ToyComputer()) as talker:
            shaped = talker.stream("Go.", Deciding())
            chunks = [chunk async for chunk in shaped.chunks(protocol)]
    assert "declined" not in str(chunks)
    assert "denied" not in str(chunks)
    read = sk.stream(chunks, protocol=protocol)
    read.until_done()
    assert [confirmation.status for confirmation in read.confirmations] == ["unanswered"]
    assert read.status == "requires_action"
    assert "say perhaps" in read.confirmations[0].subject.content
