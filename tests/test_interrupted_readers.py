"""A reader whose wait was cancelled from outside never takes the rest of a stream for its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

import streamkit as sk
from streamkit.compat.letta import QueuingInterface, StreamingServerInterface
from streamkit.compat.open_interpreter import OpenInterpreter
from streamkit.computer import Computer
from streamkit.testing import ModelServer, Reply

from . import assistants
from .agent.parts import ToyComputer, code
from .faces import Face, async_faces, body, chat, every_face, sync_face
from .test_compat_openai_sequences import submits
from .test_relay import Producer, every_relay, story

LOOPS = {
    "events": aiter,
    "text_deltas": lambda stream: stream.text_deltas,
    "chunks": lambda stream: stream.chunks("vercel_ui"),
}
RESULTS = {
    "events": lambda stream: anext(aiter(stream)),
    "until_done": lambda stream: stream.until_done(),
    "get_final_text": lambda stream: stream.get_final_text(),
    "get_final_messages": lambda stream: stream.get_final_messages(),
    "get_final_run": lambda stream: stream.get_final_run(),
    "get_final_run_steps": lambda stream: stream.get_final_run_steps(),
}
interrupted = pytest.raises(sk.IncompleteStreamError, match="was interrupted while it was read")


async def _stalled() -> AsyncIterator[Any]:
    for chunk in chat("a", "b", finish=None):
        yield chunk
    await anyio.sleep_forever()


async def _cancelled(loop: Any) -> list[Any]:
    """Read as far as there is something, then cancel the wait for more, as `asyncio.wait_for` does."""
    read: list[Any] = []
    with anyio.CancelScope() as scope:
        while True:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_idle, scope)
                read.append(await anext(loop))
                tasks.cancel_scope.cancel()
    return read


async def _cancel_when_idle(scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()


@async_faces
@pytest.mark.parametrize("kind", LOOPS)
@body
async def test_a_loop_that_was_cancelled_in_a_wait_raises_at_its_next_item(face: Face, kind: str) -> None:
    """Each time that it is continued, and with what had arrived."""
    told = face.told()
    stream = face.stream(_stalled(), told)
    loop = LOOPS[kind](stream)
    await _cancelled(loop)
    for _ in range(2):
        with interrupted as raised:
            await anext(loop)
            pytest.fail("it went on")
    assert [message.content for message in raised.value.messages] == ["ab"]
    assert (stream.status, stream.error) == ("cancelled", None)
    told.check_brackets()


@async_faces
@pytest.mark.parametrize("result", RESULTS)
@body
async def test_what_is_read_after_a_cancelled_wait_is_never_taken_for_the_whole(face: Face, result: str) -> None:
    stream = face.stream(_stalled())
    await _cancelled(aiter(stream))
    with interrupted:
        await RESULTS[result](stream)
    assert [message.content for message in stream.messages] == ["ab"]


@async_faces
@pytest.mark.parametrize("result", [name for name in RESULTS if name != "events"])
@body
async def test_a_final_value_for_which_the_wait_was_cancelled_is_not_a_part(face: Face, result: str) -> None:
    stream = face.stream(_stalled())
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_idle, scope)
            await RESULTS[result](stream)
    assert scope.cancelled_caught
    with interrupted:
        await RESULTS[result](stream)


@async_faces
@body
async def test_a_stream_whose_opening_was_cancelled_is_not_taken_for_an_empty_one(face: Face) -> None:
    async def ask() -> Any:
        await anyio.sleep_forever()

    stream = face.stream(ask)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_idle, scope)
            async with stream:
                pytest.fail("it was opened")
    with interrupted:
        await anext(aiter(stream))


@sync_face
@pytest.mark.parametrize("result", RESULTS)
@body
async def test_ctrl_c_in_a_wait_leaves_no_part_that_seems_whole(face: Face, result: str) -> None:
    def items() -> Iterator[Any]:
        yield from chat("a", finish=None)
        raise KeyboardInterrupt

    stream = face.stream(items())
    with pytest.raises(KeyboardInterrupt):
        await stream.until_done()
    with interrupted:
        await RESULTS[result](stream)


@every_face
@body
async def test_a_stream_that_cancels_itself_returns_what_arrived(face: Face) -> None:
    class Stopping(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage, /) -> None:
            self.stream.cancel()

    stream = face.stream(chat("a", "b"), Stopping())
    await stream.until_done()
    assert (stream.status, stream.error, await stream.get_final_text()) == ("cancelled", None, "a")


@async_faces
@body
async def test_an_interrupt_after_the_end_takes_nothing_back(face: Face) -> None:
    """All has arrived when `on_end` is called."""

    class Ending(sk.AsyncEventHandler):
        async def on_end(self) -> None:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    stream = face.stream(chat("a"), Ending())
    with anyio.CancelScope() as scope:
        await stream.until_done()
    assert scope.cancelled_caught
    assert await stream.get_final_text() == "a"


@async_faces
@pytest.mark.parametrize("kind", ["sse", "ndjson"])
@body
async def test_a_body_whose_wait_was_cancelled_is_not_taken_for_the_whole(face: Face, kind: str) -> None:
    """It is closed, as it is where the task of a response is cancelled: the client has gone."""
    stream = face.stream(_stalled())
    response = getattr(stream, kind)(keepalive=None)
    await _cancelled(response)
    with pytest.raises(sk.UsageError, match=r"was interrupted.* pass `keepalive=`"):
        await anext(response)
    assert stream.status == "cancelled"


@async_faces
@every_relay
@body
async def test_a_loop_over_a_run_in_a_relay_goes_on_after_a_cancelled_wait(face: Face, relay_of: Any) -> None:
    """Nothing of it is lost: the log is still there."""
    with relay_of() as relay:
        events, producer = story("Hello", "you"), Producer(relay)
        producer.append(events[:5])
        loop = aiter(relay.reader("run"))
        read = await _cancelled(loop)
        read += await _cancelled(loop)
        producer.append(events[5:])
        producer.close()
        read += [event async for event in loop]
        deltas = [event.value for event in read if isinstance(event, sk.TextDelta)]
        assert "".join(deltas) == "Helloyou"


@async_faces
@body
async def test_a_loop_over_running_code_goes_on_after_a_cancelled_wait(face: Face, tmp_path: Path) -> None:
    """Nothing of its output is lost."""
    with Computer() as computer:
        code = f"echo 1; while [ ! -e {tmp_path / 'go'} ]; do sleep 0.01; done; echo 2"
        execution = computer.run("shell", code)
        loop = aiter(execution)
        read = await _cancelled(loop)
        read += await _cancelled(loop)
        (tmp_path / "go").touch()
        read += [event async for event in loop]
    assert "".join(event.value for event in read if isinstance(event, sk.ConsoleDelta)) == "1\n2\n"
    assert execution.status == "completed"


def test_wait_for_around_each_item_ends_with_an_error_and_not_in_silence() -> None:
    async def main() -> None:
        loop = sk.astream(_stalled()).text_deltas
        assert [await asyncio.wait_for(anext(loop), 10) for _ in "ab"] == ["a", "b"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(loop), 0.01)
        with interrupted:
            await anext(loop)

    asyncio.run(main())


# -- the interfaces of older libraries


@contextmanager
def _letta(*, chat: bool = False, finish_message: bool = False) -> Iterator[Any]:
    interface = StreamingServerInterface()
    interface.streaming_chat_completion_mode = chat
    interface.stream_start()
    yield interface.get_generator(finish_message=finish_message)


@contextmanager
def _queue() -> Iterator[Any]:
    yield QueuingInterface(debug=False).message_generator()


@contextmanager
def _chat() -> Iterator[Any]:
    with (
        ModelServer([Reply(code("say a\nhang"))]) as server,
        openai.OpenAI(base_url=server.url, api_key="any") as client,
    ):
        interpreter = OpenInterpreter(computer=ToyComputer(), auto_run=True)
        interpreter.llm.client = client
        yield interpreter.achat("go")


OLDER = {
    "letta": _letta,
    "letta, to [DONE]": lambda: _letta(finish_message=True),
    "letta, chat completions": lambda: _letta(chat=True),
    "letta, queue": _queue,
    "open interpreter": _chat,
}


@async_faces
@pytest.mark.parametrize("kind", OLDER)
@body
async def test_a_generator_of_an_older_interface_that_was_cancelled_in_a_wait_raises_at_its_next_item(
    face: Face, kind: str
) -> None:
    with OLDER[kind]() as generator:
        await _cancelled(generator)
        for _ in range(2):
            with interrupted:
                await anext(generator)
                pytest.fail("it went on")
        await generator.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(generator)


@async_faces
@body
async def test_a_generator_of_an_older_interface_that_failed_fails_again(face: Face) -> None:
    interface = StreamingServerInterface()
    interface.error("it broke")
    generator = interface.get_generator()
    for _ in range(2):
        with pytest.raises(sk.SourceError, match="it broke"):
            await anext(generator)


@async_faces
@body
async def test_what_a_queue_holds_after_a_cancelled_wait_is_there_for_the_next_generator(face: Face) -> None:
    queue = QueuingInterface(debug=False)
    await _cancelled(queue.message_generator())
    queue.internal_monologue("Hm.", {"id": "m1", "created_at": None})
    queue.step_yield()
    assert [item["internal_monologue"] async for item in queue.message_generator("api")] == ["Hm."]


ASSISTANT_LOOPS = pytest.mark.parametrize(
    "loop_of", [aiter, lambda stream: stream.text_deltas], ids=["events", "text_deltas"]
)


async def _check_interrupted(loop_of: Any, stream: Any) -> None:
    loop = loop_of(stream)
    await _cancelled(loop)
    for _ in range(2):
        with interrupted:
            await anext(loop)
            pytest.fail("it went on")


@async_faces
@ASSISTANT_LOOPS
@body
async def test_an_assistants_loop_that_was_cancelled_in_a_wait_raises_at_its_next_item(
    face: Face, loop_of: Any
) -> None:
    begun = assistants.sse([assistants.run("queued"), assistants.run("in_progress")]).replace(b"data: [DONE]\n\n", b"")
    with ModelServer([Reply(raw=begun, never_ends=True)]) as server:
        async with face.client(server) as client:
            handler = assistants.hook_log(face)
            await assistants.use_client(face, client, handler, lambda _, stream: _check_interrupted(loop_of, stream))


@assistants.quiet
@async_faces
@ASSISTANT_LOOPS
@body
async def test_a_loop_over_what_tool_outputs_brought_raises_after_a_cancelled_wait(face: Face, loop_of: Any) -> None:
    """In a hook of the stream that required them, as OpenAI's guide reads it."""
    first = [assistants.run("queued"), assistants.run("in_progress"), assistants.requires_action("c0")]
    begun = assistants.sse([assistants.run("queued")]).replace(b"data: [DONE]\n\n", b"")
    read: list[str] = []

    async def read_some(_: Face, stream: Any) -> None:
        await _check_interrupted(loop_of, stream)
        read.append("as far as it goes")

    with ModelServer([Reply(raw=assistants.sse(first)), Reply(raw=begun, never_ends=True)]) as server:
        async with face.client(server) as client:
            handler = assistants.hook_log(face, on_event=submits(face, client, lambda same: same, read_some))
            await assistants.use_client(face, client, handler)
    assert read


