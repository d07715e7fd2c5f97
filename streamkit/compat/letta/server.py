"""What an agent does, streamed to clients: told from any thread, read by any number of generators.

The items are Letta's of 2024, as dicts; `protocols.letta` reads them. In chat completion mode they are Chat Completions
chunks of what the agent says to its user, and of nothing else. The log is bounded: an agent never waits for its readers,
and one who is so slow that what comes next was dropped is told a `SourceError`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from ...errors import SourceError, UsageError
from ...events import RawEvent, StreamWarning
from ...protocols import is_object
from ...relay import MemoryRelay, Reader
from ...relay.emitter import Emitter
from ...streams.api import astream
from .interfaces import AgentChunkStreamingInterface
from .normalise import Call, call_id_of, calls_of, date_of, get, items_of, json_object, text_of
from .sent_text import Said

__all__ = ["MessageStreamStatus", "StreamingServerInterface"]


class MessageStreamStatus(StrEnum):
    """What stands between the items: a model's answer is over, a step (answer and function) is, all is."""

    done_generation = "[DONE_GEN]"
    done_step = "[DONE_STEP]"
    done = "[DONE]"


class StreamingServerInterface(AgentChunkStreamingInterface):
    """Streams what an agent does to the clients of a server.

        interface = StreamingServerInterface()
        task = asyncio.create_task(asyncio.to_thread(run_agent, interface))  # which says `with interface: …`
        async for item in interface.get_generator():
            ...

    Leaving `with`, a `step_yield` or an `error` ends the stream; a later `stream_start` begins another one.

    Args:
        multi_step: whether the stream goes on after a step, until the agent yields.
        limit: how many items are kept for readers.
        timeout: seconds of silence after which generators raise `SourceTimeoutError`; None for no limit.

    Attributes:
        streaming_mode: answers are told by `process_chunk`; then what the other methods say of them is left out.
        nonstreaming_legacy_mode: a call is one text, `name(arguments)`, followed by what it says to the user; nothing
            stands between steps.
        streaming_chat_completion_mode: see the module. Choose it before generators are taken.
    """

    def __init__(self, multi_step: bool = True, *, limit: int = 65_536, timeout: float | None = 600.0) -> None:
        self.streaming_mode = False
        self.nonstreaming_legacy_mode = False
        self.streaming_chat_completion_mode = False
        self.multi_step = multi_step
        self.timeout = timeout
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        relay = MemoryRelay(limit=self._limit, timeout=None)
        self._emitter = Emitter(relay, f"chatcmpl-{secrets.token_urlsafe(16)}")
        self._about = {"model": ""}
        self._said = Said()
        self._end_answer()

    def _end_answer(self) -> None:
        self._said.end_answer()
        self._ids: dict[int, str] = {}  # of the calls, by their places
        self._told: set[tuple[str, int]] = set()  # the calls of a message that were told

    # -- the stream's life

    def stream_start(self) -> None:
        """A model's answer begins. After the end, it begins another stream."""
        if self._emitter.ended:
            self._begin()
        self._emitter.heartbeat()  # of this thread, which may be silent for long now
        self._end_answer()

    def stream_end(self) -> None:
        """A model's answer is over."""
        self._mark(MessageStreamStatus.done_generation)
        self._end_answer()

    def step_complete(self) -> None:
        """A step is over: the answer, and what it called."""
        if self.multi_step:
            self._mark(MessageStreamStatus.done_step)
        else:
            self._emitter.close()
        self._end_answer()

    def step_yield(self) -> None:
        """The agent waits for its user: the stream ends."""
        self._emitter.close()

    def error(self, error: BaseException | str) -> None:
        """The agent failed: generators raise that, as a `SourceError`."""
        self._emitter.fail(error)

    def heartbeat(self) -> None:
        """A sign of life of an agent that has nothing to tell for long."""
        self._emitter.heartbeat()

    @staticmethod
    def clear() -> None:
        """Nothing: what was told stays for its readers, within `limit`."""

    def __enter__(self) -> Self:
        self._emitter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emitter.__exit__(kind, error, trace)

    # -- who reads it

    def get_generator(self, finish_message: bool = False) -> AsyncGenerator[Any, None]:
        """The stream's items from its beginning, each as soon as it is told, on asyncio and trio; any number of
        generators, at any time. With `finish_message`, the last item is `[DONE]`: then it is a source for `astream`.

        Raises:
            SourceError: the agent failed, is gone, or was faster than this reader by more than `limit` items.
            SourceTimeoutError: the agent was silent for `timeout` seconds.
        """
        reader = self._emitter.reader(timeout=self.timeout)
        items = _chunks(reader, self._about) if self.streaming_chat_completion_mode else _items(reader)
        return _finished(items) if finish_message else items

    # -- what the agent calls

    def process_chunk(self, chunk: object, message_id: str = "", message_date: datetime | None = None) -> None:
        """A chunk of the model's answer: its content is what the agent thinks."""
        model = get(chunk, "model")
        self._about["model"] = self._about["model"] or (model if isinstance(model, str) else "")
        delta = get(next(iter(items_of(get(chunk, "choices"))), None), "delta")
        if self.streaming_chat_completion_mode:
            for call in calls_of(delta):
                self._say(self._said.piece(call))
            return
        for told in self._pieces(delta):
            self._push(told, message_id, message_date)

    def user_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Nothing: clients know what they sent."""

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        """What the agent thought, where its answer was not streamed."""
        if not self.streaming_mode and msg:
            self._push({"internal_monologue": msg}, *_about(msg_obj))

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Nothing: it comes with the call of `send_message`."""

    def function_message(self, msg: str, msg_obj: object | None = None) -> None:
        """`Running …` is a call, where the answer was not streamed; `Success: …` and `Error: …` are what it gave.

        Raises:
            UsageError: there is no `msg_obj`, or the text is none of these.
        """
        id, date = _about(msg_obj)
        head, _, rest = msg.partition(" ")
        match head:
            case "Running":
                if not self.streaming_mode:
                    self._call(self._called(rest, msg_obj, id), id, date)
            case "Ran":
                pass
            case "Success:" | "Error:":
                status = "success" if head == "Success:" else "error"
                known = {"function_call_id": call_id_of(msg_obj)} if call_id_of(msg_obj) else {}
                self._push({"function_return": rest, "status": status, **known}, id, date)
            case _:
                raise UsageError(f"a function message is 'Running …', 'Ran …', 'Success: …' or 'Error: …', not {msg!r}")

    # -- inside

    def _pieces(self, delta: object) -> Iterator[dict[str, Any]]:
        """What a piece of an answer tells."""
        for thought in (get(delta, "reasoning_content"), text_of(get(delta, "content"))):
            if thought and isinstance(thought, str):
                yield {"internal_monologue": thought}
        for call in calls_of(delta):
            if call.id:
                self._ids[call.place] = call.id
            if call.name or call.arguments:
                yield {"function_call": _function(call._replace(id=self._ids.get(call.place)))}

    def _called(self, text: str, message: object, id: str) -> Call:
        """The call that `name(arguments)` is about: of its message's calls, the first of that name that was not told."""
        name = text.partition("(")[0]
        calls = calls_of(message)
        fitting = [(place, call) for place, call in enumerate(calls) if call.name == name]
        for place, call in fitting:
            if (id, place) not in self._told:
                self._told.add((id, place))
                return call
        known = [call for _, call in fitting] or calls
        return known[0] if known else Call(None, name, text[len(name) :].removeprefix("(").removesuffix(")"))

    def _call(self, call: Call, id: str, date: str | None) -> None:
        arguments = json_object(call.arguments)
        said = arguments.get("message") if arguments is not None and call.name == "send_message" else None
        if self.streaming_chat_completion_mode:
            if isinstance(said, str):
                self._say(self._said.whole(said))
        elif self.nonstreaming_legacy_mode:
            text = call.arguments if arguments is None else repr(arguments)
            self._push({"function_call": f"{call.name}({text})"}, id, date)
            if isinstance(said, str):
                self._push({"assistant_message": said}, id, date)
        else:
            self._push({"function_call": _function(call)}, id, date)

    def _say(self, text: str) -> None:
        if text:
            self._emitter.text(text)
        for fault in self._said.faults:
            warning = StreamWarning("bad-arguments", f"the arguments of send_message are no JSON: {fault}")
            if all(known.fault != warning.fault for known in self._emitter.warnings):
                self._emitter.emit(warning)

    def _push(self, told: dict[str, Any], id: str, date: object) -> None:
        if self.streaming_chat_completion_mode:
            return
        kind, value = next(iter(told.items()))
        item = {"id": id or None, "date": date_of(date, seconds=True), "message_type": kind, **told}
        if kind == "function_call" and isinstance(value, str):
            del item["message_type"]  # such calls are older than it
        self._emitter.emit(RawEvent(kind, {key: given for key, given in item.items() if given is not None}))

    def _mark(self, status: MessageStreamStatus) -> None:
        plain = self.streaming_chat_completion_mode or self.nonstreaming_legacy_mode
        if not plain and not self._emitter.ended:
            self._emitter.emit(RawEvent(status.value, status))


