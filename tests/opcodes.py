"""Counts the bytecode instructions that a call executes: a measure of its work that no load of the machine changes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def opcodes(function: Callable[..., object], *arguments: Any) -> int:
    """The instructions of Python code that a call executes in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        elif event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return trace

    before = sys.gettrace()
    with _another_thread_wakes():
        sys.settrace(trace)
        try:
            function(*arguments)
        finally:
            sys.settrace(before)
    return count


@contextlib.contextmanager
def _another_thread_wakes() -> Iterator[None]:
    """While tracing, a thread that wants the interpreter now and then.

    In CPython 3.11 a thread that gives the interpreter up while another one asks for it can leave a request behind that
    nobody made. At the first instruction of a traced function the evaluation loop then handles that request again and again,
    until the next real one clears it: without another active thread, for ever.
    """
    over = threading.Event()

    def wake() -> None:
        while not over.wait(0.02):
            pass

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def growth(function: Callable[[int], object], size: int = 30) -> float:
    """How the work grows with the size: 2 if it is linear, 4 if it is quadratic. What it costs at any size is left out."""
    function(size)  # so that what is done only once is done
    small, middle, large = (opcodes(function, size * factor) for factor in (1, 2, 4))
    return (large - middle) / (middle - small)