# -- Ctrl-C in the sync ones


def _check_ctrl_c(loop: Iterator[Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        while True:
            next(loop)
    for _ in range(2):
        with interrupted:
            for _ in loop:
                pass  # an event that had arrived, in whose hook it came
            pytest.fail("it ended as if it was complete")


def test_a_chat_of_open_interpreter_from_which_ctrl_c_came_raises_at_its_next_chunk() -> None:
    class Interrupted(ToyComputer):
        def run(self, language: str, code: str, *, call_id: str | None = None) -> Any:
            raise KeyboardInterrupt

    with (
        ModelServer([Reply(code("say a"))]) as server,
        openai.OpenAI(base_url=server.url, api_key="any") as client,
    ):
        interpreter = OpenInterpreter(computer=Interrupted(), auto_run=True)
        interpreter.llm.client = client
        chunks = interpreter.chat("go", display=False, stream=True)
        _check_ctrl_c(chunks)
        chunks.close()
        with pytest.raises(StopIteration):
            next(chunks)


SYNC_ASSISTANT_LOOPS = pytest.mark.parametrize(
    "loop_of", [iter, lambda stream: stream.text_deltas], ids=["events", "text_deltas"]
)


@sync_face
@SYNC_ASSISTANT_LOOPS
@body
async def test_an_assistants_loop_from_which_ctrl_c_came_raises_at_its_next_item(face: Face, loop_of: Any) -> None:
    def items() -> Iterator[Any]:
        yield from [assistants.run("queued"), assistants.run("in_progress")]
        raise KeyboardInterrupt

    with sk.stream(items(), handler := assistants.hook_log(face)):
        _check_ctrl_c(loop_of(handler))


@assistants.quiet
@sync_face
@SYNC_ASSISTANT_LOOPS
@body
async def test_a_loop_over_what_tool_outputs_brought_raises_after_ctrl_c(face: Face, loop_of: Any) -> None:
    first = [assistants.run("queued"), assistants.run("in_progress"), assistants.requires_action("c0")]
    read: list[str] = []

    async def read_some(_: Face, stream: Any) -> None:
        _check_ctrl_c(loop_of(stream))
        read.append("as far as it goes")

    def on_event(handler: Any, event: Any) -> None:
        if event.event == "thread.run.step.created":
            raise KeyboardInterrupt
        submits(face, client, lambda same: same, read_some)(handler, event)

    second = [assistants.run("queued"), assistants.step("created")]
    with ModelServer([Reply(raw=assistants.sse(first)), Reply(raw=assistants.sse(second))]) as server:
        async with face.client(server) as client:
            await assistants.use_client(face, client, assistants.hook_log(face, on_event=on_event))
    assert read
