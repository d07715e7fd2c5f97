"""The stack of a thread, as another thread or the same one sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import CodeType, FrameType

__all__ = ["is_call_of", "is_in_call_of", "stack_of"]


def stack_of(top: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a thread, from the innermost one on."""
    while top is not None:
        yield top
        top = top.f_back


def is_call_of(frame: FrameType, owner: object, methods: Collection[CodeType]) -> bool:
    """Whether a frame is a call of one of these methods of an object."""
    return frame.f_code in methods and frame.f_locals.get("self") is owner


def is_in_call_of(top: FrameType | None, owner: object, methods: Collection[CodeType]) -> bool:
    """Whether a thread is in such a call, through whatever functions."""
    return any(is_call_of(frame, owner, methods) for frame in stack_of(top))
