"""An interface that streams what an agent does to clients: called from any thread, read by any number of generators.

The items are Letta's of 2024, as dicts; `streamkit.protocols.letta` decodes them. In chat completion mode they are Chat
Completions chunks with the text that the agent sends to its user, and nothing else. The log of items is bounded: the
agent never waits for its readers, and a reader that is too slow for the log gets a `SourceError`.
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
from ...streams.readers import AsyncGeneratorLoop
from .interfaces import AgentChunkStreamingInterface
from .normalise import FunctionCall, call_id_of, calls_of, get, items_of, json_object, text_of, utc_date
from .sent_text import SentText

__all__ = ["MessageStreamStatus", "StreamingServerInterface"]


# Private methods of the original that a subclass may override there.
_UNCALLED = ("_process_chunk_to_", "_push_to_buffer", "_create_generator")


class MessageStreamStatus(StrEnum):
    """The marks between items: the end of a model's answer, of a step (an answer and its calls), of the stream."""

    done_generation = "[DONE_GEN]"
    done_step = "[DONE_STEP]"
    done = "[DONE]"


class StreamingServerInterface(AgentChunkStreamingInterface):
    """Streams what an agent does to the clients of a server.

        interface = StreamingServerInterface()
        task = asyncio.create_task(asyncio.to_thread(run_agent, interface))  # run_agent uses `with interface: …`
        async for item in interface.get_generator():
            ...

    The stream ends when `with` is left, and with `step_yield` or `error`. A later `stream_start` begins another one.

    Args:
        multi_step: Continue the stream after a step, until the agent yields. Default: True.
        limit: How many items the log holds for readers. Default: 65,536.
        timeout: Seconds without an event or a heartbeat after which generators raise `SourceTimeoutError`; None for no limit.

    Attributes:
        streaming_mode: Answers arrive by `process_chunk`; then the same texts in other methods are left out.
        nonstreaming_legacy_mode: A call is one text, `name(arguments)`, followed by the text that it sends to the user,
            and there are no marks between steps.
        streaming_chat_completion_mode: The items are Chat Completions chunks of the text that the agent sends to its
            user. Set it before calling `get_generator`.

    A subclass overrides the public methods. The private hooks of the original, such as `_process_chunk_to_letta_style`, are
    not called, and refused with a `UsageError` when the class is made.
    """

    def __init__(self, multi_step: bool = True, *, limit: int = 65_536, timeout: float | None = 600.0) -> None:
        self.streaming_mode = False
        self.nonstreaming_legacy_mode = False
        self.streaming_chat_completion_mode = False
        self.multi_step = multi_step
        self.timeout = timeout
        self._limit = limit
        self._begin()

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse hooks of the original that are not called here.

        Raises:
            UsageError: the subclass has one.
        """
        super().__init_subclass__(**options)
        for name in dir(cls):
            if name.startswith(_UNCALLED):
                raise UsageError(
                    f"{cls.__name__}.{name} would never be called: override `process_chunk` or `function_message`, or "
                    "change the items of `get_generator`"
                )

    def _begin(self) -> None:
        relay = MemoryRelay(limit=self._limit, timeout=None)
        self._emitter = Emitter(relay, f"chatcmpl-{secrets.token_urlsafe(16)}")
        self._model = {"model": ""}  # shared with the generators, which are made before it is known
        self._sent = SentText()
        self._end_answer()

    def _end_answer(self) -> None:
        self._sent.end_answer()
        self._call_ids: dict[int, str] = {}  # of the answer's calls, by their positions
        self._announced: set[tuple[str, int]] = set()  # the calls that were announced, by message id and position

    # -- beginning and end

    def stream_start(self) -> None:
        """A model's answer begins. If the stream has ended, another one begins."""
        if self._emitter.ended:
            self._begin()
        self._emitter.heartbeat()  # the model may take long to answer
        self._end_answer()

    def stream_end(self) -> None:
        """A model's answer is complete."""
        self._mark(MessageStreamStatus.done_generation)
        self._end_answer()

    def step_complete(self) -> None:
        """A step, an answer and its calls, is complete. Without `multi_step` the stream ends."""
        if self.multi_step:
            self._mark(MessageStreamStatus.done_step)
        else:
            self._emitter.close()
        self._end_answer()

    def step_yield(self) -> None:
        """The agent waits for its user: the stream ends."""
        self._emitter.close()

    def error(self, error: BaseException | str) -> None:
        """The agent failed: the stream ends, and generators raise a `SourceError` with this error."""
        self._emitter.fail(error)

    def heartbeat(self) -> None:
        """Report that the agent is alive although it has nothing to send for a long time: the `timeout` starts anew."""
        self._emitter.heartbeat()

    @staticmethod
    def clear() -> None:
        """Does nothing: items stay in the log for readers, within `limit`."""

    def __enter__(self) -> Self:
        self._emitter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emitter.__exit__(kind, error, trace)

    # -- reading

    def get_generator(self, finish_message: bool = False) -> AsyncGenerator[Any, None]:
        """Return the stream's items from its beginning, each as soon as it was sent; on asyncio and trio.

        There may be any number of generators, made at any time.

        Args:
            finish_message: End with the item `[DONE]`; then the generator is a source for `astream`.

        Raises:
            SourceError: The agent failed or is gone, or this reader is behind it by more than `limit` items.
            SourceTimeoutError: The agent sent nothing, and no heartbeat, for `timeout` seconds.
            IncompleteStreamError: A wait for the next item was cancelled. Another generator has everything.
        """
        reader = self._emitter.reader(timeout=self.timeout)
        items = _chunks(reader, self._model) if self.streaming_chat_completion_mode else _items(reader)
        return AsyncGeneratorLoop(_finished(items) if finish_message else items)

    # -- what the agent calls

    def process_chunk(self, chunk: object, message_id: str = "", message_date: datetime | None = None) -> None:
        """Send a chunk of the model's answer. Its content is a thought of the agent; texts to the user are calls."""
        model = get(chunk, "model")
        self._model["model"] = self._model["model"] or (model if isinstance(model, str) else "")
        delta = get(next(iter(items_of(get(chunk, "choices"))), None), "delta")
        if self.streaming_chat_completion_mode:
            for call in calls_of(delta):
                self._send_text(self._sent.feed(call))
            return
        for item in self._chunk_items(delta):
            self._send(item, message_id, message_date)

    def user_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Sends nothing: clients have their own messages."""

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        """Send a thought of the agent, unless `streaming_mode` is set.

        Raises:
            UsageError: There is no `msg_obj`.
        """
        if not self.streaming_mode and msg:
            self._send({"internal_monologue": msg}, *_id_and_date(msg_obj))

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Sends nothing: the call of `send_message` has the same text."""

    def function_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Send a call, `Running …` (unless `streaming_mode` is set), or its result, `Success: …` or `Error: …`.

        Raises:
            UsageError: There is no `msg_obj`, or the text is none of these and not `Ran …`.
        """
        id, date = _id_and_date(msg_obj)
        head, _, rest = msg.partition(" ")
        match head:
            case "Running":
                if not self.streaming_mode:
                    self._send_call(self._find_call(rest, msg_obj, id), id, date)
            case "Ran":
                pass
            case "Success:" | "Error:":
                status = "success" if head == "Success:" else "error"
                item = {"function_return": rest, "status": status}
                if call_id := call_id_of(msg_obj):
                    item["function_call_id"] = call_id
                self._send(item, id, date)
            case _:
                raise UsageError(f"a function message is 'Running …', 'Ran …', 'Success: …' or 'Error: …', not {msg!r}")

    # -- sending

    def _chunk_items(self, delta: object) -> Iterator[dict[str, Any]]:
        """Yield the items for a chunk's delta."""
        for thought in (get(delta, "reasoning_content"), text_of(get(delta, "content"))):
            if thought and isinstance(thought, str):
                yield {"internal_monologue": thought}
        for call in calls_of(delta):
            if call.id:
                self._call_ids[call.position] = call.id
            if call.name or call.arguments:
                yield {"function_call": _function(call._replace(id=self._call_ids.get(call.position)))}

    def _find_call(self, text: str, message: object, id: str) -> FunctionCall:
        """Return the message's call that `name(arguments)` announces: the first of that name not announced yet."""
        name = text.partition("(")[0]
        calls = calls_of(message)
        matching = [(position, call) for position, call in enumerate(calls) if call.name == name]
        for position, call in matching:
            if (id, position) not in self._announced:
                self._announced.add((id, position))
                return call
        likely = [call for _, call in matching] or calls
        return likely[0] if likely else FunctionCall(None, name, text[len(name) :].removeprefix("(").removesuffix(")"))

    def _send_call(self, call: FunctionCall, id: str, date: str | None) -> None:
        arguments = json_object(call.arguments)
        sent = arguments.get("message") if arguments is not None and call.name == "send_message" else None
        if self.streaming_chat_completion_mode:
            if isinstance(sent, str):
                self._send_text(self._sent.add(sent))
        elif self.nonstreaming_legacy_mode:
            text = call.arguments if arguments is None else repr(arguments)
            self._send({"function_call": f"{call.name}({text})"}, id, date)
            if isinstance(sent, str):
                self._send({"assistant_message": sent}, id, date)
        else:
            self._send({"function_call": _function(call)}, id, date)

    def _send_text(self, text: str) -> None:
        """Send text to the user, in chat completion mode, and a warning if the arguments that it is in are invalid."""
        if text:
            self._emitter.text(text)
        for fault in self._sent.faults:
            warning = StreamWarning("bad-arguments", f"the arguments of send_message are not JSON: {fault}")
            if all(earlier.fault != warning.fault for earlier in self._emitter.warnings):
                self._emitter.emit(warning)

    def _send(self, body: dict[str, Any], id: str, date: object) -> None:
        """Send an item. The first key of its body is its message type."""
        if self.streaming_chat_completion_mode:
            return
        kind, content = next(iter(body.items()))
        item = {"id": id or None, "date": utc_date(date, seconds=True), "message_type": kind, **body}
        if kind == "function_call" and isinstance(content, str):
            del item["message_type"]  # the legacy format has none
        self._emitter.emit(RawEvent(kind, {key: value for key, value in item.items() if value is not None}))

    def _mark(self, status: MessageStreamStatus) -> None:
        has_marks = not (self.streaming_chat_completion_mode or self.nonstreaming_legacy_mode)
        if has_marks and not self._emitter.ended:
            self._emitter.emit(RawEvent(status.value, status))


