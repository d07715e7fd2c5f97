"""The recording of an agent's stream replays as that stream was: its steps, questions, answers and its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from ..faces import Face, body, both_shells, every_pair
from ..test_replay import Events, course_of
from .parts import ToyComputer, agent_on, code, every_provider
from .test_again import SCRIPTS, failing, weather

ASK_USER: dict[str, Any] = {"type": "function", "function": {"name": "ask_user", "parameters": {"type": "object"}}}
RUNS = {
    **SCRIPTS,
    "edited": (Reply(code("say edit")), Reply("Done.")),
    "not answered": (Reply(Text("I will. "), code("say nothing")), Reply("Never.")),
    "application": (Reply(ToolCall("ask_user", {}), ToolCall("weather", {"city": "Oslo"})), Reply("Done.")),
    "application, no answer": (Reply(ToolCall("ask_user", {"never": True}), ToolCall("weather", {"city": "Oslo"})),),
    "cut off": (Reply(code("say 1")), Reply("Hello there", cut_after=1)),
    "refused": (Reply(code("say 1")), Reply(status=500)),
    "failing computer": (Reply(code("say 1\nbreak")), Reply("Sorry.")),
}


class Answering(sk.EventHandler):
    """Answers each confirmation as its code says, and calls at the end of their source."""

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        match confirmation.subject.content:
            case "say no":
                confirmation.decline("because")
            case "say edit":
                confirmation.approve("say edited")
            case "say nothing":
                pass
            case _:
                confirmation.approve()

    def on_run_requires_action(self, run: sk.Run) -> None:
        for call in self.stream.pending.values():
            if isinstance(call, sk.ToolCallMessage) and call.waiting and "never" not in call.content:
                call.respond("ok")


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("script", RUNS.values(), ids=RUNS)
@body
async def test_an_agents_stream_replays_as_it_was(
    face: Face, provider: str, script: tuple[Reply, ...], tmp_path: Path
) -> None:
    """And the recording of the replay too."""
    collected = Events()
    failure: str | None = None
    with ModelServer(script) as server:
        options: dict[str, Any] = {"tools": [weather, failing, ASK_USER], "computer": ToyComputer(), "max_steps": 3}
        async with agent_on(face, server, provider, **options) as talker:
            stream = talker.stream("Go.", Answering(), collected, sk.Recorder(tmp_path / "first"))
            try:
                await stream.until_done()
            except sk.StreamkitError as error:
                failure = f"{type(error).__name__}: {error}"
    for path, again in (("first", "second"), ("second", "third")):
        replayed = await course_of(face, tmp_path / path, sk.Recorder(tmp_path / again))
        assert replayed["events"] == collected.events
        assert (replayed["status"], replayed["error"]) == (stream.status, failure)
        assert replayed["messages"] == [message.to_dict() for message in stream.messages]
    named = {"protocol": provider}  # it is that of the model's answers, not of the agent's own events
    assert (await course_of(face, tmp_path / "first", **named))["events"] == collected.events


def test_an_agents_recording_that_breaks_off_is_incomplete(tmp_path: Path) -> None:
    """Wherever: also where the model's answer is complete, and the agent was to go on."""
    with ModelServer(SCRIPTS["tools and code"]) as server:
        path = tmp_path / "run.jsonl"

        async def record(face: Face) -> None:
            options: dict[str, Any] = {"tools": [weather, failing], "computer": ToyComputer()}
            async with agent_on(face, server, **options) as talker:
                await talker.say("Go.", Answering(), sk.Recorder(path))

        face = Face()
        face.run(lambda: record(face))
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        with pytest.raises(sk.IncompleteStreamError):
            sk.stream(path).until_done()
    path.write_bytes(b"".join(lines))
    sk.stream(path).until_done()


@both_shells
@body
async def test_a_run_that_its_application_failed_does_not_replay_as_complete(face: Face, tmp_path: Path) -> None:
    """The hook's own error is not the recording's, but nobody knows how the run would have gone on."""

    class Failing(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            raise LookupError("mine")

    with ModelServer(SCRIPTS["tools and code"]) as server:
        async with agent_on(face, server, tools=[weather, failing], computer=ToyComputer()) as talker:
            with pytest.raises(LookupError):
                await talker.say("Go.", Failing(), sk.Recorder(tmp_path / "run.jsonl"))
    with pytest.raises(sk.IncompleteStreamError, match="by its application: LookupError: mine"):
        await face.stream(tmp_path / "run.jsonl").until_done()
