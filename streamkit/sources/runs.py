"""The runs of agent frameworks as sources: what the object of a run says beside what it yields.

Each is recognised by its methods. No framework is imported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from copy import copy
from typing import Any

from .recognition import class_of

__all__ = ["PydanticRun", "is_pydantic_run"]

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
    had before (`RunUsage`), if it goes on with one."""

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
            self._items += self._new_responses() if self._has_begun else ()
            self._error = error
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
