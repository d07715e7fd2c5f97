"""An application's own events: declared once, as ours are, and then complete: hooks, order, codec, recording, relay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.events import EVENTS
from streamkit.protocols import codec

from .faces import Face, body, every_face


class WebLookup(sk.Event):
    """The agent searches the web."""

    query: str
    pages: list[int] = []


class LookupDone(sk.Event):
    """It has found something. Its hook has a name of its own, and its arguments too."""

    hook = "on_results"
    results: int

    def arguments(self) -> tuple[Any, ...]:
        return (self.results,)


class Searching(sk.EventHandler):
    """Notes what its hooks get."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_run_step_created(self, run_step: sk.RunStep) -> None:
        self.seen.append("step")

    def on_web_lookup(self, event: WebLookup) -> None:
        self.seen.append((event.query, event.pages))

    def on_results(self, results: int) -> None:
        self.seen.append(results)

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.seen.append(delta.value)

    def on_run_done(self, run: sk.Run) -> None:
        self.seen.append("done")


class AsyncSearching(sk.AsyncEventHandler):
    """The same, awaited."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_web_lookup(self, event: WebLookup) -> None:
        self.seen.append(event.query)


STORY = [WebLookup("streams", [1, 2]), LookupDone(results=3), sk.TextDelta("m", "Three."), sk.StreamEnd()]
SEEN = ["step", ("streams", [1, 2]), 3, "Three.", "done"]


@every_face
@body
async def test_its_hook_is_called_inside_the_run(face: Face) -> None:
    """On every face, in the order of the events; the run and its step begin before it."""
    handler = Searching()
    await face.stream(STORY, handler).until_done()
    assert handler.seen == SEEN


@pytest.mark.anyio
async def test_an_async_hook_is_awaited() -> None:
    """As the hooks of our own events are."""
    handler = AsyncSearching()
    await sk.astream(STORY, handler).until_done()
    assert handler.seen == ["streams"]


def test_its_wire_form_is_computed() -> None:
    """The codec encodes and decodes it as text and as plain data."""
    event = WebLookup("streams", [1])
    assert codec.event_to_dict(event) == {"type": "web_lookup", "query": "streams", "pages": [1]}
    assert codec.decode_event(codec.encode_event(event)) == event
    assert codec.event_from_dict(codec.event_to_dict(event)) == event
    with pytest.raises(ValueError, match="query"):
        codec.decode_event(b'{"type": "web_lookup"}')


def test_another_stream_gets_it() -> None:
    """Chained directly, and through streamkit's own protocol as items."""
    for source in (sk.stream(STORY), sk.stream(STORY).chunks("streamkit")):
        handler = Searching()
        sk.stream(source, handler).until_done()
        assert handler.seen == SEEN


def test_other_protocols_leave_it_out() -> None:
    """What a wire cannot express is not invented."""
    for name in ("openai_chat", "openai_responses", "anthropic", "open_interpreter"):
        items = [*sk.stream(STORY).chunks(name)]
        assert "streams" not in str(items)
        assert "Three." in str(items)


def test_a_recording_has_it(tmp_path: Path) -> None:
    """Recorded and read again."""
    path = tmp_path / "run.jsonl"
    sk.stream(STORY, sk.Recorder(path)).until_done()
    handler = Searching()
    sk.stream(path, handler).until_done()
    assert handler.seen == SEEN


def test_an_emitter_and_its_relay_have_it() -> None:
    """Readers get it, those that resume after a cursor too."""
    emitter = sk.Emitter()
    with emitter:
        emitter.emit(WebLookup("streams", [1, 2]))
        after = emitter.cursor
        emitter.emit(LookupDone(results=3))
        emitter.text("Three.")
    handler, late = Searching(), Searching()
    sk.stream(emitter, handler).until_done()
    sk.stream(emitter, late, after=after).until_done()
    assert handler.seen == SEEN
    assert late.seen == ["step", *SEEN[2:]]


def test_one_that_is_declared_after_the_stream_was_made_is_delivered() -> None:
    """To handlers that were planned before."""
    seen: list[sk.Event] = []

    class All(sk.EventHandler):
        def on_event(self, event: sk.Event) -> None:
            seen.append(event)

    def events() -> Any:
        class Late(sk.Event):
            number: int

        yield Late(number=1)
        yield sk.StreamEnd()

    sk.stream(events(), All()).until_done()
    assert [event.type for event in seen].count("late") == 1


def test_a_name_that_is_taken_is_refused() -> None:
    """Two classes of one wire type could not be told apart on the wire."""
    with pytest.raises(TypeError, match=r"'usage' exists already: streamkit\.events\.Usage"):

        class Usage(sk.Event):
            tokens: int

    assert EVENTS["usage"] is sk.Usage


def test_a_hook_that_is_nearly_its_own_warns() -> None:
    """As for our own hooks."""
    with pytest.warns(UserWarning, match="did you mean on_web_lookup"):

        class Typo(sk.EventHandler):
            def on_web_lokup(self, event: WebLookup) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=["mypy", "pyright"])
def test_the_type_checkers_accept_it(checker: list[str], tmp_path: Path) -> None:
    """The class, how it is made, its fields and its hook."""
    pytest.importorskip(checker[0], reason=f"{checker[0]} is not installed")
    file = tmp_path / "application.py"
    file.write_text(
        "import streamkit as sk\n\n\n"
        "class WebSearch(sk.Event):\n    query: str\n    page: int = 1\n\n\n"
        "class Terminal(sk.EventHandler):\n"
        "    def on_web_search(self, event: WebSearch) -> None:\n        print(event.query.upper(), event.page + 1)\n\n\n"
        "event = WebSearch('streams')\nsk.stream([event, WebSearch(query='more')], Terminal()).until_done()\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-m", *checker, str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
