"""Which approval lets what run: calls that share an id, the provider's own questions, invalid rules."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.agent.code import CodeRun, ProposedCode
from streamkit.agent.history import model_view
from streamkit.testing import McpApproval, ModelServer, Reply, Text, ToolCall

from ..faces import Face, body, both_shells, every_face
from .parts import Approving, ToyComputer, agent_on, code, outputs_of


def same_ids(*calls: ToolCall) -> Reply:
    """An answer as some servers send it: all of its calls have one id."""
    functions = [{"name": call.name, "arguments": "".join(call.pieces)} for call in calls]
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [{"index": n, "id": "same", "type": "function", "function": function}]}
        for n, function in enumerate(functions)
    ]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices]
    return Reply(raw="".join([*lines, "data: [DONE]\n\n"]).encode(), headers={"content-type": "text/event-stream"})


@both_shells
@body
async def test_an_approval_for_one_language_is_not_one_for_another(face: Face) -> None:
    """Two calls with one id and the same code in two languages: each is confirmed separately, in its own language."""
    answer = same_ids(code("say hi"), code("say hi", "shell"))
    computer, asked = ToyComputer(), []

    def decide(handler: Any, confirmation: sk.Confirmation) -> None:
        asked.append(confirmation.subject.format)
        if confirmation.subject.format == "python":
            confirmation.approve()
        else:
            confirmation.decline("no shell")

    with ModelServer([answer, Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer) as talker:
            await talker.say("Go.", face.told(on_confirmation=decide))
    assert (asked, computer.ran) == (["python", "shell"], ["say hi"])
    assert [*outputs_of(server.requests[1]).values()] == [
        "hi\n",
        "Not run: the user declined this code. Reason: no shell",
    ]


@both_shells
@body
async def test_calls_that_share_an_id_each_have_their_own_output(face: Face, tmp_path: Path) -> None:
    """In the next request and in a saved conversation, with edited code too; the request gives them distinct ids."""
    answer = same_ids(
        ToolCall("twice", {"n": 2}), code("say a"), code("say b"), ToolCall("twice", {"n": 3}), code("say c")
    )

    def twice(n: int) -> int:
        return 2 * n

    def decide(handler: Any, confirmation: sk.Confirmation) -> None:
        confirmation.approve("say B" if confirmation.subject.content == "say b" else None)

    with ModelServer([answer, Reply("Done."), Reply("Again.")]) as server:
        async with agent_on(face, server, computer=ToyComputer(), tools=[twice]) as talker:
            await talker.say("Go.", face.told(on_confirmation=decide))
            talker.agent.save(tmp_path / "saved")
        async with agent_on(face, server, computer=ToyComputer()) as talker:
            talker.agent.load(tmp_path / "saved")
            await talker.say("More.")
    for request in server.requests[1:]:
        calls = [call for m in request.body["messages"] for call in m.get("tool_calls", ())]
        outputs = outputs_of(request)
        sources = [
            call["function"]["arguments"].partition("say ")[2][:1] or call["function"]["arguments"] for call in calls
        ]
        assert sources == ['{"n": 2}', "a", "B", '{"n": 3}', "c"]
        assert [outputs[call["id"]].splitlines()[-1] for call in calls] == ["4", "a", "B", "6", "c"]


ANSWERS: dict[str, Any] = {
    "approved": lambda asked: asked.approve(),
    "with a reason": lambda asked: asked.decline("not today"),
    "declined": lambda asked: asked.decline(),
    "nothing": lambda asked: None,
}


@both_shells
@pytest.mark.parametrize("how", ANSWERS)
@body
async def test_the_next_request_answers_the_providers_own_question(face: Face, how: str) -> None:
    """OpenAI's approval of an MCP call. `auto_run` does not approve it; without an answer the run requires action."""
    goes_on = how in ("approved", "with a reason")
    with ModelServer([Reply(McpApproval("drop", {"table": 1})), Reply("Done."), Reply("Again.")]) as server:
        async with agent_on(face, server, "openai_responses", computer=ToyComputer(), auto_run=True) as talker:
            handler = face.told(on_confirmation=lambda self, asked: ANSWERS[how](asked))
            stream = await talker.say("Go.", handler)
            assert len(server.requests) == 1 + goes_on
            assert stream.current_run.finish_reason == ("declined" if how == "declined" else None)
            assert stream.status == ("requires_action" if how == "nothing" else "completed")
            await talker.say("More.")
        answers = [[i for i in r.body["input"] if i["type"].startswith("mcp")] for r in server.requests]
    assert handler.hooks.count("on_confirmation_done") == 1
    if goes_on:
        question, answer = answers[1]
        assert (question["id"], question["name"]) == (answer["approval_request_id"], "drop")
        assert (answer["approve"], answer.get("reason")) == (
            how == "approved",
            None if how == "approved" else "not today",
        )
    assert answers[-1] == [], "sent once: an approval that is sent again would let the call run again"


