"""What a thread waits for, as another thread sees it in its frames: whether it may be stopped there."""

from __future__ import annotations

import dis
import socket
import sys
from collections.abc import Collection, Iterator
from types import CodeType, FrameType
from typing import Any, cast

__all__ = ["awaited_connection", "is_in_another_call"]


def awaited_connection(top: FrameType | None, owner: object, owners: Collection[CodeType]) -> socket.socket | None:
    """The connection that a thread reads or writes and may be stopped in; None if it does something else, or cleans up.

    Args:
        top: the thread's innermost frame.
        owner: what made the call that is to be stopped. Frames outside of that call are not looked at.
        owners: the code of its methods that make calls.
    """
    connection: socket.socket | None = None
    for frame in _frames(top):
        if frame.f_code in owners and frame.f_locals.get("self") is owner:
            break
        connection = connection or _connection_of(frame)
        if connection is not None and _cleans_up(frame):
            return None
    return connection


def is_in_another_call(top: FrameType | None, owner: object, owners: Collection[CodeType]) -> bool:
    """Whether another one's call was made inside the call that is to be stopped: it may take the stop for its own. Arguments
    as of `awaited_connection`."""
    calls = (frame.f_locals.get("self") for frame in _frames(top) if frame.f_code in owners)
    return next(calls, owner) is not owner


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _connection_of(frame: FrameType) -> socket.socket | None:
    """What the frame reads or writes."""
    code = frame.f_code
    if code.co_name not in ("read", "write", "readinto") or code.co_varnames[:1] != ("self",):
        return None
    stream: Any = frame.f_locals.get("self")
    found: Any = getattr(stream, "_sock", None) if isinstance(stream, socket.SocketIO) else _of_httpcore(stream)
    return found if isinstance(found, socket.socket) else None


def _of_httpcore(stream: Any) -> Any:
    # Look at the type: reading an attribute of a user's object could run any code.
    kind = type(cast("object", stream))
    if all(callable(getattr(kind, name, None)) for name in ("get_extra_info", "start_tls", "read")):
        return stream.get_extra_info("socket")
    return None


def _cleans_up(frame: FrameType) -> bool:
    """Whether a frame is in a `finally`, or is what leaves a `with`. What is done there is to be done in any case."""
    code, at = frame.f_code, frame.f_lasti
    if code.co_name == "__exit__":
        return True
    if sys.version_info >= (3, 14):
        return False  # the bytecode of `finally` was not looked at there
    instructions = [*dis.get_instructions(code)]
    present = max((one for one in instructions if one.offset <= at), key=lambda one: one.offset)  # its caches follow it
    return any(
        (one.opcode, one.positions) == (present.opcode, present.positions)
        for one in _finally_blocks(code, instructions)
    )


def _finally_blocks(code: CodeType, instructions: list[dis.Instruction]) -> Iterator[dis.Instruction]:
    """The instructions of all `finally` blocks of some code, as they are where an exception was raised. Where none was, copies
    of them are run, which have the same positions in the source text."""
    places = {one.offset: place for place, one in enumerate(instructions)}
    bytecode: Any = dis.Bytecode(code)  # Any: its type does not show the exception table
    entries: list[Any] = bytecode.exception_entries
    for start, end in {(entry.start, entry.target) for entry in entries}:
        block = instructions[places[start] + 1 : places[end]]
        if instructions[places[start]].opname == "PUSH_EXC_INFO" and _is_finally(block):
            yield from block


def _is_finally(block: list[dis.Instruction]) -> bool:
    """Whether the instructions that handle an exception are those of a `finally`, and not of an `except` or a `with`."""
    marks = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START", "PUSH_EXC_INFO")  # the last: of what it holds
    first_mark = next((one.opname for one in block if one.opname in marks), marks[-1])
    return first_mark == marks[-1] and block[0].opname != "POP_TOP"  # which a bare `except` begins with
