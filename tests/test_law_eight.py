"""Law 8 end to end: what a stream tells goes into the next request, and into every other protocol, and comes back."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.testing import McpApproval, ModelServer, Reply, ToolCall

from .faces import Face, body, both_shells, every_face
from .recorded import OWN
from .telling import tell_items
from .test_recorded_streams import PROTOCOLS, over_all

# -- approvals


def go_on(client: Any) -> Any:
    """The next request of a run: what was answered of the step that is over, and nothing twice."""

    def then(stream: Any) -> Any:
        step = stream.current_run_step_snapshot.id
        outputs = [m for m in stream.messages if m.type == "tool_output" and m.step_id == step]
        asked = [c for c in stream.confirmations if c.subject.step_id == step]
        return client.responses.create(
            model="m",
            previous_response_id=stream.current_run.id,
            input=sk.to_input([*outputs, *asked], "openai_responses"),
            stream=True,
        )

    return then


@both_shells
@pytest.mark.parametrize("how", ["approve", "decline", "approve later", "nothing"])
@body
async def test_an_mcp_approval_is_answered_in_the_next_request(face: Face, how: str) -> None:
    """With the real client: one run of two responses; the second was asked for with our answer. Without one it is not."""
    script = [Reply("I need a link.", McpApproval("shorten", {"url": "https://x"}, server_label="zip")), Reply("Done.")]
    with ModelServer(script) as server:
        async with face.client(server) as client:

            def answer(_: Any, asked: sk.Confirmation) -> None:
                match how:
                    case "approve":
                        asked.approve()
                    case "decline":
                        asked.decline("too short")
                    case "approve later":
                        asked.defer(10)
                    case _:
                        pass

            told = face.told(on_confirmation=answer)
            stream = face.stream(
                lambda: client.responses.create(model="m", input="Shorten it.", stream=True), told, then=go_on(client)
            )

            def later() -> None:
                assert server.wait_for_request()
                while how == "approve later" and not stream.ended:
                    for asked in stream.pending.values():
                        asked.approve()
                        return

            async with face.beside(later):
                text = await stream.get_final_text()
            told.check_brackets()
            (outcome,) = told.of("on_confirmation_done")
            assert (outcome.subject.name, outcome.subject.arguments) == ("shorten", {"url": "https://x"})
            if how == "nothing":
                assert (outcome.status, stream.status) == ("unanswered", "requires_action")
                assert told.hooks.count("on_run_requires_action") == 1
                assert [warning.code for warning in stream.warnings] == ["missing-outputs"]
                assert len(server.requests) == 1
                return
            yes = how.startswith("approve")
            assert outcome.status == ("approved" if yes else "declined")
            assert text == "Done."  # the last response's
            second = server.requests[1].body
            answered = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1_1", "approve": yes}
            assert second["input"] == [answered if yes else {**answered, "reason": "too short"}]
            assert second["previous_response_id"] == "resp_1"
            assert len(server.requests) == 2
            assert len(await stream.get_final_run_steps()) == 2


@every_face
@body
async def test_approvals_and_calls_are_answered_together(face: Face) -> None:
    """Several of both, in one request."""
    script = [
        Reply(McpApproval("a"), ToolCall("weather", {"city": "Oslo"}), McpApproval("b"), ToolCall("time")),
        Reply("Done."),
    ]
    with ModelServer(script) as server:
        async with face.client(server) as client:
            told = face.told(
                on_confirmation=lambda _, asked: asked.approve() if asked.subject.name == "a" else asked.decline(),
                on_tool_call_done=lambda _, call: call.respond(call.name) if call.waiting else None,
            )
            stream = face.stream(
                lambda: client.responses.create(model="m", input="Go.", stream=True), told, then=go_on(client)
            )
            assert await stream.get_final_text() == "Done."
            told.check_brackets()
    answers = server.requests[1].body["input"]
    assert {a["call_id"]: a["output"] for a in answers if a["type"] == "function_call_output"} == {
        "call_1_0": "weather",
        "call_1_1": "time",
    }
    assert [a["approve"] for a in answers if a["type"] == "mcp_approval_response"] == [True, False]
    assert len(answers) == 4


@both_shells
@body
async def test_an_approval_without_then_cannot_be_answered(face: Face) -> None:
    """Nobody would hear it."""
    with ModelServer(Reply(McpApproval("a"))) as server:
        async with face.client(server) as client:
            stream = face.stream(
                lambda: client.responses.create(model="m", input="Go.", stream=True),
                face.told(on_confirmation=lambda _, asked: asked.approve()),
            )
            with pytest.raises(sk.UsageError, match="passive"):
                await stream.until_done()


# -- every recording in every protocol


class Said:
    """What of a story every reader wants: the answer's texts, refusals, calls and code."""

    def __init__(self, messages: Iterable[sk.Message], confirmations: Iterable[sk.Confirmation] = ()) -> None:
        self.messages = list(messages)
        self.confirmations = list(confirmations)

    def _text(self, choices: Container[int], *formats: str | None) -> str:
        said = [m for m in self.messages if m.type == "message" and m.role == "assistant" and m.choice in choices]
        return "".join(m.content for m in said if m.format in formats)

    def _calls(self, choices: Container[int]) -> list[sk.ToolCallMessage]:
        return [m for m in self.messages if isinstance(m, sk.ToolCallMessage) and m.choice in choices]

    def in_protocol(self, name: str) -> dict[str, Any]:
        """As far as this protocol can express it, by the table in its encoder."""
        everyone = range(100)
        choices = range(1)
        calls = self._calls(everyone if name in ("streamkit", "openai_chat") else choices)
        code = [m for m in self.messages if m.type == "code"]
        is_text = name in REFUSALS_ARE_TEXT
        told = {
            "text": self._text(choices, *((None, "refusal") if is_text else (None,))),
            "refusal": "" if is_text else self._text(choices, "refusal"),
            "calls": [(call.name, arguments(call.content)) for call in calls],
            "code": [m.content for m in code],
        }
        match name:
            case "openai_chat":
                told["calls"] = [(c.name, arguments(c.content)) for c in calls if not c.provider_executed]
                told["code"] = []
            case "cohere":
                own = [call for call in calls if not call.provider_executed]
                told["calls"] = [
                    (call.name, as_object(call) if call.metadata.get("custom") else arguments(call.content))
                    for call in own
                ]
                told["code"] = []
            case "ollama":
                sent = [call for call in calls if call.status == "completed" and not call.provider_executed]
                told["calls"] = [(call.name, as_object(call)) for call in sent if not call.malformed]
                told["code"] = []
            case "openai_responses":
                subjects = [c.subject for c in self.confirmations if c.subject.metadata.get("item_type") != MCP]
                asked = [
                    s for s in subjects if not s.metadata.get("requires_approval")
                ]  # else the call is the question
                told["calls"] += [(subject.name or "execute", arguments(asked_for(subject))) for subject in asked]
            case "anthropic" | "bedrock_converse":
                told["calls"] = [
                    (c.name, {"input": c.content} if c.metadata.get("custom") else arguments(c.content)) for c in calls
                ]
                told["code"] = told["code"] if name == "anthropic" else []
            case "gemini":
                sent = [call for call in self._calls(everyone) if call.status == "completed"]
                own = [call for call in sent if not call.content and "gemini" in call.metadata]  # without any arguments
                told["calls"] = [(call.name, "" if call in own else as_object(call)) for call in sent]
            case "openai_assistants":
                told["calls"] = [
                    (c.name, "" if c.name == "file_search" and c.provider_executed else arguments(c.content))
                    for c in calls
                ]
            case "letta":
                told["calls"] = [
                    ("run_code", arguments(asked_for(m))) if m.type == "code" else (m.name, arguments(m.content))
                    for m in self.messages
                    if (m.type == "code" and m.role == "assistant") or m in calls
                ]
                told["code"] = []
            case _:
                pass
        if name in (
            "openai_responses",
            "anthropic",
            "openai_assistants",
            "gemini",
        ):  # code to display is none that runs
            told["code"] = [m.content for m in code if m.role == "assistant"]
        return told

    @property
    def as_it_is(self) -> dict[str, Any]:
        calls = [(call.name, arguments(call.content)) for call in self._calls(range(100))]
        code = [m.content for m in self.messages if m.type == "code"]
        return {
            "text": self._text(range(1), None),
            "refusal": self._text(range(1), "refusal"),
            "calls": calls,
            "code": code,
        }


