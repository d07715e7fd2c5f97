"""Finds the threads that run the nodes of a LangGraph graph for a thread that waits for them.

A graph that is pulled by a thread runs its nodes in threads of its own. Where it is closed it waits until they have ended, which may be
never: one may wait for a model's answer. Only nodes, and what they wait for, are found: the graph's other work, such as writing a
checkpoint, is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

__all__ = ["are_nodes_running", "node_threads"]

_NODES = "langgraph.pregel._retry"  # the module whose `run_with_retry` runs a node
_FUTURES = "concurrent.futures._base"


def are_nodes_running(frames: Mapping[int, FrameType]) -> bool:
    """Whether any of these threads runs a node."""
    return _NODES in sys.modules and any(map(_runs_node, frames.values()))


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
        is_awaited = any(_runs(frame, future) for frame in _stack(top) for future in awaited)
        if is_awaited and (of_node or _runs_node(top)):
            yield thread, top
            yield from node_threads(frames, top, of_node=True)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _runs_node(top: FrameType) -> bool:
    return any(_is_in(frame, _NODES, "run_with_retry") for frame in _stack(top))


def _is_in(frame: FrameType, module: str, name: str) -> bool:
    return frame.f_code.co_name == name and frame.f_globals.get("__name__") == module


def _awaited_futures(top: FrameType | None) -> Iterator[Any]:
    for frame in _stack(top):
        if _is_in(frame, _FUTURES, "wait"):
            yield from [*frame.f_locals.get("fs", ())]
        elif _is_in(frame, _FUTURES, "result"):
            yield frame.f_locals.get("self")


def _runs(frame: FrameType, future: Any) -> bool:
    """Whether a frame is that of a pool's thread which computes this future."""
    if not _is_in(frame, "concurrent.futures.thread", "run"):
        return False
    return getattr(frame.f_locals.get("self"), "future", None) is future
