"""What a thread does just now, as its stack shows: which calls it is in, and which connection it waits for, where it may be stopped.

Another thread looks at the stack, or the same one; `interrupt` says why only a wait for a connection is stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import dis
    import socket

__all__ = ["awaited_connection", "is_in_another_call", "is_in_call_of", "stack_of"]


def stack_of(top: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a thread, from the innermost one on."""
    while top is not None:
        yield top
        top = top.f_back


# -- calls


def is_in_call_of(top: FrameType | None, owner: object, methods: Collection[CodeType]) -> bool:
    """Whether a thread is in a call of one of these methods of an object, through whatever functions."""
    return any(_is_call_of(frame, owner, methods) for frame in stack_of(top))


def _is_call_of(frame: FrameType, owner: object, methods: Collection[CodeType]) -> bool:
    return frame.f_code in methods and frame.f_locals.get("self") is owner


def is_in_another_call(top: FrameType | None, owner: object, owners: Collection[CodeType]) -> bool:
    """Whether the call that is to be stopped has made a call of another `Interruptible`, which may take the stop as its own.
    The arguments are those of `awaited_connection`."""
    calls = (frame.f_locals.get("self") for frame in stack_of(top) if frame.f_code in owners)
    return next(calls, owner) is not owner


# -- connections


def awaited_connection(top: FrameType | None, owner: object, owners: Collection[CodeType]) -> socket.socket | None:
    """Return the connection that a thread reads or writes at this moment; None if it does something else, or cleans up.

    Args:
        top: the thread's innermost frame.
        owner: the `Interruptible` that made the call which is to be stopped. Frames outside of that call are ignored.
        owners: the code of its methods that make calls.
    """
    connection: socket.socket | None = None
    for frame in stack_of(top):
        if _is_call_of(frame, owner, owners):
            break
        connection = connection or _connection_of(frame)
        if connection is not None and _cleans_up(frame):
            return None
    return connection


def _connection_of(frame: FrameType) -> socket.socket | None:
    """Return the socket that a frame reads or writes; None if it does neither."""
    code = frame.f_code
    if code.co_name not in ("read", "write", "readinto") or code.co_varnames[:1] != ("self",):
        return None
    import socket  # few streams are stopped

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
    """Whether a frame is in a `finally`, or leaves a `with`: such code has to run to its end."""
    code, at = frame.f_code, frame.f_lasti
    if code.co_name == "__exit__":
        return True
    if sys.version_info >= (3, 14):
        return False  # this code does not know the bytecode of `finally` in later versions of Python
    import dis

    instructions = [*dis.get_instructions(code)]
    present = max((one for one in instructions if one.offset <= at), key=lambda one: one.offset)  # its caches follow it
    return any(
        (one.opcode, one.positions) == (present.opcode, present.positions)
        for one in _finally_blocks(code, instructions)
    )


def _finally_blocks(code: CodeType, instructions: list[dis.Instruction]) -> Iterator[dis.Instruction]:
    """Yield the instructions of all `finally` blocks of some code, for the case that an exception was raised. For the
    other case the compiler makes copies of them, which have the same positions in the source text."""
    import dis

    index_at = {one.offset: index for index, one in enumerate(instructions)}
    bytecode: Any = dis.Bytecode(code)  # Any: its type does not show the exception table
    entries: list[Any] = bytecode.exception_entries
    for start, end in {(entry.start, entry.target) for entry in entries}:
        block = instructions[index_at[start] + 1 : index_at[end]]
        if instructions[index_at[start]].opname == "PUSH_EXC_INFO" and _is_finally(block):
            yield from block


def _is_finally(block: list[dis.Instruction]) -> bool:
    """Whether the instructions that handle an exception are those of a `finally`, and not of an `except` or a `with`."""
    # The first of these tells. The last one belongs to a `try` inside of the block, so the block itself had none of the others.
    marks = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START", "PUSH_EXC_INFO")
    first_mark = next((one.opname for one in block if one.opname in marks), marks[-1])
    return first_mark == marks[-1] and block[0].opname != "POP_TOP"  # which a bare `except` begins with
