"""A replay is as the stream was: the same events, warnings, messages and ending, whatever the source and however it ended.

Each case is recorded, replayed, and the replay recorded and replayed again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

import streamkit as sk
from streamkit import events as events_of
from streamkit.protocols import codec
from streamkit.protocols.anthropic import Decoder as AnthropicDecoder
from streamkit.protocols.open_interpreter.decoder import WebsocketDecoder
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import (
    FACES,
    Face,
    Shaped,
    Source,
    ask,
    ask_responses,
    body,
    both_shells,
    calls,
    chat,
    every_face,
    every_pair,
    interpreter,
)
from .recorded import own_recordings

FOLDERS = {
    "openai-responses": "openai_responses",
    "openai-chat": "openai_chat",
    "openai-assistants": "openai_assistants",
    "anthropic-messages": "anthropic",
    "letta": "letta",
    "open-interpreter": "open_interpreter",
}
QUESTION = interpreter()[4]


class Events(sk.Handler):
    """Collects every event, with its snapshot's content."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def handle(self, event: sk.Event, /) -> None:
        line = codec.event_to_dict(event, keep_surrogates=True)
        if (snapshot := getattr(event, "snapshot", None)) is not None:
            line["so far"] = snapshot.content
        self.events.append(line)


async def course_of(face: Face, source: Any, *handlers: sk.Handler, **options: Any) -> dict[str, Any]:
    """All that a stream is: its events with their snapshots, its warnings, messages, status and error."""
    collected = Events()
    stream = face.stream(source, collected, *handlers, **options)
    failure: str | None = None
    try:
        await stream.until_done()
    except sk.StreamkitError as error:
        failure = f"{type(error).__name__}: {error}"
    return {
        "events": collected.events,
        "warnings": [(warning.code, warning.fault, warning.index) for warning in stream.warnings],
        "messages": [message.to_dict() for message in stream.messages],
        "status": stream.status,
        "error": failure,
    }


async def check_replay(
    face: Face, source: Any, folder: Path, *handlers: sk.Handler, again: Any = None, **options: Any
) -> dict[str, Any]:
    """Record a stream, and compare it with its replay and the replay of that. `again` are the replays' own options."""
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    for path in (first, second):
        path.unlink(missing_ok=True)
    live = await course_of(face, source, *handlers, sk.Recorder(first), **options)
    assert await course_of(face, first, sk.Recorder(second), **(again or {})) == live
    assert await course_of(face, second, **(again or {})) == live
    return live


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


# -- what a source was read with