def _id_and_date(message: object | None) -> tuple[str, Any]:
    """Return the id and the time of a message.

    Raises:
        UsageError: There is no message.
    """
    if message is None:
        raise UsageError("StreamingServerInterface needs msg_obj, for the id and the date of the message")
    id = get(message, "id")
    return "" if id is None else str(id), get(message, "created_at")


def _function(call: FunctionCall) -> dict[str, str]:
    """Return the body of a `function_call` item."""
    fields = {"name": call.name, "arguments": call.arguments, "function_call_id": call.id}
    return {key: value for key, value in fields.items() if value}


async def _items(reader: Reader) -> AsyncGenerator[Any, None]:
    """Yield the items in Letta's format."""
    async with astream(reader) as stream:
        async for event in stream:
            match event:
                case RawEvent(data=str(mark)):  # a relay keeps the text of a mark, not its class
                    yield MessageStreamStatus(mark)
                case RawEvent(data=item):
                    yield dict(item) if is_object(item) else item
                case StreamWarning(code="dropped"):
                    error = SourceError(f"this reader is too late: {event.fault}")
                    error.status_code = 410
                    raise error
                case _:
                    pass


async def _chunks(reader: Reader, model: dict[str, str]) -> AsyncGenerator[Any, None]:
    """Yield the items as Chat Completions chunks. They are one text, so a late reader gets all of it, in larger
    pieces."""
    async with astream(reader) as stream:
        async for chunk in stream.chunks("openai_chat"):
            yield {**chunk, "model": chunk["model"] or model["model"]} if "model" in chunk else chunk


async def _finished(items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Yield the items, then `[DONE]`."""
    try:
        async for item in items:
            yield item
    finally:
        await items.aclose()
    yield MessageStreamStatus.done
