"""Async generators as sources, which only their stream closes, and never the event loop.

When an event loop ends, it closes all async generators that it knows of, at once and in any order. A client's generators are
nested, and the outer ones close the inner ones. If the loop closes an inner one meanwhile, Python prints "asynchronous
generator is already running". So a source's generators are started without the loop's knowledge. `_open` refers to them until their stream is
closed, and the loop closes the stream (`AsyncStreamManager._end_when_dropped`).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from .awaiting import Sleeps, finish, innermost_scope
from .items import Items
from .source import AsyncSource, SourceTraits

__all__ = ["GeneratorSource"]

_open: set[AsyncGenerator[Any, Any]] = set()


class _CallAtSleep(Sleeps):
    """Calls a function when the task begins to sleep. (Only the first call has an effect here.)"""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def begin(self, signal: Any) -> None:
        self._function()


class GeneratorSource(AsyncSource):
    """The items of an async generator.

    Args:
        generator: gives the items.
        close: closes it, and what else is upstream.
        traits: as those of an `AsyncSource`, and so `items`.
        nested: whether it reads generators that `close` ends, too. They begin with it.
    """

    __slots__ = ("_generator", "_has_begun", "_nested")

    def __init__(
        self,
        generator: AsyncGenerator[Any, Any],
        close: Callable[[], Awaitable[object]],
        traits: SourceTraits | None = None,
        *,
        items: Items | None = None,
        nested: bool = False,
    ) -> None:
        super().__init__(self._first, close, traits or SourceTraits(), items=items)
        self._generator = generator
        self._has_begun = False
        self._nested = nested
        _open.add(generator)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            _open.discard(self._generator)

    async def _first(self) -> Any:
        """Pull the first item. The loop does not learn of generators that begin before the first sleep, if they are nested;
        else of this generator alone. Later items are pulled from the generator itself."""
        if self._has_begun:  # `next` was replaced by a clock's, which still calls this
            return await self._generator.__anext__()
        self._has_begun = True
        if self.next == self._first:
            self.next = self._generator.__anext__
        registers = sys.get_asyncgen_hooks().firstiter

        def register() -> None:
            sys.set_asyncgen_hooks(firstiter=registers)

        scope = innermost_scope()
        sys.set_asyncgen_hooks(firstiter=None)
        try:
            steps: Any = self._generator.__anext__().__await__()
            if not self._nested:
                register()
            try:
                signal = next(steps)
            except StopIteration as end:  # nothing has slept
                return end.value
            return await finish(steps, signal, _CallAtSleep(register))
        finally:
            register()
            self.holds_scope = self.holds_scope or innermost_scope() is not scope