@both_shells
@body
async def test_a_recording_is_read_with_the_protocol_that_was_named(face: Face, tmp_path: Path) -> None:
    """Also where no item of it has a shape of its own, or none is of that protocol."""
    unmarked = [{"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}]
    live = await check_replay(face, unmarked, tmp_path, protocol="openai_completions")
    assert live["status"] == "completed"
    live = await check_replay(face, chat("Hello"), tmp_path, protocol="letta")
    assert live["error"] == "IncompleteStreamError: none of the source's 3 items is one of letta; is `protocol=` right?"
    assert json.loads((tmp_path / "first.jsonl").read_text().splitlines()[1])["protocol"] == "letta"


def test_another_protocol_may_be_named_for_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(chat("Hello"), sk.Recorder(path), protocol="letta").until_done()
    assert sk.stream(path, protocol="openai_chat").get_final_text() == "Hello"


def test_a_recording_without_the_protocol_is_recognised(tmp_path: Path) -> None:
    """As those that earlier versions wrote."""
    path = tmp_path / "run.jsonl"
    sk.stream(chat("Hello"), sk.Recorder(path), protocol="openai_chat").until_done()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [{key: line[key] for key in line if key not in ("protocol", "parsed")} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sk.stream(path).get_final_text() == "Hello"


def test_a_decoder_that_is_not_installed_is_to_be_named_again(tmp_path: Path) -> None:
    """Its name might find another one, as that of the websocket's decoder does."""

    class Unknown(AnthropicDecoder):
        name = "unknown"

    for kind in (Unknown, WebsocketDecoder):
        path = tmp_path / kind.name
        sk.stream(interpreter()[-3:], sk.Recorder(path), protocol=WebsocketDecoder).until_done()
        assert '"protocol"' not in path.read_text().splitlines()[1]
        assert sk.stream(path, protocol=WebsocketDecoder).get_final_text() == "About 1.4."


@both_shells
@body
async def test_items_that_were_no_bytes_are_read_as_such(face: Face, tmp_path: Path) -> None:
    """Values that are no objects, and items without the event name that bytes would have."""
    run = {"id": "run_1", "object": "thread.run", "status": "completed"}
    live = await check_replay(face, [run, None, 5, True, [run]], tmp_path, protocol="openai_assistants")
    assert [code for code, _, _ in live["warnings"]].count("not-an-object") == 4


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@both_shells
@body
async def test_items_that_json_cannot_hold_replay_as_they_were(face: Face, tmp_path: Path) -> None:
    """Nested too deep, or containing themselves; with NaN and infinities, or half of a surrogate pair; not a dict."""
    first, *rest = chat("Hel", "lo")
    itself: dict[str, Any] = {**rest[0]}
    itself["first"] = itself["second"] = itself
    for odd in (
        {**rest[0], "x": deep(300)},
        {**rest[0], "x": deep(198)},
        itself,
        {**rest[0], "choices": [{**rest[0]["choices"][0], "index": float("inf")}]},
        {**rest[0], "created": float("nan")},
        {**rest[0], "model": "\ud83d"},
        MappingProxyType(rest[0]),
    ):
        live = await check_replay(face, [first, odd, *rest[1:]], tmp_path)
        assert live["messages"][0]["content"] == "Hello"
    for levels in (196, 197, 198, 199, 200, 201):
        content = "".join(
            f"data: {json.dumps(item)}\n\n" for item in [first, {**rest[0], "x": deep(levels)}, *rest[1:]]
        )
        await check_replay(face, [content.encode()], tmp_path)


# -- cut off, or damaged


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_body_that_is_cut_off_anywhere_replays_with_the_same_end(folder: str, tmp_path: Path) -> None:
    """Between two items, within one, before the first: its error says where."""
    choice = random.Random(1)

    async def check() -> None:
        for path in own_recordings(folder):
            content = path.read_bytes()
            for cut in choice.sample(range(len(content)), 4):
                source = iter(pieces(content[:cut], choice.choice([7, 100, 100_000])))
                protocol = choice.choice([None, FOLDERS[folder]])
                await check_replay(FACES["sync"], source, tmp_path, protocol=protocol)

    FACES["sync"].run(check)


DAMAGE = (b"\xff", b'"', b"{", b"\n", b"\n\n", b"\xed\xa0\x80", b"\\ud83d", b"data: [DONE]\n\n", b"NaN")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_damaged_body_replays_with_the_same_events(folder: str, tmp_path: Path) -> None:
    """However it came: as pieces, from a live producer, from a file."""
    choice = random.Random(2)

    async def check() -> None:
        for path in own_recordings(folder):
            for _ in range(5):
                content = bytearray(path.read_bytes())
                for _ in range(choice.randrange(3)):
                    place = choice.randrange(len(content))
                    content[place : place + choice.choice([0, 0, 20])] = choice.choice(DAMAGE)
                chunks = pieces(bytes(content), choice.choice([7, 100, 100_000]))
                protocol = choice.choice([None, FOLDERS[folder]])
                source = iter(chunks) if choice.randrange(2) else chunks
                await check_replay(FACES["sync"], source, tmp_path, protocol=protocol)

    FACES["sync"].run(check)


@every_pair
@both_shells
@pytest.mark.parametrize(
    "content", [b"<html>No such page</html>\n", b"", b"event: ping\n\n", b"\xef\xbb", b'{"id": "a']
)
@pytest.mark.parametrize("protocol", [None, "letta"])
@body
async def test_what_was_no_stream_replays_as_none(
    face: Face, content: bytes, protocol: str | None, tmp_path: Path
) -> None:
    live = await check_replay(face, [content], tmp_path, protocol=protocol)
    assert live["error"] is not None


@both_shells
@body
async def test_an_interpreters_body_that_is_cut_within_an_item_is_incomplete(face: Face, tmp_path: Path) -> None:
    """Although no message is open there: the item was to begin one."""
    content = b"".join(json.dumps(item).encode() + b"\n" for item in interpreter()[-3:])
    for rest in (b"{", b'{"role": "assistant", "type": "mess', b'"', b"nul"):
        for size in (1, 1000):
            live = await check_replay(face, iter(pieces(content + rest, size)), tmp_path)
            assert live["status"] == "incomplete"
            assert "it ended in the middle of an item" in live["error"]
            assert [message["content"] for message in live["messages"]] == ["About 1.4."]


@both_shells
@body
async def test_an_item_that_was_too_long_fails_the_replay_too(face: Face, tmp_path: Path) -> None:
    """It is not in the recording, and what was before it is."""
    items = [*chat("Hello", finish=None), *chat("x" * 5000)]
    content = "".join(f"data: {json.dumps(item)}\n\n" for item in items).encode()
    live = await check_replay(face, [content], tmp_path, limits=sk.Limits(line=1000))
    assert live["error"].startswith("LimitError")
    assert live["messages"][0]["content"] == "Hello"


def test_the_shape_of_an_item_is_looked_for_among_as_many_items_however_they_come() -> None:
    """In one batch or each by itself."""
    unknown = [{"n": number} for number in range(199)]
    for items in (unknown, [*unknown, {}, {}]):
        body = "".join(json.dumps(item) + "\n" for item in [*items, *chat("Hello")]).encode()
        ends = set()
        for source in ([body], iter(pieces(body, 50)), [*items, *chat("Hello")], iter([*items, *chat("Hello")])):
            stream = sk.stream(source)
            try:
                ends.add(stream.get_final_text())
            except sk.ProtocolError as error:
                ends.add(error.code)
        assert ends == {"Hello" if items is unknown else "unknown-protocol"}


@pytest.mark.parametrize("at", range(4))
@both_shells
@body
async def test_bytes_and_objects_may_come_from_one_source(face: Face, at: int, tmp_path: Path) -> None:
    """Also before its protocol is recognised."""
    items: list[Any] = [{"n": 1}, *chat("Hel", "lo")]
    for place in {at, 0}:
        items[place] = f"data: {json.dumps(items[place])}\n\n".encode()
        live = await check_replay(face, items, tmp_path)
        assert live["messages"][0]["content"] == "Hello"


# -- questions and answers


def decides(how: str) -> Callable[[Any, sk.Confirmation], None]:
    def hook(_: Any, confirmation: sk.Confirmation) -> None:
        if how == "approve":
            confirmation.approve()
        elif how == "decline":
            confirmation.decline("because")

    return hook


MALFORMED = {**QUESTION, "content": {"type": "code", "format": "python"}}
MISSPELLED = {**QUESTION, "type": "Confirmation "}
QUESTIONS = {
    "in order": interpreter(),
    "malformed": [*interpreter()[:4], MALFORMED, *interpreter()[5:]],
    "misspelled, first": [MISSPELLED, *interpreter()[5:]],
    "in another protocol": [*chat("Hel", finish=None), QUESTION, *interpreter()[5:], *chat("lo")],
    "at the end": [*interpreter(), QUESTION],
}


def as_body(items: Iterable[Any]) -> list[bytes]:
    return [b"".join(json.dumps(item).encode() + b"\n" for item in items)]


@every_pair
@both_shells
@pytest.mark.parametrize("how", ["approve", "decline", "no answer"])
@pytest.mark.parametrize("items", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("shape", [list, as_body], ids=["items", "one piece"])
@body
async def test_the_questions_of_a_live_producer_replay_with_their_outcomes(
    face: Face, items: list[Any], how: str, shape: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Also where what follows came in one piece with them; with the reasons."""
    told = face.told(on_confirmation=lambda told, asked: decides(how)(told, asked) if asked.waiting else None)
    live = await check_replay(face, face.generator(Source(shape(items))), tmp_path, told)
    outcomes = [event["confirmation"] for event in live["events"] if event["type"] == "confirmation_done"]
    assert outcomes
    if how == "decline" and items is QUESTIONS["in order"]:
        assert outcomes[0]["reason"] == "because"


@both_shells
@body
async def test_a_damaged_question_replays_as_declined(face: Face, tmp_path: Path) -> None:
    """Whatever byte of it: a live producer is not pulled past it, and ends as completed."""
    items = interpreter()
    line = json.dumps(QUESTION).encode()
    for place in range(0, len(line), 7):
        for byte in (b"\xff", b"}", b"x"):
            damaged = line[:place] + byte + line[place + 1 :]
            source = Source([*as_body(items[:4]), damaged + b"\n", *as_body(items[5:])])
            await check_replay(face, face.generator(source), tmp_path)


@both_shells
@body
async def test_answers_that_came_after_the_sources_end_replay_there(face: Face, tmp_path: Path) -> None:
    """The run required an action first."""

    def answer(told: Any, run: sk.Run) -> None:
        for call in told.stream.pending.values():
            call.respond("ok")

    then = [chat("Done.")]
    told = face.told(on_run_requires_action=answer)
    live = await check_replay(face, calls("one", "two"), tmp_path, told, then=lambda _: then.pop())
    types = [event["type"] for event in live["events"]]
    assert types.index("run_requires_action") < types.index("tool_output_done")
    assert live["messages"][-1]["content"] == "Done."


@both_shells
@body
async def test_answers_that_came_at_once_replay_before_the_sources_end(face: Face, tmp_path: Path) -> None:
    """Nothing waited for them, so that no action was required."""
    then = [chat("Done.")]
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    live = await check_replay(face, calls("one", "two"), tmp_path, told, then=lambda _: then.pop())
    assert "run_requires_action" not in [event["type"] for event in live["events"]]


@every_face
@body
async def test_answers_to_a_call_that_only_the_sources_end_closed_replay_after_it(face: Face, tmp_path: Path) -> None:
    """And awaitables, whose outputs come later than they were promised."""
    open_calls = [*calls("one"), *chat("", finish=None)]
    open_calls[-2]["choices"][0]["finish_reason"] = None
    open_calls.append({**open_calls[0], "choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]})

    async def later() -> str:
        await anyio.lowlevel.checkpoint()
        return "ok"

    def answer(_: Any, call: sk.ToolCallMessage) -> None:
        call.respond(later() if face.is_async else "ok")

    for source in (calls("one", "two"), [{"n": 1}, *open_calls, b"data: [DONE]"]):
        then = [chat("Done.")]
        told = face.told(on_tool_call_done=answer)
        live = await check_replay(face, source, tmp_path, told, then=lambda _, then=then: then.pop())
        types = [event["type"] for event in live["events"]]
        assert "tool_output_done" in types
        assert "run_requires_action" not in types


@both_shells
@pytest.mark.parametrize("strict", [False, True])
@body
async def test_the_warning_that_outputs_are_missing_replays(face: Face, *, strict: bool, tmp_path: Path) -> None:
    """It is about the application, so that no strict replay raises it."""
    told = face.told(on_run_requires_action=lambda told, _: told.stream.pending["call_0"].respond("ok"))
    live = await check_replay(
        face, calls("one", "two"), tmp_path, told, then=lambda _: None, strict=strict, again={"strict": strict}
    )
    assert [code for code, _, _ in live["warnings"]] == ["missing-outputs"]


# -- other ends


@every_face
@body
async def test_a_stream_that_was_stopped_replays_as_cancelled(face: Face, tmp_path: Path) -> None:
    """Nothing is raised. What had arrived by then is there, with what came in the same batch."""
    told = face.told(on_text_delta=lambda told, *_: told.stream.cancel())
    live = await check_replay(face, face.generator(Source(chat("Hel", "lo"))), tmp_path, told)
    assert (live["status"], live["error"]) == ("cancelled", None)
    told = face.told(on_text_delta=lambda told, *_: told.stream.cancel())
    await face.stream(chat("Hel", "lo"), told, sk.Recorder(tmp_path / "batch")).until_done()
    again = face.stream(tmp_path / "batch")
    assert [message.content for message in await again.get_final_messages()] == ["Hello"]
    assert again.status == "cancelled"


@every_face
@body
async def test_a_run_that_was_recorded_after_a_stopped_one_is_replayed_too(face: Face, tmp_path: Path) -> None:
    """Only the last end counts."""
    path = tmp_path / "run.jsonl"
    told = face.told(on_text_delta=lambda told, *_: told.stream.cancel())
    await face.stream(face.generator(Source(chat("Hel", "lo"))), told, sk.Recorder(path)).until_done()
    await face.stream(chat("Hello"), sk.Recorder(path)).until_done()
    again = face.stream(path)
    assert [message.content for message in await again.get_final_messages()] == ["Hel", "Hello"]
    assert again.status == "completed"


@both_shells
@body
async def test_a_failure_after_late_answers_comes_after_them(face: Face, tmp_path: Path) -> None:
    """As that of the next request."""

    def answer(told: Any, run: sk.Run) -> None:
        told.stream.pending["call_0"].respond("ok")

    def fail(_: Any) -> Any:
        raise ConnectionError("refused")

    told = face.told(on_run_requires_action=answer)
    live = await check_replay(face, calls("one"), tmp_path, told, then=fail)
    assert live["error"] == "SourceError: ConnectionError: refused"
    assert "tool_output_done" in [event["type"] for event in live["events"]]


def _producer(request: Callable[[], Any]) -> Source:
    """A producer of the objects that a client makes of a stream, and of the error that it ends with."""
    objects: list[Any] = []
    try:
        for one in request():
            objects.append(one)
    except Exception as error:
        return Source(objects, error=error)
    return Source(objects)


REPLIES = {
    "text": Reply("Hello there"),
    "calls": Reply("Well.", ToolCall("a", {"x": 1}), ToolCall("b", {"y": "é\u2028"})),
    "cut": Reply("Hello there", cut_after=2),
    "status": Reply(status=500),
}


@every_pair
@both_shells
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("request_of", [ask, ask_responses])
@pytest.mark.parametrize("objects", [False, True], ids=["bytes", "objects"])
@body
async def test_a_real_clients_stream_replays_as_it_was(
    face: Face, reply: Reply, request_of: Any, *, objects: bool, tmp_path: Path
) -> None:
    """As the response's bytes, and as the client's own objects."""
    with ModelServer(reply) as server:
        async with face.client(server) as client:
            source = request_of(client)
            if objects:
                with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as sync_client:
                    source = face.generator(_producer(request_of(sync_client)))
            await check_replay(face, source, tmp_path)


# -- other sources


@both_shells
@body
async def test_a_run_that_had_too_many_steps_replays_as_that(face: Face, tmp_path: Path) -> None:
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    live = await check_replay(face, calls("one"), tmp_path, told, then=lambda _: calls("again"), max_steps=2)
    assert live["status"] == "incomplete"


@both_shells
@body
async def test_the_readers_of_an_emitter_are_recorded_with_their_cursors(face: Face, tmp_path: Path) -> None:
    """Lanes: one of them asks, while another one runs its code."""
    with sk.Emitter() as emitter:
        first, second = emitter.lane("first"), emitter.lane("second")
        first.text("Hello")
        first.code("one()", "python")
        second.code("two()", "python")
        second.console("ran", "stdout")
        second.text("\ud83d")
    live = await check_replay(face, emitter, tmp_path)
    again = face.stream(tmp_path / "first.jsonl", after=live["events"][4]["cursor"])
    await again.until_done()
    assert [message.to_dict() for message in again.messages] == live["messages"]


def test_canonical_events_from_the_wire_have_the_outcomes_of_their_questions() -> None:
    """Code of a parallel agent runs before one of them: that approves nothing."""
    asked = sk.Confirmation("c", sk.CodeMessage("code-1", format="python", content="one()"))
    console = sk.ConsoleMessage("console-1", role="computer", format="output")
    declined = sk.Confirmation("c", asked.subject, status="declined")
    events = [
        events_of.ConfirmationCreated(asked),
        events_of.ConsoleCreated(console),
        events_of.ConsoleDelta("console-1", "ran"),
        events_of.ConfirmationDone(declined),
        events_of.StreamEnd(),
    ]
    for source in (events, [codec.event_to_dict(event) for event in events]):
        stream = sk.stream(source, protocol="streamkit")
        stream.until_done()
        assert [confirmation.status for confirmation in stream.confirmations] == ["declined"]


@both_shells
@pytest.mark.parametrize("protocol", ["open_interpreter", "openai_chat", "anthropic", "streamkit"])
@body
async def test_the_chunks_of_another_stream_replay_as_they_were(face: Face, protocol: str, tmp_path: Path) -> None:
    """With the answers that went through to that stream."""
    for how in ("approve", "decline"):
        told = face.told(on_confirmation=lambda told, asked, how=how: decides(how)(told, asked))
        inner = face.stream(face.generator(Source(interpreter())))
        source = inner.manager if isinstance(inner, Shaped) else inner
        await check_replay(face, source.chunks(protocol), tmp_path, *([told] if protocol == "open_interpreter" else []))