def test_a_question_without_its_answer_is_not_sent() -> None:
    """Neither from an earlier answer nor from a conversation that was loaded."""
    asked = sk.ToolCallMessage("q", name="drop", content="{}", metadata={"item_type": "mcp_approval_request"})
    yes = sk.Confirmation("q", asked, status="approved")
    assert model_view([asked], limit=10) == []
    assert model_view([asked], limit=10, answered=[yes]) == [asked, yes]


async def _rule(code: sk.CodeMessage) -> bool:
    return True


@pytest.mark.parametrize("rule", [1, "no", None, _rule])
def test_a_rule_is_a_bool_or_a_plain_function(rule: Any) -> None:
    """Anything else is refused when the agent is created, and if it is set later when the code would run."""
    computer = ToyComputer()
    with (
        ModelServer([Reply(code("say hi")), Reply("Done.")]) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(sk.UsageError, match="auto_run"):
            sk.Agent(client, model="m", auto_run=rule)
        agent = sk.Agent(client, model="m", computer=computer)
        agent.auto_run = rule
        with pytest.raises(sk.UsageError, match="auto_run"):
            agent.stream("Go.").until_done()
    assert computer.runs == []


@both_shells
@body
async def test_a_rule_that_raises_approves_nothing(face: Face) -> None:
    """The stream ends with a `UsageError`."""

    def rule(code: sk.CodeMessage) -> bool:
        raise KeyError("oh")

    computer, approving = ToyComputer(), Approving()
    with ModelServer([Reply(Text("I will. "), code("say hi")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=rule) as talker:
            with pytest.raises(sk.UsageError, match="`auto_run` raised KeyError: 'oh'"):
                await talker.say("Go.", approving)
    assert (computer.runs, approving.confirmations) == ([], [])


@both_shells
@pytest.mark.parametrize("value", [re.match("s", "say"), 1, None])
@body
async def test_a_rule_returns_a_bool(face: Face, value: Any) -> None:
    """What is only truthy or falsy approves and declines nothing: the error says what to write."""
    computer, approving = ToyComputer(), Approving()
    rule: Any = lambda code: value  # noqa: E731
    with ModelServer([Reply(code("say hi")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=rule) as talker:
            with pytest.raises(sk.UsageError, match=r"`auto_run` returns True or False, not .*bool"):
                await talker.say("Go.", approving)
    assert (computer.runs, approving.confirmations) == ([], [])


@both_shells
@body
async def test_two_agents_on_one_computer_take_turns(face: Face, tmp_path: Path) -> None:
    """The second waits until the first one's code has ended. Languages run side by side."""
    computer = ToyComputer()
    with (
        ModelServer([Reply(code("hang"))]) as slow,
        ModelServer([Reply(code("say hi", "shell")), Reply(code("say hi"))]) as quick,
        openai.OpenAI(base_url=slow.url, api_key="any", max_retries=0) as client,
    ):
        first = sk.Agent(client, model="m", computer=computer, auto_run=True, protocol="openai_chat").stream("Go.")
        thread = threading.Thread(target=first.until_done)
        thread.start()
        assert await face.in_thread(lambda: computer.hanging.wait(10))
        async with agent_on(face, quick, computer=computer, auto_run=True, max_steps=1) as talker:
            await talker.say("Go.")
            assert computer.ran == ["hang", "say hi"]

            def end_first() -> None:
                first.cancel()
                thread.join(10)

            async with face.beside(end_first):
                await talker.say("Go.")
    assert computer.ran == ["hang", "say hi", "say hi"]


def test_code_that_waits_for_its_turn_can_be_stopped() -> None:
    """It has not begun then, and the next one gets its turn."""
    computer = ToyComputer()
    runs = []
    for source in ("hang", "say never", "say hi"):
        call = sk.ToolCallMessage(source, name="execute")
        shown = sk.CodeMessage(source, format="python", content=source)
        runs.append(CodeRun(computer, ProposedCode("python", source, shown), call))
    first, second, third = runs
    assert first.read()
    assert computer.hanging.wait(10)
    waiting = threading.Thread(target=second.read)
    waiting.start()
    second.close()
    waiting.join(10)
    first.close()
    assert [type(event) for event in third.read()] != []
    third.close()
    assert [run.began for run in runs] == [True, False, True]
    assert computer.ran == ["hang", "say hi"]


@every_face
@body
async def test_an_approval_has_no_effect_once_the_stream_was_cancelled(face: Face) -> None:
    """Even if the hook that approved it cancels."""
    computer = ToyComputer()

    def decide(handler: Any, confirmation: sk.Confirmation) -> None:
        confirmation.approve()
        handler.stream.cancel()

    with ModelServer([Reply(code("say hi")), Reply("Done.")]) as server:
        async with agent_on(face, server, computer=computer) as talker:
            stream = await talker.say("Go.", face.told(on_confirmation=decide))
    assert (computer.ran, stream.status, len(server.requests)) == ([], "cancelled", 1)
