"""Counts the bytecode instructions that code executes: a measure of its work that no load of the machine changes."""

from __future__ import annotations

import collections
import gc
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Self

import streamkit

PACKAGE = os.path.dirname(streamkit.__file__) + os.sep


class Counter:
    """Counts what this thread executes inside `with`, in the calls that begin there; the block's own code is left out. The
    garbage collector does not run meanwhile: it would run the finalizers of what others have left.

    Attributes:
        opcodes: The instructions of Python code.
        calls: How often Python code was entered: by a call, or because a generator went on.
    """

    opcodes: int
    calls: int

    def __enter__(self) -> Self:
        opcodes = calls = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal opcodes, calls
            if event == "opcode":
                opcodes += 1
            elif frame.f_code is Counter.__exit__.__code__:
                return None
            elif event == "call":
                calls += 1
                frame.f_trace_opcodes = True
                frame.f_trace_lines = False
            return trace

        self._counted = lambda: (opcodes, calls)
        self._collects = gc.isenabled()
        gc.disable()
        self._before = sys.gettrace()
        sys.settrace(trace)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()
        self.opcodes, self.calls = self._counted()


def opcodes(function: Callable[..., object], *arguments: Any) -> int:
    """The instructions of Python code that a call executes in this thread."""
    with Counter() as counter:
        function(*arguments)
    return counter.opcodes


def growth(function: Callable[[int], object], size: int = 30) -> float:
    """How the work grows with the size: 2 if it is linear, 4 if it is quadratic. What it costs at any size is left out."""
    function(size)  # so that what is done only once is done
    small, middle, large = (opcodes(function, size * factor) for factor in (1, 2, 4))
    return (large - middle) / (middle - small)


def steep(function: Callable[[int], Callable[[], object]], size: int = 4) -> dict[str, tuple[int, int]]:
    """Which functions of streamkit work more than in proportion: by their names, the lines that they execute at the size and at
    five times the size. Quadratic work comes to 25 times as many. Each round of a loop is a line, also in a comprehension.

    Args:
        function: prepares the work for a size, and returns it.
    """
    function(size)()  # so that what is done only once is done
    small, large = _lines_by_function(function(size)), _lines_by_function(function(5 * size))
    return {name: (small[name], count) for name, count in large.items() if count > max(7 * small[name], 60)}


def _lines_by_function(function: Callable[[], object]) -> collections.Counter[str]:
    """The lines that a call executes in this thread, by the function of streamkit that they are of."""
    counts: collections.Counter[CodeType] = collections.Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return trace_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            counts[frame.f_code] += 1
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    by_name: collections.Counter[str] = collections.Counter()
    for code, count in counts.items():
        by_name[f"{code.co_filename.removeprefix(PACKAGE)}: {code.co_qualname}"] += count
    return by_name
