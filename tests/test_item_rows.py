"""Items that an iterator yields one by one: each is delivered before the next is pulled, and a stream of them is the same as
one of a list."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import streamkit as sk

from .faces import Face, body, chat, every_face
from .recorded import each_recording
from .test_cancelling import Silent
from .test_nested_sources import first_source
from .test_parsed_items import TYPED, items_of, responses, thread
from .test_recorded_streams import FOLDERS, name_of

WORDS = [*"abcdefgh"]


class Noting(sk.EventHandler):
    """Each event as it was when it came: with the cursor, and what the snapshot was."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_event(self, event: sk.Event) -> None:
        stream: Any = self.stream
        snapshot = getattr(event, "snapshot", None)
        content = snapshot.content if snapshot is not None else None
        self.seen.append(
            (event.type, event.raw, event.cursor, event.position, event.item_index, stream.cursor, content)
        )


@each_recording(*(FOLDERS[name] for name in TYPED), only=lambda path: path.stem != "conformance")
def test_an_iterator_gives_what_a_list_gives(path: Any) -> None:
    """Events, their places and the stream's cursor at each; with an item of another kind, or without a position, anywhere."""
    name, items = name_of(path), items_of(path)[:40]
    without = [
        {key: value for key, value in item.items() if key != "sequence_number"} if number % 3 == 0 else item
        for number, item in enumerate(items)
    ]
    for some in (items, without, [*items[:9], "\n", *items[9:]]):
        told: list[list[Any]] = []
        for source in (some, iter(some)):
            handler = Noting()
            try:
                sk.stream(source, handler, protocol=name).until_done()
            except sk.StreamkitError as error:
                handler.seen.append(repr(error))
            told.append(handler.seen)
        assert told[0] == told[1]


@every_face
@body
async def test_each_item_is_delivered_before_the_next_is_pulled(face: Face) -> None:
    """To hooks, and to whoever iterates."""
    course: list[str] = []

    def items() -> Iterator[Any]:
        for item in chat(*WORDS):
            course.append("pull")
            yield item

    async with face.stream(
        items(), face.told(on_text_delta=lambda _, delta, snapshot: course.append("hook"))
    ) as stream:
        async for text in stream.text_deltas:
            course.append(text)
    places = [course.index(word) for word in WORDS]
    assert [course[place - 2 : place] for place in places] == [["pull", "hook"]] * len(WORDS)
    assert places == sorted(places)


@every_face
@body
async def test_an_error_of_the_iterator_comes_after_what_it_yielded(face: Face) -> None:
    def items() -> Iterator[Any]:
        yield from chat(*WORDS, finish=None)[:6]
        raise ValueError("it broke")

    stream = face.stream(items())
    with pytest.raises(sk.SourceError, match="it broke") as raised:
        await stream.until_done()
    assert isinstance(raised.value.__cause__, ValueError)
    assert [message.content for message in stream.messages] == ["abcde"]


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_an_iterator_may_end_its_own_stream(end: str) -> None:
    """Its own code runs when it does, so it is closed when it returns."""
    course: list[str] = []

    def items() -> Iterator[Any]:
        try:
            for number, item in enumerate(chat(*WORDS)):
                if number == 5:
                    getattr(stream, end)()
                    course.append("ended")
                yield item
        finally:
            course.append("closed")

    stream = sk.stream(items())
    stream.until_done()
    assert stream.status == "cancelled"
    assert course == ["ended", "closed"]
    assert stream.messages[0].content == "abcd"


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_what_an_iterator_raises_after_it_ended_its_own_stream_is_no_failure(end: str) -> None:
    """Its connection, say, was closed with the stream."""

    def items() -> Iterator[Any]:
        yield from chat(*WORDS, finish=None)
        getattr(stream, end)()
        raise ValueError("it is closed")

    stream = sk.stream(items())
    stream.until_done()
    assert (stream.status, stream.messages[0].content) == ("cancelled", "abcdefgh")


