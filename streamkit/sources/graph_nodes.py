"""The nodes of a LangGraph graph, which its end waits for: maybe for ever, as one may wait for a model's answer.

A graph that a thread pulls runs its nodes in threads of its own. `node_threads` finds those that a thread waits for. Only nodes, and
what they wait for, are found: the graph's other work, such as writing a checkpoint, is left alone.

In an event loop, the graph cancels its nodes and waits for them. Up to Python 3.11 a node that waits with `asyncio.wait_for`, as
LangChain's client of OpenAI does for each chunk, misses a cancellation that comes in the same moment as the chunk. Then it waits on,
for minutes perhaps. So `close_nodes` cancels nodes again that were cancelled, and have not ended soon.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from .stacks import stack_of

if TYPE_CHECKING:
    import asyncio

__all__ = ["close_nodes", "is_graph_possible", "node_threads", "runs_nodes"]

_NODES = "langgraph.pregel._retry"  # the module whose `run_with_retry` and `arun_with_retry` run a node
_FUTURES = "concurrent.futures._base"
_SOON, _LATER = 0.1, 2.0  # the first and the longest pause, in seconds, before a node is cancelled again


def is_graph_possible() -> bool:
    """Whether there may be a graph."""
    return _NODES in sys.modules


# -- in threads


def runs_nodes(frames: Mapping[int, FrameType]) -> bool:
    """Whether any of these threads runs a node."""
    return any(map(_runs_node, frames.values()))


def node_threads(
    frames: Mapping[int, FrameType], waiting: FrameType | None, *, of_node: bool = False
) -> Iterator[tuple[int, FrameType]]:
    """Yield the threads, each with its innermost frame, that run nodes which a thread waits for.

    Args:
        frames: the innermost frames of all threads.
        waiting: that of the thread that waits.
        of_node: whether that thread runs a node itself, so that all that it waits for belongs to the node.
    """
    awaited = [*_awaited_futures(waiting)]
    for thread, top in frames.items() if awaited else ():
        is_awaited = any(_runs(frame, future) for frame in stack_of(top) for future in awaited)
        if is_awaited and (of_node or _runs_node(top)):
            yield thread, top
            yield from node_threads(frames, top, of_node=True)


def _runs_node(top: FrameType) -> bool:
    return any(_is_in(frame, _NODES, "run_with_retry") for frame in stack_of(top))


def _is_in(frame: FrameType, module: str, name: str) -> bool:
    return frame.f_code.co_name == name and frame.f_globals.get("__name__") == module


def _awaited_futures(top: FrameType | None) -> Iterator[Any]:
    for frame in stack_of(top):
        if _is_in(frame, _FUTURES, "wait"):
            yield from [*frame.f_locals.get("fs", ())]
        elif _is_in(frame, _FUTURES, "result"):
            yield frame.f_locals.get("self")


def _runs(frame: FrameType, future: Any) -> bool:
    """Whether a frame is that of a pool's thread which computes this future."""
    if not _is_in(frame, "concurrent.futures.thread", "run"):
        return False
    return getattr(frame.f_locals.get("self"), "future", None) is future


# -- in an event loop


async def close_nodes(closing: Awaitable[Any]) -> None:
    """Await the end of a stream, which may be that of a graph."""
    if not is_graph_possible() or not _has_nodes():
        await closing
        return
    import asyncio

    again = asyncio.get_running_loop().create_task(_cancel_again(), name="streamkit-close")
    try:
        await closing
    finally:
        again.cancel()


def _has_nodes() -> bool:
    """Whether a graph runs in this event loop: LangGraph needs asyncio's."""
    try:
        return next(_nodes(), None) is not None
    except RuntimeError:
        return False


def _nodes() -> Iterator[asyncio.Task[Any]]:
    import asyncio  # not for threads

    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and code.co_name == "arun_with_retry":
            yield task


async def _cancel_again() -> None:
    import asyncio

    pause = _SOON
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LATER)
        for task in _nodes():
            if task.cancelling():
                task.cancel()
