"""The runs of agent frameworks as sources: what the object of a run says beside what it yields.

Each is recognised by its methods. No framework is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from copy import copy
from functools import partial
from typing import Any

from ..messages.answer import Answer
from .generators import GeneratorSource
from .items import Items
from .recognition import class_of, is_openai_run, read_already
from .source import NO_TRAITS, AsyncSource

__all__ = ["AiRun", "PydanticRun", "is_ai_run", "is_pydantic_run", "of_openai_run", "openai_run_of"]

# Events while a response of the model comes.
_WITHIN_RESPONSE = ("part_start", "part_delta", "part_end", "final_result")


def is_pydantic_run(value: Any) -> bool:
    """Whether this is what Pydantic AI's `run_stream_events` gives when it is entered. (A run of `agent.iter` has `next_node`.)"""
    kind = class_of(value)
    methods = ("__anext__", "new_messages", "cancel", "usage")
    return all(hasattr(kind, name) for name in methods) and not hasattr(kind, "next_node")


class PydanticRun(AsyncIterator[Any]):
    """The events of a run, and each response of the model (`ModelResponse`, with its model, tokens and finish reason) once it is over:
    before the event that follows it, also where the run fails. After the first event come the tokens that the run's conversation
    had before (`RunUsage`), if it goes on with one. Where the application has cancelled the run, the last item is its `RunCancelled`."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._items: deque[Any] = deque()  # to be yielded before the next event
        self._responses = 0
        self._has_begun = False
        self._error: Exception | None = None

    async def __anext__(self) -> Any:
        while not self._items:
            if (error := self._error) is not None:
                self._error = None
                raise error
            await self._pull()
        return self._items.popleft()

    async def _pull(self) -> None:
        try:
            event = await anext(self._run)
        except StopAsyncIteration:
            raise
        except Exception as error:
            with contextlib.suppress(Exception):  # of a run that never began, which has no messages
                responses = self._new_responses()
                self._items += responses if self._has_begun else [one for one in responses if one.usage.has_values()]
            is_cancelled = type(error).__name__ == "RunCancelled"
            self._items += [error] if is_cancelled else []
            self._error = StopAsyncIteration() if is_cancelled else error
            return
        if getattr(event, "event_kind", None) not in _WITHIN_RESPONSE:
            self._items += self._new_responses()
        self._items.append(event)
        if not self._has_begun:
            self._has_begun = True
            self._items.append(copy(self._run.usage))

    def _new_responses(self) -> list[Any]:
        messages = self._run.new_messages()
        responses = [message for message in messages if getattr(message, "kind", None) == "response"]
        new, self._responses = responses[self._responses :], len(responses)
        return new

    async def aclose(self) -> None:
        """Stop the run."""
        await self._run.aclose()


def is_ai_run(value: Any) -> bool:
    """Whether this is what `agent.run` of the package `ai` gives when it is entered."""
    return all(hasattr(class_of(value), name) for name in ("__anext__", "hook_registry", "deferred_hooks"))


class AiRun(AsyncIterator[Any]):
    """The events of a run. One that has a question for an approval, perhaps a sub-agent's, has as `asked` the id of its hook and what takes
    the answer, with which the run goes on. Where it waits for answers alone, and none is to come, it ends."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._answers: list[Answer] = []
        self._is_blocked = False

    async def __anext__(self) -> Any:
        if self._is_blocked and not any(answer.has_answer or answer.deferred for answer in self._answers):
            raise StopAsyncIteration
        try:
            event = await anext(self._run)
        except ExceptionGroup as group:  # the task groups of the run are around its exception
            raise _only_one_in(group) from None
        inner = event
        while inner.kind == "partial_tool_call_result" and hasattr(inner.value, "kind"):
            inner = inner.value
        self._is_blocked = inner.kind == "run_blocked"
        if inner.kind == "hook" and inner.hook.status == "pending" and inner.hook.hook_type == "ToolApproval":
            vars(event)["asked"] = inner.hook.hook_id, self._answer_to(inner.hook.hook_id)  # the event itself is frozen
        elif inner.kind == "hook":
            self._answers = [answer for answer in self._answers if answer.open]
        return event

    def _answer_to(self, hook_id: str) -> Answer:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._take_answer, hook_id, answer)

        answer = Answer(f"confirmation {hook_id!r}", wake)
        self._answers.append(answer)
        return answer

    def _take_answer(self, hook_id: str, answer: Answer) -> None:
        """Resolve the hook, or begin the time of a deferral, at whose end it is declined."""
        value: Any = answer.value
        if answer.has_answer:
            outcome, detail = value
            resolution = {"granted": outcome == "approved", "reason": detail}
            sys.modules["ai"].resolve_hook(hook_id, resolution, registry=self._run.hook_registry)
        elif answer.timeout is not None:
            expire = partial(self._expire, answer, answer.deferrals)
            asyncio.get_running_loop().call_later(answer.timeout, expire)

    def _expire(self, answer: Answer, deferral: int) -> None:
        if answer.open and answer.deferrals == deferral:
            answer.offer(("declined", "no answer in time"))

    async def aclose(self) -> None:
        """Stop the run."""
        for answer in self._answers:
            answer.close()
        await self._run.aclose()


def _only_one_in(group: Any) -> Exception:
    """Return the exception in nested groups, if it is the only one."""
    error: Any = group
    while len(getattr(error, "exceptions", ())) == 1:
        error = error.exceptions[0]
    found: Exception = error
    return found


# -- openai-agents: what `Runner.run_streamed` returns

# The runs that a stream reads or has read, by `id`: they have no hash.
_read_runs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def openai_run_of(value: Any) -> Any:
    """Return the run that a value is, or whose `stream_events()` it is; None for any other value."""
    if is_openai_run(value):
        return value
    frame = value.ag_frame if inspect.isasyncgen(value) else None
    if frame is None or frame.f_code.co_name != "stream_events":
        return None
    run = frame.f_locals.get("self")
    return run if is_openai_run(run) else None


def of_openai_run(run: Any, value: Any) -> AsyncSource:
    """Return the events of a run as a source: those that `value` gives, the run itself or its `stream_events()`.

    The run is added as the last item: it alone says which calls wait for an approval. To close a run, it is cancelled, and its
    events are read to their end: the generator of the events would wait for the run.

    Raises:
        UsageError: another stream reads the run, or has read it: its events can be read once.
    """
    if _read_runs.get(id(run)) is run:
        raise read_already(run)
    _read_runs[id(run)] = run
    events: AsyncGenerator[Any, None] = value.stream_events() if value is run else value
    items = _events_and_run(run, events)
    return GeneratorSource(items, partial(_cancel, run, events, items), NO_TRAITS, items=Items(), nested=True)


async def _events_and_run(run: Any, events: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    async for event in events:
        yield event
    yield run


async def _cancel(run: Any, events: AsyncGenerator[Any, None], items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()
    if not run.is_complete:
        run.cancel()
    with contextlib.suppress(Exception):  # what the run was cancelled in the middle of
        async for _ in events:
            pass