def test_cancel_ends_a_wait_of_the_iterator() -> None:
    """In the middle of an answer, from another thread."""
    with Silent() as server, httpx.Client(timeout=None) as client:

        def items() -> Iterator[Any]:
            yield from chat("a", "b", finish=None)
            with client.stream("POST", server.url) as response:
                yield from response.iter_lines()

        stream = sk.stream(items())
        threading.Thread(target=lambda: server.asked.wait(20) and stream.cancel()).start()
        stream.until_done()
    assert (stream.status, stream.messages[0].content) == ("cancelled", "ab")


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_a_hook_ends_the_stream_at_once(end: str) -> None:
    """Nothing more is pulled, and the iterator is closed when `close` returns."""
    course: list[Any] = []

    def items() -> Iterator[Any]:
        try:
            for item in chat(*WORDS):
                course.append("pull")
                yield item
        finally:
            course.append("closed")

    class Ending(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            if snapshot.content == "abc":
                getattr(self.stream, end)()
                course.append("ended")

    stream = sk.stream(items(), Ending())
    stream.until_done()
    assert stream.messages[0].content == "abc"
    ending = ["closed", "ended"] if end == "close" else ["ended", "closed"]
    assert course[-3:] == ["pull", *ending]


def test_what_another_thread_answers_is_delivered_before_the_next_item() -> None:
    """As the output of a call, while the answer goes on."""
    call = {"id": "t", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    called = [{"type": f"response.output_item.{end}", "output_index": 1, "item": call} for end in ("added", "done")]
    begin, *words = responses(*({"type": "response.output_text.delta", "delta": word} for word in WORDS))
    end = {"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed"}}
    course: list[str] = []

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            self.call = call

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            course.append(delta.value)
            if delta.value == "c":
                other = threading.Thread(target=self.call.respond, args=("42",))
                other.start()
                other.join()

        def on_tool_output_done(self, message: sk.Message) -> None:
            course.append(message.content)

    sk.stream(iter([begin, *called, *words, end]), Answering(), then=lambda _: None).until_done()
    assert "".join(course) == "abc42defgh"


def test_what_was_asked_and_answered_meanwhile_is_delivered_before_the_next_item() -> None:
    """The call is in a source that a hook reads in the middle of the answer."""
    course: list[str] = []

    class Answering(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            stream: Any = self.stream
            course.append(delta.value)
            if delta.value == "c":
                for _ in stream.read_nested(first_source(None)):
                    pass
            if delta.value == "d":
                stream.pending["c0"].respond("42")

        def on_tool_output_done(self, message: sk.Message) -> None:
            course.append(message.content)

    sk.stream(iter(chat(*WORDS)), Answering(), then=lambda _: None).until_done()
    assert "".join(course) == "abcd42efgh"


def test_the_sizes_of_messages_are_looked_at_in_the_middle_of_an_answer() -> None:
    """Whoever has no other events than deltas would fill the memory."""
    course: list[str] = []

    def items() -> Iterator[Any]:
        for item in chat(*["text"] * 3000):
            course.append("pull")
            yield item

    with pytest.raises(sk.LimitError, match="message"):
        sk.stream(items(), limits=sk.Limits(message=400)).until_done()
    assert len(course) < 1000


def test_nothing_is_pulled_after_an_item_that_ends_the_source() -> None:
    """Though it is nothing that a stream delivers."""
    course: list[str] = []

    def items() -> Iterator[Any]:
        yield from thread("a", "b", "c")
        yield {"event": "thread.run.completed", "data": {"id": "r", "object": "thread.run", "status": "completed"}}
        yield {"event": "done", "data": "[DONE]"}
        course.append("pulled")

    assert sk.stream(items()).get_final_text() == "abc"
    assert course == []


class Bare:
    """What has nothing but `__next__`, as an old iterator; or begins anew where it is iterated."""

    def __init__(self, items: list[Any]) -> None:
        self.items = iter(items)

    def __next__(self) -> Any:
        return next(self.items)


class Again(Bare):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it is iterated already")


class Iterable:
    def __init__(self, kind: type[Bare]) -> None:
        self.kind = kind

    def __iter__(self) -> Any:
        return self.kind(chat(*WORDS))


def test_an_iterator_needs_nothing_but_next() -> None:
    assert sk.stream(Iterable(Bare)).get_final_text() == "abcdefgh"


def test_responses_keep_their_cursor_where_some_items_have_none() -> None:
    """The stream's cursor is that of the last item that has one."""
    text = "response.output_text.delta"
    items: list[Any] = responses(*({"type": text, "delta": word, "sequence_number": n} for n, word in enumerate(WORDS)))
    del items[5]["sequence_number"], items[-1]["sequence_number"]
    cursors: list[list[Any]] = []
    for source in (items, iter(items)):
        handler = Noting()
        stream = sk.stream(source, handler)
        with pytest.raises(sk.IncompleteStreamError):
            stream.until_done()
        cursors.append([(line[0], line[3], line[5]) for line in handler.seen])
    assert cursors[0] == cursors[1]


def test_a_producer_may_change_an_item_and_yield_it_again() -> None:
    """What was read of it does not change with it: each usage is seen."""

    def items() -> Iterator[Any]:
        usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
        choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": None}
        item = {**chat()[0], "choices": [choice], "usage": usage}
        for number, word in enumerate(WORDS, 1):
            choice["delta"]["content"] = word
            usage.update(completion_tokens=number, total_tokens=1 + number)
            yield item
        choice.update(delta={}, finish_reason="stop")
        yield item

    stream = sk.stream(items())
    assert stream.get_final_text() == "".join(WORDS)
    assert stream.usage is not None
    assert (stream.usage.output_tokens, stream.usage.total_tokens) == (len(WORDS), 1 + len(WORDS))
