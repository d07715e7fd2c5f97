"""An interface that queues an agent's messages. They may be pushed from any thread, and each is taken once, in order.

The queue is bounded: pushing a message onto a full queue raises `UsageError`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Literal, NamedTuple, get_args

from ...errors import RunFailedError, SourceTimeoutError, UsageError
from ...relay.wakers import TaskWaker, task_waker
from ...renderers.characters import printable
from ...streams.readers import AsyncGeneratorLoop
from .interfaces import AgentInterface
from .memgpt_format import FormattedLine
from .normalise import as_dict, get, utc_date
from .terminal import put

__all__ = ["QueuingInterface", "Style"]

Style = Literal["obj", "api"]


class _QueuedMessage(NamedTuple):
    """An entry of the queue: a message in both styles, or the error of a turn. An empty one ends the turn."""

    api: dict[str, Any] | None = None
    obj: object | None = None
    error: str | None = None


_STOP = _QueuedMessage()


class QueuingInterface(AgentInterface):
    """Queues what an agent does, to be taken afterwards (`to_list`) or meanwhile (`message_generator`).

    Messages are returned in one of two styles. `obj` returns each `msg_obj`, once. `api` returns a dict for each thing
    that the agent did: `internal_monologue`, `assistant_message`, `function_call`, or `function_return` with a
    `status`, each with the `id` and the `date` of its message.

    Args:
        debug: Print everything that is pushed. Default: True.
        limit: How many messages the queue can hold. Default: 65,536.
        timeout: Seconds without a message after which a generator raises `SourceTimeoutError`; None for no limit.

    A subclass overrides the public methods. The private `_queue_push` of the original is not called, and refused with a
    `UsageError` when the class is made.

    Raises:
        UsageError: The limit is below 1.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse the hook of the original that is not called here.

        Raises:
            UsageError: the subclass has it.
        """
        super().__init_subclass__(**options)
        if hasattr(cls, "_queue_push"):
            raise UsageError(
                f"{cls.__name__}._queue_push would never be called: override the public methods, such as "
                "`internal_monologue`, `assistant_message` and `function_message`"
            )

    def __init__(self, debug: bool = True, *, limit: int = 65_536, timeout: float | None = 600.0) -> None:
        if limit < 1:
            raise UsageError(f"a queue's limit is at least 1, not {limit!r}")
        self.debug = debug
        self.timeout = timeout
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: deque[_QueuedMessage] = deque()
        self._last_message: _QueuedMessage | None = None  # the newest one, whether it was taken or not
        self._last_push = time.monotonic()
        self._waiting: set[TaskWaker] = set()

    # -- what the agent calls

    def user_message(self, msg: str, msg_obj: object | None = None) -> None:
        """A message of the user. It is not queued, because the user has it already.

        Raises:
            UsageError: There is no `msg_obj`.
        """
        self._required(msg_obj)
        self._debug(msg, msg_obj)

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        """Queue a thought of the agent.

        Raises:
            UsageError: There is no `msg_obj`, or the queue is full.
        """
        self._push_message({"internal_monologue": msg}, self._required(msg_obj), msg)

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Queue a message to the user. Without `msg_obj` it belongs to the message that was pushed before.

        Raises:
            UsageError: There is no `msg_obj` and no message before, or the queue is full.
        """
        if msg_obj is None:
            if self._last_message is None:
                raise UsageError(
                    "an assistant_message without msg_obj belongs to the message before, and there is none"
                )
            msg_obj = self._last_message.obj
        self._push_message({"assistant_message": msg}, msg_obj, msg)

    def function_message(self, msg: str, msg_obj: object | None = None, include_ran_messages: bool = False) -> None:
        """Queue a call, `Running …`, or its result, `Success: …` or `Error: …`.

        Args:
            msg: The function message.
            msg_obj: The message that it belongs to.
            include_ran_messages: Queue `Ran …` messages too. By default they are left out, because they repeat the
                call.

        Raises:
            UsageError: There is no `msg_obj`, or the queue is full.
        """
        self._required(msg_obj)
        head, _, rest = msg.partition(" ")
        match head:
            case "Running":
                item = {"function_call": rest}
            case "Ran":
                if not include_ran_messages:
                    self._debug(msg, msg_obj)
                    return
                item = {"function_call": f"Function call returned: {rest}"}
            case "Success:":
                item = {"function_return": rest, "status": "success"}
            case "Error:":
                item = {"function_return": rest, "status": "error"}
            case _:
                item = {"function_message": msg}
        self._push_message(item, msg_obj, msg)

    def step_yield(self) -> None:
        """The agent waits for the user: the turn and its generators end here."""
        self._push(_STOP)

    @staticmethod
    def step_complete() -> None:
        """A step of the agent ended. Nothing is queued: the turn continues."""

    def error(self, error: str) -> None:
        """The turn failed: generators end here.

        In style `api` their last item is `{"internal_error": …}`. Style `obj` has no message for an error, so they
        raise `RunFailedError`.
        """
        self._push(_QueuedMessage(error=str(error)), _STOP)

    def clear(self) -> None:
        """Drop all messages that were not taken."""
        with self._lock:
            self._entries.clear()

    # -- taking messages

    def to_list(self, style: Style = "obj") -> list[Any]:
        """Take all messages from the queue.

        Args:
            style: `obj` for the messages, each once, at the place where it was pushed last; `api` for dicts.

        Raises:
            UsageError: There is no such style.
            RunFailedError: In style `obj`: the turn failed. The error is taken from the queue, the messages are not.
        """
        _check_style(style)
        with self._lock:
            failed = next((entry for entry in self._entries if entry.error is not None), None)
            if style == "obj" and failed is not None:
                self._entries = deque(entry for entry in self._entries if entry is not failed)
                raise RunFailedError(failed.error or "")
            taken, self._entries = self._entries, deque()
        if style == "api":
            return [_api_item(entry) for entry in taken if entry is not _STOP]
        last: dict[object, object] = {}
        for entry in reversed(taken):
            if entry.obj is not None:
                last.setdefault(_key(entry.obj), entry.obj)
        return list(reversed(last.values()))

    def message_generator(self, style: Style = "obj") -> AsyncGenerator[Any, None]:
        """Take messages as they are pushed, until the agent calls `step_yield` or `error`; on asyncio and trio.

        With several generators each message goes to one of them. A message with several things that the agent did is
        returned for each of them.

        Raises:
            UsageError: There is no such style.
            RunFailedError: In style `obj`: the turn failed.
            SourceTimeoutError: Nothing was pushed for `timeout` seconds.
            IncompleteStreamError: A wait for the next message was cancelled. Another generator goes on from there.
        """
        _check_style(style)
        return AsyncGeneratorLoop(self._generate(style))

    async def _generate(self, style: Style) -> AsyncGenerator[Any, None]:
        waker = task_waker()
        began = time.monotonic()
        try:
            while (entry := await self._next(waker, began)) is not _STOP:
                if entry.error is None or style == "api":
                    yield entry.obj if style == "obj" else _api_item(entry)
                    continue
                self._take_stop()
                raise RunFailedError(entry.error)
        finally:
            self._waiting.discard(waker)
            waker.close()

    async def _next(self, waker: TaskWaker, began: float) -> _QueuedMessage:
        while True:
            waker.reset()
            with self._lock:
                if self._entries:
                    self._waiting.discard(waker)
                    return self._entries.popleft()
                self._waiting.add(waker)
            silence = time.monotonic() - max(began, self._last_push)
            if self.timeout is not None and silence >= self.timeout:
                raise SourceTimeoutError(f"the agent has sent nothing for {silence:.1f} seconds")
            await waker.wait(60.0 if self.timeout is None else max(0.001, min(60.0, self.timeout - silence)))

    def _take_stop(self) -> None:
        """Take the end of the turn that follows an error, which was reported already."""
        with self._lock:
            if self._entries and self._entries[0] is _STOP:
                self._entries.popleft()

    # -- inside

    def _required(self, msg_obj: object | None) -> object:
        if msg_obj is None:
            raise UsageError(f"{type(self).__name__} needs msg_obj, for the id and the date of the message")
        return msg_obj

    def _push_message(self, item: dict[str, Any], msg_obj: object, text: str) -> None:
        self._debug(text, msg_obj)
        id = get(msg_obj, "id")
        fields = {"id": None if id is None else str(id), "date": utc_date(get(msg_obj, "created_at"))}
        self._push(
            _QueuedMessage({**item, **{key: value for key, value in fields.items() if value is not None}}, msg_obj)
        )

    def _push(self, *entries: _QueuedMessage) -> None:
        with self._lock:
            # The end of a turn is accepted even if the queue is full, because generators wait for it.
            if entries[0].api is not None and len(self._entries) >= self._limit:
                raise UsageError(f"the queue is full: {self._limit} messages, its limit, were not taken")
            self._entries.extend(entries)
            if entries[0].api is not None:
                self._last_message = entries[0]
            self._last_push = time.monotonic()
            waiting = [*self._waiting]
        for waker in waiting:
            waker.wake()

    def _debug(self, text: str, msg_obj: object) -> None:
        if self.debug:
            date = utc_date(get(msg_obj, "created_at"))
            put(FormattedLine(printable(str(value))) for value in (text, as_dict(msg_obj), date) if value is not None)


def _check_style(style: object) -> None:
    if style not in get_args(Style):
        raise UsageError(f"there is no style {style!r}; there are: {', '.join(get_args(Style))}")


def _api_item(entry: _QueuedMessage) -> dict[str, Any]:
    return entry.api if entry.api is not None else {"internal_error": entry.error}


def _key(message: object) -> object:
    """Return the key of a message: its id, or the object itself if it has none."""
    message_id = get(message, "id")
    return id(message) if message_id is None else str(message_id)