# Recordings that a protocol cannot take, and why.
LOST = {
    # Its call gets another call_id at its end, when its pieces have been sent under the first.
    ("vercel-openai-client-tool-search.1", "letta"),
}
MCP = "mcp_approval_request"
REFUSALS_ARE_TEXT = ("bedrock_converse", "letta", "cohere", "ollama")


def arguments(text: str) -> Any:
    """A call's arguments, apart from the spacing of their JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def as_object(call: sk.ToolCallMessage) -> Any:
    """A call's arguments where they are an object: other text is at a key of one."""
    found = None if call.metadata.get("custom") else arguments(call.content or "{}")
    return found if isinstance(found, dict) else {"input": call.content}


def asked_for(subject: sk.Message) -> str:
    """What a call says that stands for code."""
    if subject.type != "code":
        return subject.content
    return msgspec.json.encode({"code": subject.content, "language": subject.format or ""}).decode()


def told_as(path: Any, name: str) -> tuple[sk.StreamManager, Said]:
    """A recording as this protocol's items, decoded again."""
    stream = sk.stream(path)
    items: list[Any] = []
    with contextlib.suppress(sk.StreamkitError):
        items.extend(stream.chunks(name))
    story = tell_items(protocols.find(name).Decoder, items)
    return stream, Said(story.engine.messages.all)


@pytest.mark.parametrize("to", [*PROTOCOLS, "streamkit"])
@over_all
def test_a_recording_says_the_same_in_every_protocol(path: Path, to: str) -> None:
    """Law 8, for the final texts, refusals, calls and code of each recording: what is lost stands in a table. Of the
    hundreds beside the checkout a sixth is written in each protocol, another one in each."""
    if (path.stem, to) in LOST or (not path.is_relative_to(OWN) and zlib.crc32(f"{path.stem} {to}".encode()) % 6):
        return
    stream, said = told_as(path, to)
    expected, told = Said(stream.messages, stream.confirmations).in_protocol(to), said.as_it_is
    if to == "openai_assistants":
        told["code"] = [code for code in told["code"] if code]  # what printed without code is a call with none
    assert {what: told[what] for what in expected} == expected


@pytest.mark.parametrize("name", protocols.BUILT_IN)
def test_answered_confirmations_may_stand_among_the_input_of_any_protocol(name: str) -> None:
    """Where it takes none they are left out."""
    asked = sk.Confirmation("c1", sk.CodeMessage("m", format="python", content="1"), status="approved")
    hi = sk.TextMessage("t", role="user", content="hi")
    without, given = sk.to_input([hi], name), sk.to_input([asked, hi], name)
    assert given[-1] == without[-1]
    assert len(given) - len(without) == (name in ("openai_responses", "letta"))
