"""What a user puts into a conversation is checked first, and a turn that failed can be taken back."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, Request

from ..faces import Face, body, both_shells, every_pair
from .parts import PNG, Approving, ToyComputer, agent_on, code, every_provider, outputs_of

BAD: dict[str, tuple[Any, str]] = {
    "a missing image": (
        {"role": "user", "type": "image", "format": "path", "content": "/nowhere/a.png"},
        "'/nowhere/a.png' cannot be read: .*No such file",
    ),
    "no image": (
        {"role": "user", "type": "image", "format": "path", "content": __file__},
        "is not a PNG, JPEG, GIF or WebP image",
    ),
    "a type that no provider has": ({"role": "user", "type": "smell", "content": "x"}, "smell"),
    "a file on this machine": ({"role": "user", "type": "file", "format": "path", "content": "/etc/hosts"}, "file"),
    "a role that no message has": (
        {"role": "tool", "content": "4", "tool_call_id": "call_1"},
        "role is one of .*'tool'",
    ),
    "a number": ({"role": "user", "type": "message", "content": 5}, "content"),
}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("bad", BAD)
@body
async def test_a_bad_message_leaves_the_conversation_as_it_was(face: Face, provider: str, bad: str) -> None:
    """The error says what is wrong, before anything is sent; the next input goes through."""
    message, fault = BAD[bad]
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server, provider) as talker:
            with pytest.raises(sk.UsageError, match=fault):
                talker.stream([message])
            assert (talker.messages, server.requests) == ([], [])
            await talker.say("Hi.")
    assert [content for _, content in talker.contents] == ["Hi.", "Hello."]


def image_of(request: Request) -> str:
    """The base64 data of the image in a request of any provider."""
    import json

    text = json.dumps(request.body)
    return PNG if PNG in text and ("image/png" in text) else ""


@both_shells
@every_provider
@body
async def test_an_image_may_be_a_path(face: Face, provider: str, tmp_path: Path) -> None:
    """It is read when the stream is made, and sent as its data; the conversation has the data too, and where it was."""
    path = tmp_path / "plot.png"
    path.write_bytes(base64.b64decode(PNG))
    message = {"role": "user", "type": "image", "format": "path", "content": str(path)}
    with ModelServer(Reply("I see.")) as server:
        async with agent_on(face, server, provider) as talker:
            stream = talker.stream([message, {"role": "user", "type": "message", "content": "What is it?"}])
            path.unlink()
            await stream.until_done()
        assert image_of(server.requests[0]) == PNG
    image = talker.messages[0]
    assert (image.format, image.content, image.metadata) == ("base64.png", PNG, {"path": str(path)})


@both_shells
@every_provider
@body
async def test_images_can_be_switched_off(face: Face, provider: str) -> None:
    """After a model refused them, for what was sent and displayed before too: it reads what they were."""
    attached = {"role": "user", "type": "image", "format": "base64.png", "content": PNG, "metadata": {"path": "a.png"}}
    with ModelServer([Reply(code("show")), Reply(status=400), Reply("Ah.")]) as server:
        async with agent_on(face, server, provider, computer=ToyComputer(), auto_run=True) as talker:
            with pytest.raises(sk.SourceError):
                await talker.say([attached])
            talker.agent.images = False
            stream = await talker.say()
            assert await stream.get_final_text() == "Ah."
        last = server.requests[-1]
    assert image_of(last) == ""
    assert "[image: a.png]" in last.content.decode()
    assert [*outputs_of(last).values()] == ["[displayed: image]\n"]


@both_shells
@body
async def test_an_image_for_a_model_that_takes_none_is_a_warning(face: Face) -> None:
    """Once, in the run whose input it is."""
    attached = {"role": "user", "type": "image", "format": "base64.png", "content": PNG}
    with ModelServer([Reply("One."), Reply("Two.")]) as server:
        async with agent_on(face, server, images=False) as talker:
            first = await talker.say([attached])
            await first.until_done()
            assert [one.code for one in first.warnings] == ["images"]
            assert {message.step_id for message in first.messages} == {first.current_run_step_snapshot.id}
            second = await talker.say("And?")
            await second.until_done()
            assert not second.warnings


@both_shells
@body
async def test_a_turn_can_be_undone(face: Face) -> None:
    """The input and all that followed; the one before it with the next call."""
    with ModelServer([Reply("One."), Reply(code("say a")), Reply(status=503), Reply("Three.")]) as server:
        async with agent_on(face, server, computer=ToyComputer()) as talker:
            await talker.say("First.")
            with pytest.raises(sk.SourceError):
                await talker.say("Second.", Approving())
            undone = talker.agent.undo()
            assert [message.type for message in undone] == ["message", "tool_call", "code", "console"]
            assert [content for _, content in talker.contents] == ["First.", "One."]
            await talker.say("Third.")
            assert [content for _, content in talker.contents] == ["First.", "One.", "Third.", "Three."]
            assert [len(talker.agent.undo()) for _ in range(3)] == [2, 2, 0]
    assert talker.messages == []


@both_shells
@body
async def test_a_running_turn_cannot_be_undone(face: Face) -> None:
    """It has to end first."""
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server) as talker, talker.stream("Go.") as stream:
            with pytest.raises(sk.UsageError, match="still running"):
                talker.agent.undo()
            await stream.until_done()


@both_shells
@body
async def test_a_question_that_failed_is_not_joined_to_the_next(face: Face) -> None:
    """It gives way to the next input; without one it is sent again. What the model has answered stays."""
    with ModelServer(
        [Reply(status=503), Reply(status=503), Reply("Hello."), Reply(status=503), Reply("Bye.")]
    ) as server:
        async with agent_on(face, server) as talker:
            for _ in range(2):
                with pytest.raises(sk.SourceError):
                    await talker.say("Hallo." if _ == 0 else "Hello?")
            await talker.say()
            with pytest.raises(sk.SourceError):
                await talker.say("So?")
            await talker.say("Bye?")
        sent = [[m["content"] for m in request.body["messages"]] for request in server.requests]
    assert sent == [["Hallo."], ["Hello?"], ["Hello?"], ["Hello?", "Hello.", "So?"], ["Hello?", "Hello.", "Bye?"]]
    assert [content for _, content in talker.contents] == ["Hello?", "Hello.", "Bye?", "Bye."]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_saved_conversation_is_private(tmp_path: Path) -> None:
    """Its owner alone may read it, also where an older file could be read by others."""
    path = tmp_path / "talk.json"
    for left_over in (path, tmp_path / "talk.json.new"):
        left_over.write_text("[]")
        left_over.chmod(0o644)
    sk.Agent(openai.OpenAI(api_key="any"), model="m", messages=[{"role": "user", "content": "Hi."}]).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["talk.json"]


@both_shells
@pytest.mark.parametrize("status", [400, 422])
@body
async def test_a_compatible_server_is_asked_for_the_tokens(face: Face, status: int) -> None:
    """Where it refuses, the request is sent once more without that, and later requests ask no more."""
    refuse: Any = lambda request: Reply(status=status) if request.include_usage else Reply("Hello.")  # noqa: E731
    with ModelServer(Reply("Hello.")) as kind, ModelServer(refuse) as strict:
        async with agent_on(face, kind) as talker:
            for _ in range(2):
                assert (await talker.say("Hi.")).usage is not None
        assert [request.include_usage for request in kind.requests] == [True, True]
        async with agent_on(face, strict) as talker:
            for _ in range(2):
                assert await (await talker.say("Hi.")).get_final_text() == "Hello."
        assert [request.include_usage for request in strict.requests] == [True, False, False]


@both_shells
@body
async def test_a_request_that_is_bad_anyway_fails_with_its_own_error(face: Face) -> None:
    """It is tried without the question for the tokens, and what the server then says is raised."""
    with ModelServer([Reply(status=400), Reply(status=400), Reply("Hello.")]) as server:
        async with agent_on(face, server) as talker:
            with pytest.raises(sk.SourceError) as raised:
                await talker.say("Hi.")
            assert raised.value.status_code == 400
            await talker.say("Hi.")
        assert [request.include_usage for request in server.requests] == [True, False, True]


@both_shells
@pytest.mark.parametrize("edited", ["", " \n"])
@body
async def test_an_edit_to_nothing_approves_nothing(face: Face, edited: str) -> None:
    """It is an error of the caller's: what is to run nothing is declined."""
    computer = ToyComputer()
    with ModelServer([Reply(code("say hi")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer) as talker:
            with pytest.raises(sk.UsageError, match="the edited code is empty; to run nothing, decline it"):
                await talker.say("Go.", Approving(edited))
    assert computer.ran == []
