"""The runs of openai-agents: what `Runner.run_streamed` returns, and the events of it.

The result of a run is added as the last item: it alone says which calls wait for an approval. To close a run, it is cancelled, and its
events are read to their end: the generator of the events would wait for the run.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from .generators import GeneratorSource
from .items import Items
from .recognition import is_openai_run, read_already
from .source import NO_TRAITS, AsyncSource

__all__ = ["of_openai_run", "openai_run_of"]

# The runs that a stream reads or has read, by `id`: they have no hash.
_read: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


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

    Raises:
        UsageError: another stream reads the run, or has read it: its events can be read once.
    """
    if _read.get(id(run)) is run:
        raise read_already(run)
    _read[id(run)] = run
    events: AsyncGenerator[Any, None] = value.stream_events() if value is run else value
    items = _items(run, events)
    return GeneratorSource(items, partial(_close, run, events, items), NO_TRAITS, items=Items(), nested=True)


async def _items(run: Any, events: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    async for event in events:
        yield event
    yield run


async def _close(run: Any, events: AsyncGenerator[Any, None], items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()
    if not run.is_complete:
        run.cancel()
    with contextlib.suppress(Exception):  # what the run was cancelled in the middle of
        async for _ in events:
            pass
