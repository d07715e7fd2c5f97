"""The laws, as properties over generated streams: canonical ones, well-formed or not, and each provider's own.

Law 8 and the recordings have tests of their own, in `tests/protocols` and `tests/test_recorded_streams.py`; laws 9 to
12 in `tests/test_endings.py`, `test_managers.py`, `test_answers.py` and `test_handlers.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.handlers import HOOKS
from streamkit.protocols import codec

from . import values as q
from .telling import Story, tell_bytes, tell_items

often = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seldom = settings(max_examples=36, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CANONICAL = protocols.find("streamkit").Decoder
ENDINGS = ("completed", "incomplete", "failed", "cancelled")

# -- canonical streams, mostly ill-formed: few ids, so that they meet

ids = q.sampled_from(("a", "b", "c", "message-1"))
texts = q.text(q.sampled_from('ab é“\u2028\U0001f600\n"\\'), max_size=5)
values = texts.filter(bool)
families = q.sampled_from(
    (m.TextMessage, m.ReasoningMessage, m.CodeMessage, m.ConsoleMessage, m.ToolCallMessage, m.ImageMessage)
)
statuses = q.sampled_from(ENDINGS)


@q.composite
def deltas(draw: q.Draw) -> e.Event:
    kind = draw(families)
    return kind.delta_event(draw(ids), draw(texts), draw(q.booleans()) and draw(q.booleans()))


@q.composite
def created(draw: q.Draw) -> e.Event:
    kind = draw(families)
    known: dict[str, Any] = {"name": "f", "call_id": draw(ids)} if kind is m.ToolCallMessage else {}
    return kind.created_event(kind(draw(ids), choice=draw(q.integers(0, 1)), **known))


@q.composite
def done(draw: q.Draw) -> e.Event:
    kind = draw(families)
    return e.MessageDone(kind(draw(ids), content=draw(q.none() | texts), status=draw(statuses)))


@q.composite
def confirmations(draw: q.Draw) -> e.Event:
    asked = sk.Confirmation(draw(ids), m.CodeMessage(draw(ids), content="x"), malformed=draw(q.booleans()))
    if draw(q.booleans()):
        return e.ConfirmationCreated(asked)
    asked.status = draw(q.sampled_from(("approved", "declined")))
    return e.ConfirmationDone(asked)


canonical = q.lists(
    q.one_of(
        deltas(),
        deltas(),
        created(),
        done(),
        confirmations(),
        q.builds(e.ActiveLine, ids, q.none() | q.integers(1, 9)),
        q.builds(e.AnnotationAdded, ids, q.builds(m.Annotation, type=q.just("url_citation"), url=values)),
        q.builds(e.Usage, q.integers(0, 9), q.integers(0, 9)),
        q.builds(lambda id: e.RunCreated(e.Run(id=id)), ids),
        q.builds(lambda id: e.RunStepCreated(e.RunStep(id=id)), ids),
        q.builds(lambda id: e.RunStepDone(e.RunStep(id=id)), ids),
        q.builds(lambda status: e.RunDone(e.Run(status=status)), statuses),
        q.builds(lambda: e.RunRequiresAction(e.Run())),
        q.builds(e.RawEvent, values, q.none() | values),
    ),
    max_size=20,
)

# -- providers' streams: several things at once, merged at random


@q.composite
def merged(draw: q.Draw, *, least: int = 1, most: int = 4) -> list[tuple[int, str]]:
    """(which, piece), interleaved; what each is made of keeps its order."""
    parts = draw(q.lists(q.lists(values, min_size=1, max_size=4), min_size=least, max_size=most))
    left = [(which, list(pieces)) for which, pieces in enumerate(parts)]
    out: list[tuple[int, str]] = []
    while left:
        which, pieces = draw(q.sampled_from(left))
        out.append((which, pieces.pop(0)))
        left = [one for one in left if one[1]]
    return out


def joined(parts: Sequence[tuple[int, str]]) -> list[str]:
    return ["".join(piece for which, piece in parts if which == one) for one in sorted({which for which, _ in parts})]


def chat_choices(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each a choice of its own."""
    return _chat(
        [{"index": which, "delta": {"content": piece}} for which, piece in parts], {which for which, _ in parts}
    )


