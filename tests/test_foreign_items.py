"""Items of other frameworks, which no protocol has: a live source is refused at the first one, and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pydantic.dataclasses
import pytest

import streamkit as sk

from .faces import Face, Source, async_faces, body, both_shells, chat


@dataclass
class PartStart:
    """As frameworks have them."""

    index: int
    event_kind: str = "part_start"


@pydantic.dataclasses.dataclass
class Counts:
    """With a serializer of pydantic's, as models have, but without their methods."""

    tokens: int = 1


FOREIGN: list[Any] = [
    PartStart(0),
    Counts(),
    ("messages", PartStart(0)),
    (PartStart(0), {"node": "model"}),
    17,
    object(),
]


@both_shells
@pytest.mark.parametrize("item", FOREIGN, ids=lambda item: type(item).__name__)
@body
async def test_a_source_of_foreign_objects_is_refused_at_the_first_one(face: Face, item: Any) -> None:
    source = Source([item] * 1000)
    stream = face.stream(face.generator(source))
    with pytest.raises(sk.ProtocolError, match="no protocol has items like"):
        await stream.until_done()
    assert source.went == 1
    assert source.closed


@both_shells
@body
async def test_what_has_a_json_form_may_still_be_recognised(face: Face) -> None:
    """A ping comes before the first item that only one protocol has."""

    class Model:
        def __init__(self, value: dict[str, Any]) -> None:
            self.value = value

        def model_dump(self, **_: Any) -> dict[str, Any]:
            return self.value

    items = [Model({"type": "ping"}), *map(Model, chat("Hi"))]
    assert await face.stream(face.generator(Source(items))).get_final_text() == "Hi"


class Run:
    """A source that is only an async context manager: what it gives when it is entered is read, and it is left."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def __aenter__(self) -> AsyncIterator[Any]:
        self.steps.append("entered")
        return self._items()

    async def _items(self) -> AsyncIterator[Any]:
        for item in chat("Hel", "lo"):
            yield item

    async def __aexit__(self, *raised: Any) -> None:
        self.steps.append("left")


@async_faces
@pytest.mark.parametrize("ends", ["read", "closed", "cancelled"])
@body
async def test_a_source_may_be_an_async_context_manager_alone(face: Face, ends: str) -> None:
    run = Run()
    stream = face.stream(run)
    assert run.steps == []
    if ends == "read":
        assert await stream.get_final_text() == "Hello"
    else:
        async for _ in stream:
            if ends == "closed":
                break
            stream.cancel()
        await stream.close()
    assert run.steps == ["entered", "left"]


@async_faces
@body
async def test_such_a_source_may_be_made_by_a_function(face: Face) -> None:
    runs: list[Run] = []

    def begin() -> Run:
        runs.append(Run())
        return runs[-1]

    assert await face.stream(begin).get_final_text() == "Hello"
    assert [run.steps for run in runs] == [["entered", "left"]]


def test_a_source_that_ends_as_requires_action_says_so() -> None:
    """A framework's run that stopped for an approval: its source ends with a `RunDone`, and the call stays open."""
    call = sk.ToolCallMessage("c", name="pay", call_id="c", content="{}")
    events = [call.done_event(call), sk.RunDone(sk.Run(status="requires_action")), sk.StreamEnd()]
    handler_calls: list[str] = []

    class Noting(sk.EventHandler):
        def on_run_requires_action(self, run: sk.Run) -> None:
            handler_calls.append(run.status)

    stream = sk.stream(events, Noting())
    stream.until_done()
    assert (stream.status, stream.current_run and stream.current_run.status) == ("requires_action", "requires_action")
    assert handler_calls == ["requires_action"]
    assert [*stream.pending] == ["c"]
