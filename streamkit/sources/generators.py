"""Async generators as sources, which their stream closes, and nobody else.

When an event loop ends it closes all async generators that it knows of, at once and in any order. A client's are nested, and
the outer ones close the inner ones, as a stream closes them all: Python then prints "asynchronous generator is already
running". So a source's generators begin unknown to the loop, and are referred to here until their stream is closed. The
stream itself is what the loop closes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from .awaiting import finish
from .items import Items
from .source import AsyncSource, SourceTraits

__all__ = ["GeneratorSource"]

_open: set[AsyncGenerator[Any, Any]] = set()


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
        """The first item. What begins until the first sleep is unknown to the loop, or the generator alone is. The items
        after it come from the generator itself."""
        if self._has_begun:  # a clock stands in the place of `next`
            return await self._generator.__anext__()
        self._has_begun = True
        if self.next == self._first:
            self.next = self._generator.__anext__
        registers = sys.get_asyncgen_hooks().firstiter

        def register() -> None:
            sys.set_asyncgen_hooks(firstiter=registers)

        sys.set_asyncgen_hooks(firstiter=None)
        try:
            steps: Any = self._generator.__anext__().__await__()
            if not self._nested:
                register()
            try:
                signal = next(steps)
            except StopIteration as end:  # nothing has slept
                return end.value
            register()
            return await finish(steps, signal)
        finally:
            register()