def _about(message: object | None) -> tuple[str, Any]:
    """The id and the time of a message.

    Raises:
        UsageError: there is no message.
    """
    if message is None:
        raise UsageError("StreamingServerInterface needs msg_obj: the message's id and date are its")
    id = get(message, "id")
    return "" if id is None else str(id), get(message, "created_at")


def _function(call: Call) -> dict[str, str]:
    known = {"name": call.name, "arguments": call.arguments, "function_call_id": call.id}
    return {key: value for key, value in known.items() if value}


async def _items(reader: Reader) -> AsyncGenerator[Any, None]:
    async with astream(reader) as stream:
        async for event in stream:
            match event:
                case RawEvent(data=item):
                    yield dict(item) if is_object(item) else item
                case StreamWarning(code="dropped"):
                    error = SourceError(f"this reader came too late: {event.fault}")
                    error.status_code = 410
                    raise error
                case _:
                    pass


async def _chunks(reader: Reader, about: dict[str, str]) -> AsyncGenerator[Any, None]:
    # All that is said is one text, so that whoever comes late is told all of it, in larger pieces.
    async with astream(reader) as stream:
        async for chunk in stream.chunks("openai_chat"):
            yield {**chunk, "model": chunk["model"] or about["model"]} if "model" in chunk else chunk


async def _finished(items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for item in items:
            yield item
    finally:
        await items.aclose()
    yield MessageStreamStatus.done
