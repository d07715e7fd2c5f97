"""What a stream costs beside its deltas, as far as no clock is needed to tell: memory, and what an import loads of others.

`tests/benchmarks/streams.py` measures the rest.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest

import streamkit as sk

from .benchmarks import streams
from .benchmarks.wires import pieces
from .faces import chat, every_pair

# Modules of others that cost milliseconds, and that some streams need but not all.
UNLOADED = {
    "anyio",
    "asyncio",
    "base64",
    "difflib",
    "heapq",
    "json",
    "logging",
    "pathlib",
    "socket",
    "ssl",
    "subprocess",
}


def _loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=streams.ROOT,
    )
    return set(done.stdout.split())


def test_import_streamkit_loads_nothing_of_others_that_takes_milliseconds() -> None:
    """Every program would start later."""
    assert _loaded_by("import streamkit") & UNLOADED - _loaded_by("import msgspec") == set()


def test_the_names_that_are_imported_later_are_listed() -> None:
    """`dir`, `help` and `from streamkit import *` know them, before and after their first use."""
    names = ["Agent", "AsyncStreamManager", "Emitter", "Recorder", "Throttled", "replay", "tool"]
    code = (
        f"import streamkit; assert not {set(names)} - set(dir(streamkit)); from streamkit import *; {', '.join(names)}"
    )
    assert "streamkit.recorder" in _loaded_by(code)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sk.Nothing  # type: ignore[attr-defined]


def test_a_protocol_is_recognised_without_the_decoders_before_it() -> None:
    """A stream of Anthropic's, the last but three, imports its own decoder alone."""
    body = streams.anthropic_body(1)
    loaded = _loaded_by(f"import streamkit; streamkit.stream(iter({body!r})).until_done()")
    assert [name for name in sorted(loaded) if name.endswith(".decoder")] == ["streamkit.protocols.anthropic.decoder"]
    assert not [name for name in loaded if name.startswith("streamkit.protocols.openai")]


@pytest.mark.parametrize("wire", streams.BODIES)
def test_a_finished_stream_leaves_nothing_to_the_garbage_collector(wire: str) -> None:
    """Nothing of it is in a circle, as a decoder is whose parts refer to it: it is gone with the last reference."""
    code = f"""
import gc
import streamkit as sk
chunks = {streams.BODIES[wire](3)!r}
sk.stream(chunks).until_done()
gc.collect()
gc.disable()
sk.stream(chunks).until_done()
print(gc.collect())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=streams.ROOT)
    assert done.stdout.strip() == "0"


# -- what leads back to its stream, or to itself, is freed by the garbage collector


class Marker:
    """In an exception, which takes no weak reference itself."""


def failing() -> Iterator[dict[str, Any]]:
    yield from chat("Hello", finish=None)
    raise ConnectionResetError


def busy() -> Any:
    raise ConnectionResetError


def raised_in_a_hook(marked: Callable[[Any], Any]) -> None:
    class Raising(sk.EventHandler):
        def on_retry(self, retry: sk.StreamRetry, /) -> None:
            raise marked(retry.exception)

    sk.stream(busy, Raising(), retry=3).until_done()


def raised_in_a_loop(marked: Callable[[Any], Any]) -> None:
    for event in sk.stream(busy, retry=sk.Retry(max_wait=0.01)):
        if isinstance(event, sk.StreamRetry):
            raise marked(event.exception)


def raised_beside_its_event(marked: Callable[[Any], Any]) -> None:
    events: list[sk.Event] = []
    for event in sk.stream(failing()):
        events.append(event)
        if isinstance(event, sk.events.StreamException):
            marked(event.exception)


@pytest.mark.parametrize("raises", [raised_in_a_hook, raised_in_a_loop, raised_beside_its_event])
def test_an_error_that_leads_back_to_its_event_is_freed(raises: Any) -> None:
    """By its traceback, whose frames have the event."""
    markers: list[weakref.ref[Marker]] = []

    def marked(error: Any) -> Any:
        error.marker = Marker()
        markers.append(weakref.ref(error.marker))
        return error

    with contextlib.suppress(sk.SourceError):
        raises(marked)
    gc.collect()
    assert [marker() for marker in markers] == [None]


class Keeping(sk.EventHandler):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[sk.Event] = []

    def on_event(self, event: sk.Event, /) -> None:
        self.events.append(event)


def asking() -> Iterator[sk.Event]:
    call = sk.ToolCallMessage("t", name="f", call_id="c", content="{}")
    yield from (call.created_event(call.header()), sk.ToolCallDelta("t", "{}"), call.done_event(call))
    yield sk.ConfirmationCreated(sk.Confirmation("q", call))
    yield sk.TextDelta("m", "x")


@pytest.mark.parametrize("last", [sk.ToolCallDelta, sk.ToolCallDone, sk.ConfirmationCreated, sk.TextDelta])
def test_a_stream_that_is_dropped_at_a_question_is_freed(last: type[sk.Event]) -> None:
    """Its newest event, and those that a handler has, lead to what can be answered, and so to the stream."""
    keeping = Keeping()
    stream = sk.stream(asking(), keeping, protocol="streamkit", then=lambda _: None)
    for event in stream:
        if isinstance(event, last):
            break
    references = [weakref.ref(stream), weakref.ref(keeping)]
    del stream, keeping, event
    gc.collect()
    assert [reference() for reference in references] == [None, None]


# -- memory, in a process of its own: what other tests did changes it. The most of each is the row's limit.


@pytest.fixture(scope="module")
def memory() -> dict[str, streams.Row]:
    """The benchmark's rows of memory, by name."""
    command = [sys.executable, "-m", "tests.benchmarks.streams", "--json", "--memory", "15"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=streams.ROOT)
    return {row["name"]: streams.Row(**row) for row in map(json.loads, done.stdout.splitlines())}


