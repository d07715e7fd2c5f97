"""Closes the stream of a LangGraph graph in an event loop.

The graph cancels its nodes and waits for them. Up to Python 3.11 a node that waits with `asyncio.wait_for`, as LangChain's client of
OpenAI does for each chunk, misses a cancellation that comes in the same moment as the chunk. Then it waits on, for minutes perhaps. So
nodes that were cancelled, and have not ended soon, are cancelled again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

__all__ = ["close_nodes"]

_NODES = "langgraph.pregel._retry"  # the module whose `arun_with_retry` runs a node
_SOON, _LATER = 0.1, 2.0  # the first and the longest pause, in seconds, before a node is cancelled again


async def close_nodes(closing: Awaitable[Any]) -> None:
    """Await the end of a stream, which may be that of a graph."""
    if not _is_graph_possible():
        await closing
        return
    again = asyncio.get_running_loop().create_task(_cancel_again(), name="streamkit-close")
    try:
        await closing
    finally:
        again.cancel()


def _is_graph_possible() -> bool:
    """Whether a graph may run in this event loop: LangGraph needs asyncio's."""
    if _NODES not in sys.modules:
        return False
    try:
        return next(_nodes(), None) is not None
    except RuntimeError:
        return False


def _nodes() -> Iterator[asyncio.Task[Any]]:
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and code.co_name == "arun_with_retry":
            yield task


async def _cancel_again() -> None:
    pause = _SOON
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LATER)
        for task in _nodes():
            if task.cancelling():
                task.cancel()