def chat_calls(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each a parallel tool call, whose arguments are a JSON string."""
    begun: set[int] = set()
    choices = []
    for which, piece in parts:
        call: dict[str, Any] = {"index": which, "function": {"arguments": piece}}
        if which not in begun:
            begun.add(which)
            call |= {"id": f"call_{which}", "type": "function"}
            call["function"]["name"] = "f"
        choices.append({"index": 0, "delta": {"tool_calls": [call]}})
    return _chat(choices, {0}, "tool_calls")


def _chat(choices: Iterable[dict[str, Any]], finished: Iterable[int], reason: str = "stop") -> list[dict[str, Any]]:
    ends = [{"index": one, "delta": {}, "finish_reason": reason} for one in sorted(finished)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [{**head, "choices": [choice]} for choice in (*choices, *ends)]


def responses_items(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each an item of its own: texts and calls by turns."""
    out: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}]
    begun: set[int] = set()
    for which, piece in parts:
        text = which % 2 == 0
        place = {"item_id": f"item_{which}", "output_index": which, **({"content_index": 0} if text else {})}
        if which not in begun:
            begun.add(which)
            out.append({"type": "response.output_item.added", "output_index": which, "item": _item(which, "")})
        kind = "response.output_text.delta" if text else "response.function_call_arguments.delta"
        out.append({"type": kind, **place, "delta": piece})
    items = [_item(which, text) for which, text in zip(sorted(begun), joined(parts), strict=True)]
    out += [
        {"type": "response.output_item.done", "output_index": which, "item": item}
        for which, item in zip(sorted(begun), items, strict=True)
    ]
    out.append({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": items}})
    return [{"sequence_number": number, **one} for number, one in enumerate(out)]


def _item(which: int, text: str) -> dict[str, Any]:
    if which % 2 == 0:
        content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        return {
            "id": f"item_{which}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    return {"id": f"item_{which}", "type": "function_call", "call_id": f"c_{which}", "name": "f", "arguments": text}


def interpreter_chunks(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each a message with an id: the only way to interleave."""
    head = {"role": "assistant", "type": "message"}
    which = sorted({one for one, _ in parts})
    return [
        *({**head, "id": f"m{one}", "start": True} for one in which),
        *({**head, "id": f"m{one}", "content": piece} for one, piece in parts),
        *({**head, "id": f"m{one}", "end": True} for one in which),
    ]


PROVIDERS: dict[str, Callable[[Sequence[tuple[int, str]]], list[dict[str, Any]]]] = {
    "openai_chat": chat_choices,
    "openai_chat calls": chat_calls,
    "openai_responses": responses_items,
    "open_interpreter": interpreter_chunks,
}
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


def decoder_of(provider: str) -> type[protocols.Decoder]:
    kind: type[protocols.Decoder] = protocols.find(provider.split()[0]).Decoder
    return kind


def sse(items: Iterable[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items)


# -- what holds of every story


def check_brackets(lines: Sequence[dict[str, Any]]) -> None:
    """Law 1, and the same for runs and their steps."""
    open_messages: dict[str, str] = {}
    closed: set[str] = set()
    runs: list[str] = []
    steps = 0
    for line in lines:
        kind, _, phase = line["type"].rpartition("_")
        match phase, kind:
            case "created", "run":
                assert not runs
                runs.append("created")
            case "done", "run":
                assert runs == ["created"], "a run is done once"
                assert steps == 0, "its step is done before it"
                assert not open_messages, "and its messages"
                runs.append("done")
            case "created", "run_step":
                assert runs == ["created"]
                steps += 1
                assert steps == 1, "one step at a time"
            case "done", "run_step":
                steps -= 1
                assert steps == 0
            case "created", _ if "message" in line:
                id = line["message"]["id"]
                assert id not in open_messages
                assert id not in closed, "created once"
                assert "content" not in line["message"], "empty"
                assert steps == 1, "in a step"
                open_messages[id] = ""
            case "delta", _:
                id = line["message_id"]
                assert id in open_messages, "between created and done"
                open_messages[id] = line["value"] if line.get("replace") else open_messages[id] + line["value"]
                assert line["so far"] == open_messages[id], "law 2: the sum of the deltas"
            case "done", _ if "message" in line:
                id = line["message"]["id"]
                assert line["message"]["content"] == open_messages.pop(id), "law 2"
                assert line["message"].get("status", "completed") in ENDINGS
                closed.add(id)
            case _:
                pass
    assert not open_messages, "each created has its done"
    assert runs in ([], ["created", "done"])


def check_questions(lines: Sequence[dict[str, Any]]) -> None:
    asked = [line["confirmation"]["id"] for line in lines if line["type"] == "confirmation_created"]
    decided = [line["confirmation"]["id"] for line in lines if line["type"] == "confirmation_done"]
    assert sorted(asked) == sorted(decided), "each question gets one outcome"


@pytest.mark.slow
@often
@given(q.drawn(canonical))
def test_law_1_and_2_hold_for_any_events(events: list[e.Event]) -> None:
    """However ill-formed: the engine opens, closes and keeps apart."""
    story = tell_items(CANONICAL, events)
    check_brackets(story.lines)
    check_questions(story.lines)


@pytest.mark.slow
@often
@given(q.drawn(canonical), q.drawn(q.integers(0, 20)), q.drawn(q.sampled_from(("failed", "cancelled", "incomplete"))))
def test_law_1_holds_wherever_a_stream_fails(events: list[e.Event], place: int, status: Any) -> None:
    """What was created is done, with a status that tells how it ended."""
    engine = Engine()
    story = Story(engine, CANONICAL(engine.messages.new_id))
    story.take(engine.complete(story.decoder.feed_items(events[:place])))
    still_open = {message.id for message in engine.messages.all if message.status == "in_progress"}
    story.take(engine.end(status))
    check_brackets(story.lines)
    check_questions(story.lines)
    assert {message.status for message in engine.messages.all if message.id in still_open} <= {status}
    assert list(engine.end("failed")) == [], "an end is told once"


@pytest.mark.slow
@often
@given(q.drawn(canonical))
def test_law_6_completing_twice_changes_nothing(events: list[e.Event]) -> None:
    """As objects, and as text through the codec."""
    first = tell_items(CANONICAL, events)
    lines = [{key: value for key, value in line.items() if key != "so far"} for line in first.lines]
    again = tell_items(CANONICAL, [codec.decode_event(json.dumps(line)) for line in lines])
    assert again.lines == first.lines


@pytest.mark.slow
@often
@given(q.drawn(canonical))
def test_law_7_a_strict_stream_raises_where_a_lenient_one_warns(events: list[e.Event]) -> None:
    """And names the same fault; without a warning both tell the same."""
    lenient = tell_items(CANONICAL, events)
    if lenient.codes:
        with pytest.raises(sk.ProtocolError) as caught:
            tell_items(CANONICAL, events, strict=True)
        assert caught.value.code == lenient.codes[0]
    else:
        assert tell_items(CANONICAL, events, strict=True).lines == lenient.lines


@pytest.mark.slow
@every_provider
@often
@given(q.drawn(merged()))
def test_law_5_interleaved_things_are_kept_apart(provider: str, parts: list[tuple[int, str]]) -> None:
    """Each has the text that it would have alone, in the order in which they began; and laws 1 and 2 hold."""
    story = tell_items(decoder_of(provider), PROVIDERS[provider](parts))
    check_brackets(story.lines)
    alone = joined(parts)
    assert sorted(message.content for message in story.engine.messages.all) == sorted(alone)
    assert set(story.codes) <= {"bad-arguments"}, "a call's arguments here are any text"


@pytest.mark.slow
@every_provider
@often
@given(q.drawn(merged()), st.data())
def test_law_1_holds_however_a_providers_stream_is_cut_off(
    provider: str, parts: list[tuple[int, str]], data: st.DataObject
) -> None:
    """And what arrived is kept."""
    items = PROVIDERS[provider](parts)
    place = data.draw(st.integers(0, len(items)))
    story = tell_items(decoder_of(provider), items[:place])
    check_brackets(story.lines)


@pytest.mark.slow
@every_provider
@often
@given(q.drawn(merged()), st.data())
def test_law_3_any_cut_of_the_bytes_tells_the_same_story(
    provider: str, parts: list[tuple[int, str]], data: st.DataObject
) -> None:
    """With line feeds, carriage returns or both, a byte order mark, comments and ids, cut anywhere."""
    body = sse(PROVIDERS[provider](parts))
    noise = data.draw(st.sampled_from((b"", b": ping\n\n", b"id: 7\n", b"retry: 3\n\n", b"event: e\n")))
    body = data.draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + body.replace(b"data: ", noise + b"data: ")
    body = body.replace(b"\n", data.draw(st.sampled_from((b"\n", b"\r\n", b"\r"))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert tell_bytes(decoder_of(provider), pieces).lines == tell_bytes(decoder_of(provider), [body]).lines


def ag_ui_texts(ids: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}]
    for id in ids:
        phases = ("START", {"role": "assistant"}), ("CONTENT", {"delta": id or "none"}), ("END", {})
        out += [{"type": f"TEXT_MESSAGE_{phase}", "messageId": id, **more} for phase, more in phases]
    return [*out, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}]


def assistants_texts(ids: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"event": "thread.run.created", "data": {"id": "r", "object": "thread.run"}}]
    for id in ids:
        content = [{"type": "text", "text": {"value": id or "none", "annotations": []}}]
        message = {"id": id, "object": "thread.message", "role": "assistant", "content": content, "status": "completed"}
        out.append({"event": "thread.message.completed", "data": message})
    return [*out, {"event": "thread.run.completed", "data": {"id": "r", "object": "thread.run", "status": "completed"}}]


def letta_texts(ids: Sequence[str]) -> list[dict[str, Any]]:
    out = [
        {"id": id, "message_type": kind, key: id or "none"}
        for id in ids
        for kind, key in (("assistant_message", "content"), ("reasoning_message", "reasoning"))
    ]
    return [*out, {"message_type": "stop_reason", "stop_reason": "end_turn"}]


def responses_texts(ids: Sequence[str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{**_item(0, id or "none"), "id": id} for id in ids]
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(items)
    ]
    speech = [{"type": "response.audio.transcript.delta", "delta": "spoken"}]
    return [*done, *speech, {"type": "response.completed", "response": {"id": "r", "status": "completed"}}]


def vercel_texts(ids: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"type": "start"}]
    for id in ids:
        out += [{"type": "text-start", "id": id}, {"type": "text-delta", "id": id, "delta": id or "none"}]
        out.append({"type": "text-end", "id": id})
    return [*out, {"type": "finish"}]


@pytest.mark.parametrize(
    ("protocol", "texts_with"),
    [
        ("ag_ui", ag_ui_texts),
        ("letta", letta_texts),
        ("openai_assistants", assistants_texts),
        ("openai_responses", responses_texts),
        ("vercel_ui", vercel_texts),
    ],
)
def test_law_3_ids_that_are_made_do_not_depend_on_the_cut(protocol: str, texts_with: Any) -> None:
    """Though the wire has some that look like them. An id that is made for one message is no other's."""
    ids = "message-1", "message-1.2", ""
    pieces = [b"data: " + json.dumps(item).encode() + b"\n\n" for item in texts_with(ids)]
    kind = decoder_of(protocol)
    whole = tell_bytes(kind, [b"".join(pieces)])
    for start in range(len(pieces)):
        assert tell_bytes(kind, [*pieces[:start], b"".join(pieces[start:])]).lines == whole.lines
    contents = [message.content for message in whole.engine.messages.all if message.type == "message"]
    assert contents[: len(ids)] == [id or "none" for id in ids]
    assert contents[len(ids) :] == (["spoken"] if protocol == "openai_responses" else [])
    made = [message.id for message in whole.engine.messages.all]
    assert len({*made}) == len(made)


def test_ids_that_are_made_are_free_among_the_messages_before_the_source() -> None:
    """So the engine need not give a message another id than its decoder does, which would cost time at each delta."""
    engine = Engine()
    engine.messages.reserve([m.TextMessage("message-1")])
    assert [*engine.complete([e.TextDelta("message-3", "a"), e.MessageDone(m.TextMessage("message-3"))])]
    engine.messages.begin_source()
    assert [engine.messages.new_id() for _ in range(4)] == ["message-1.2", "message-2", "message-3.2", "message-4"]


wire = q.recursive(
    q.none() | q.booleans() | q.integers(-3, 3) | q.floats() | texts,
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(texts, inner, max_size=3),
    depth=3,
)


@pytest.mark.slow
@every_provider
@often
@given(q.drawn(merged()), st.data())
def test_law_7_no_damage_to_an_item_raises_anything_but_our_own_errors(
    provider: str, parts: list[tuple[int, str]], data: st.DataObject
) -> None:
    """A value anywhere in a stream becomes any other value; the whole public face, strict or not."""
    items = json.loads(json.dumps(PROVIDERS[provider](parts)))
    for _ in range(data.draw(st.integers(1, 3))):
        _damage(items, data)
    for strict in (False, True):
        stream = sk.stream(items, protocol=provider.split()[0], strict=strict)
        try:
            stream.until_done()
        except sk.ProtocolError as error:
            assert strict
            assert error.code
            assert error.fault in str(error)
            assert error.index is None or 0 <= error.index < len(items)
        except sk.StreamkitError as error:
            assert list(error.messages) == list(stream.messages), "nothing that arrived is lost"
        assert "decoder-error" not in {warning.code for warning in stream.warnings}


def _damage(items: list[Any], data: st.DataObject) -> None:
    place: Any = items
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()) is False:
            place[key] = data.draw(q.drawn(wire))
            return
        place = place[key]


@often
@given(
    q.drawn(
        q.lists(
            q.binary(max_size=40) | q.sampled_from((b"data: ", b"{}", b"\n\n", b"[DONE]", b"event: x\n", b'{"a":')),
            max_size=8,
        )
    )
)
def test_law_7_no_bytes_raise_anything_but_our_own_errors(pieces: list[bytes]) -> None:
    """Recognition and framing included. `[DONE]` alone is a stream that is complete, and empty."""
    may_be_complete = b"[DONE]" in b"".join(pieces)
    with contextlib.suppress(sk.StreamkitError) if may_be_complete else pytest.raises(sk.StreamkitError):
        sk.stream(pieces).until_done()


# -- law 4


def tellers(told: list[Any]) -> tuple[sk.EventHandler, sk.AsyncEventHandler]:
    """A sync and an async handler that override every hook there is, and write down what they are told."""

    def plain(value: Any) -> Any:
        if isinstance(value, e.Event):
            return codec.event_to_dict(value)
        if isinstance(value, (m.Message, sk.Confirmation)):
            return value.to_dict()
        if isinstance(value, (sk.Run, sk.RunStep)):
            return (value.id, value.status)
        return repr(value)

    def sync_hook(name: str) -> Any:
        return lambda self, *arguments: told.append((name, *map(plain, arguments)))

    def async_hook(name: str) -> Any:
        async def hook(self: Any, *arguments: Any) -> None:
            told.append((name, *map(plain, arguments)))

        return hook

    sync_kind = type("Sync", (sk.EventHandler,), {name: sync_hook(name) for name in HOOKS})
    async_kind = type("Async", (sk.AsyncEventHandler,), {name: async_hook(name) for name in HOOKS})
    return sync_kind(), async_kind()


@pytest.mark.slow
@every_provider
@seldom
@given(q.drawn(merged()), q.drawn(q.booleans()), st.data())
def test_law_4_sync_asyncio_and_trio_tell_the_same_story(
    provider: str, parts: list[tuple[int, str]], as_bytes: bool, data: st.DataObject
) -> None:
    """Every hook with its arguments, for whole streams and for streams that are cut off."""
    items: list[Any] = PROVIDERS[provider](parts)
    items = items[: data.draw(st.integers(0, len(items)))]
    source: list[Any] = [sse([item]) for item in items] if as_bytes else items
    stories: list[list[Any]] = []
    for backend in ("sync", "asyncio", "trio"):
        told: list[Any] = []
        handler, async_handler = tellers(told)
        try:
            if backend == "sync":
                sk.stream(source, handler).until_done()
            else:
                anyio.run(lambda: sk.astream(source, async_handler).until_done(), backend=backend)  # noqa: B023
        except sk.StreamkitError as error:
            told.append(str(error))
        stories.append(told)
    assert stories[0] == stories[1] == stories[2]
    assert stories[0][-1][0] == "on_end" or isinstance(stories[0][-1], str)


@every_provider
@seldom
@given(q.drawn(merged()))
def test_law_6_a_stream_over_a_stream_tells_the_same_hooks(provider: str, parts: list[tuple[int, str]]) -> None:
    """Chained, each with a handler of its own."""
    inner: list[Any] = []
    outer: list[Any] = []
    sk.stream(sk.stream(PROVIDERS[provider](parts), tellers(inner)[0]), tellers(outer)[0]).until_done()
    assert outer == inner