@every_pair
@pytest.mark.slow
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("cut", ["event", "2 KB"])
@pytest.mark.parametrize("wire", streams.BODIES)
def test_a_finished_stream_holds_little_more_than_its_text(
    memory: dict[str, streams.Row], wire: str, cut: str, face: str
) -> None:
    """Its text need not have been read, and its source, decoder, locks and generators are gone."""
    assert_small(memory[f"memory of a finished stream, {wire}, {cut}, {face}"])


def assert_small(row: streams.Row) -> None:
    assert row.limit is not None
    assert row.value <= row.limit


@pytest.mark.slow
@pytest.mark.parametrize("wire", streams.BODIES)
def test_an_open_stream_is_small(memory: dict[str, streams.Row], wire: str) -> None:
    """With its first delta, and the chunk that it reads: one event, or 2 KB."""
    for cut in ("event", "2 KB"):
        assert_small(memory[f"memory of an open stream, {wire}, {cut}"])


@pytest.mark.slow
@pytest.mark.parametrize("wire", streams.BODIES)
def test_a_stream_that_waits_is_small(memory: dict[str, streams.Row], wire: str) -> None:
    """It has read 4 KB, and waits for its next chunk in a thread or a task."""
    for face in ("event, sync", "2 KB, sync", "2 KB, asyncio", "2 KB, trio"):
        assert_small(memory[f"memory of a stream that waits, {wire}, {face}"])


class _Source(sk.EventHandler):
    """Gives chunks, and keeps them and the deltas that come of them. At each pull it counts what refers to these."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = iter(chunks)
        self.pulled: list[bytes] = []
        self.deltas: list[sk.TextDelta] = []
        self.counts: list[tuple[set[int], set[int]]] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.deltas.append(delta)

    def count(self) -> tuple[set[int], set[int]]:
        """How many refer to each chunk, and to each delta but the newest and what that was decoded from."""
        kept = [(delta, delta.raw_item) for delta in self.deltas[:-1]]
        return {*map(sys.getrefcount, self.pulled)}, {*map(sys.getrefcount, chain(*kept))}

    def __iter__(self) -> _Source:
        return self

    def __next__(self) -> bytes:
        self.counts.append(self.count())
        self.pulled.append(bytes(bytearray(next(self.chunks))))  # which no other object is
        return self.pulled[-1]

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self:
            return chunk
        raise StopAsyncIteration


@pytest.mark.anyio
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("wire", streams.BODIES)
async def test_nothing_of_a_chunk_is_held_while_the_next_is_awaited(wire: str, face: str) -> None:
    """A stream waits for nearly all of its time. Then it refers to its newest event, and to nothing else that it read."""
    source = _Source(pieces(streams.BODIES[wire](100), "2 KB")[:5])
    with pytest.raises(sk.IncompleteStreamError):
        if face == "sync":
            sk.stream(source, source).until_done()
        else:
            await sk.astream(source, source).until_done()
    assert len(source.deltas) > 20
    assert source.counts[1:] == [source.count()] * 5, "more than when the stream was gone"


class _Changing(sk.EventHandler):
    """Adds to the metadata of each run, when it begins and when it is done."""

    def on_run_created(self, run: sk.Run) -> None:
        assert isinstance(run.metadata, dict)
        run.metadata["mine"] = 1

    on_run_done = on_run_created


@pytest.mark.parametrize(
    "item",
    [
        {"object": "chat.completion.chunk", "error": {"message": "it failed"}},
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"audio": {"data": "QQ=="}}}]},
        {"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]},
        {"type": "response.created", "response": {"id": "r", "object": "response"}},
        {"type": "message_start", "message": {"id": "m", "type": "message", "content": []}},
    ],
)
def test_what_an_application_adds_to_a_run_is_in_no_other_stream(item: dict[str, object]) -> None:
    stream = sk.stream([item], _Changing())
    with contextlib.suppress(sk.StreamkitError):  # most of them are cut off here, and one failed
        stream.until_done()
    assert stream.current_run is not None
    assert stream.current_run.metadata["mine"] == 1
    other = sk.stream([item])
    with contextlib.suppress(sk.StreamkitError):
        other.until_done()
    assert other.current_run is not None
    assert "mine" not in other.current_run.metadata


def test_pending_is_live_though_it_was_read_before_the_first_question() -> None:
    """Until then there is nothing that it could refer to."""
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    stream = sk.stream([{"object": "chat.completion.chunk", "choices": [choice]}])
    before = stream.pending
    assert dict(before) == {}
    stream.until_done()
    assert [*before] == [*stream.pending] == ["call_1"]
    assert repr(before) == repr(stream.pending)


def test_a_kept_stream_still_has_its_results() -> None:
    """What it let go of is not needed for them."""
    stream = streams.read(streams.chat_body(3))
    (message,) = stream.get_final_messages()
    assert stream.get_final_text() == message.content == "".join(streams.WORDS[:3])
    assert stream.get_final_run().status == stream.status == "completed"
    assert [step.status for step in stream.get_final_run_steps()] == ["completed"]
    assert (stream.pending, list(stream), stream.timing.deltas) == ({}, [], 3)
    stream.cancel()
    stream.close()
    assert stream.status == "completed"
