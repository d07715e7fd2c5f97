"""Messages in a queue: what is pushed, from any thread, is taken once, in order, by a list or by a generator.

The queue is bounded by refusing: who pushes more than `limit` messages that nobody takes is told a `UsageError`.
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
from .interfaces import AgentInterface
from .memgpt_format import Line
from .normalise import as_given, date_of, get
from .terminal import put

__all__ = ["QueuingInterface", "Style"]

Style = Literal["obj", "api"]


class _Entry(NamedTuple):
    """A message in both styles. Without any it is the end of a turn; with `error`, how the turn failed."""

    api: dict[str, Any] | None = None
    obj: object | None = None
    error: str | None = None


_STOP = _Entry()


class QueuingInterface(AgentInterface):
    """Queues what an agent does, for one who takes it later (`to_list`) or meanwhile (`message_generator`).

    There are two styles: `obj` gives each `msg_obj`, once; `api` gives dicts, one for each thing that was done:
    `internal_monologue`, `assistant_message`, `function_call`, or `function_return` with a `status`, each with the
    `id` and the `date` of its message.

    Args:
        debug: print all that is pushed.
        limit: how many messages may wait.
        timeout: seconds of silence after which a generator raises `SourceTimeoutError`; None for no limit.
    """

    def __init__(self, debug: bool = True, *, limit: int = 65_536, timeout: float | None = 600.0) -> None:
        if limit < 1:
            raise UsageError(f"a queue's limit is at least 1, not {limit!r}")
        self.debug = debug
        self.timeout = timeout
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._last: _Entry | None = None  # the newest with a message, taken or not
        self._alive = time.monotonic()
        self._waiting: set[TaskWaker] = set()

    # -- what the agent calls

    def user_message(self, msg: str, msg_obj: object | None = None) -> None:
        """The user knows what he said: it is not queued."""
        self._required(msg_obj)
        self._debug(msg, msg_obj)

    def internal_monologue(self, msg: str, msg_obj: object | None = None) -> None:
        self._push_message({"internal_monologue": msg}, self._required(msg_obj), msg)

    def assistant_message(self, msg: str, msg_obj: object | None = None) -> None:
        """Without `msg_obj`, it belongs to the message that was pushed before.

        Raises:
            UsageError: there is none.
        """
        if msg_obj is None:
            if self._last is None:
                raise UsageError(
                    "an assistant_message without msg_obj belongs to the message before, and there is none"
                )
            msg_obj = self._last.obj
        self._push_message({"assistant_message": msg}, msg_obj, msg)

    def function_message(self, msg: str, msg_obj: object | None = None, include_ran_messages: bool = False) -> None:
        """`Running …` is a call, `Success: …` and `Error: …` are what it gave. `Ran …` is left out, if it is not asked
        for: it says nothing new."""
        self._required(msg_obj)
        head, _, rest = msg.partition(" ")
        match head:
            case "Running":
                told = {"function_call": rest}
            case "Ran":
                if not include_ran_messages:
                    self._debug(msg, msg_obj)
                    return
                told = {"function_call": f"Function call returned: {rest}"}
            case "Success:":
                told = {"function_return": rest, "status": "success"}
            case "Error:":
                told = {"function_return": rest, "status": "error"}
            case _:
                told = {"function_message": msg}
        self._push_message(told, msg_obj, msg)

    def step_yield(self) -> None:
        """The agent waits for the user: generators end here."""
        self._push(_STOP)

    @staticmethod
    def step_complete() -> None:
        """A step is over; the turn goes on."""

    def error(self, error: str) -> None:
        """The turn failed: generators end here, in style `api` with `{"internal_error": …}` as the last item, in style
        `obj`, which has no message for it, with `RunFailedError`."""
        self._push(_Entry(error=str(error)), _STOP)

    def clear(self) -> None:
        """Forget all that nobody has taken."""
        with self._lock:
            self._entries.clear()

    # -- who takes it

    def to_list(self, style: Style = "obj") -> list[Any]:
        """All that waits, which is taken with it. In style `obj` each message is there once, where it was pushed last.

        Raises:
            RunFailedError: in style `obj`: the turn failed. What was pushed is still there, without the error.
        """
        _check(style)
        with self._lock:
            failed = next((entry for entry in self._entries if entry.error is not None), None)
            if style == "obj" and failed is not None:
                self._entries = deque(entry for entry in self._entries if entry is not failed)
                raise RunFailedError(failed.error or "")
            taken, self._entries = self._entries, deque()
        if style == "api":
            return [_in_api(entry) for entry in taken if entry is not _STOP]
        last: dict[object, object] = {}
        for entry in reversed(taken):
            if entry.obj is not None:
                last.setdefault(_key(entry.obj), entry.obj)
        return list(reversed(last.values()))

    def message_generator(self, style: Style = "obj") -> AsyncGenerator[Any, None]:
        """What is pushed, as it is pushed, until the agent yields; on asyncio and trio. Each message goes to one
        generator; a message that did several things comes for each of them.

        Raises:
            UsageError: there is no such style.
            RunFailedError: in style `obj`: the turn failed.
            SourceTimeoutError: the agent was silent for `timeout` seconds.
        """
        _check(style)
        return self._generate(style)

    async def _generate(self, style: Style) -> AsyncGenerator[Any, None]:
        waker = task_waker()
        began = time.monotonic()
        try:
            while (entry := await self._next(waker, began)) is not _STOP:
                if entry.error is None or style == "api":
                    yield entry.obj if style == "obj" else _in_api(entry)
                    continue
                self._take_stop()
                raise RunFailedError(entry.error)
        finally:
            self._waiting.discard(waker)
            waker.close()

    async def _next(self, waker: TaskWaker, began: float) -> _Entry:
        while True:
            waker.reset()
            with self._lock:
                if self._entries:
                    self._waiting.discard(waker)
                    return self._entries.popleft()
                self._waiting.add(waker)
            silence = time.monotonic() - max(began, self._alive)
            if self.timeout is not None and silence >= self.timeout:
                raise SourceTimeoutError(f"the agent has told nothing for {silence:.1f} seconds")
            await waker.wait(60.0 if self.timeout is None else max(0.001, min(60.0, self.timeout - silence)))

    def _take_stop(self) -> None:
        """That of an error, which is told."""
        with self._lock:
            if self._entries and self._entries[0] is _STOP:
                self._entries.popleft()

    # -- inside

    def _required(self, msg_obj: object | None) -> object:
        if msg_obj is None:
            raise UsageError(f"{type(self).__name__} needs msg_obj: the message's id and date are its")
        return msg_obj

    def _push_message(self, told: dict[str, Any], msg_obj: object, text: str) -> None:
        self._debug(text, msg_obj)
        id = get(msg_obj, "id")
        known = {"id": None if id is None else str(id), "date": date_of(get(msg_obj, "created_at"))}
        self._push(_Entry({**told, **{key: value for key, value in known.items() if value is not None}}, msg_obj))

    def _push(self, *entries: _Entry) -> None:
        with self._lock:
            # What ends a turn is always taken: refused, it would leave its readers waiting.
            if entries[0].api is not None and len(self._entries) >= self._limit:
                raise UsageError(f"{self._limit} messages wait in the queue, its limit, and nobody takes them")
            self._entries.extend(entries)
            if entries[0].api is not None:
                self._last = entries[0]
            self._alive = time.monotonic()
            waiting = [*self._waiting]
        for waker in waiting:
            waker.wake()

    def _debug(self, text: str, msg_obj: object) -> None:
        if self.debug:
            date = date_of(get(msg_obj, "created_at"))
            put(Line(printable(str(told))) for told in (text, as_given(msg_obj), date) if told is not None)


def _check(style: object) -> None:
    if style not in get_args(Style):
        raise UsageError(f"there is no style {style!r}; there are: {', '.join(get_args(Style))}")


def _in_api(entry: _Entry) -> dict[str, Any]:
    return entry.api if entry.api is not None else {"internal_error": entry.error}


def _key(message: object) -> object:
    """What tells messages apart: the id, where there is one."""
    given = get(message, "id")
    return id(message) if given is None else str(given)
