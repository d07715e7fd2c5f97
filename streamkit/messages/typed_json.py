"""Decoders and converters for typed structs, which are the only ones that the library makes.

msgspec learns the fields of a class when it first decodes one, and lets other threads use what it has learnt before it is
through (0.22): a thread that decodes the same class meanwhile ends the process with a segmentation fault. Here one thread at
a time has msgspec learn, before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from .message import JOINING

__all__ = ["converter", "decoder"]

_T = TypeVar("_T")


def decoder(
    kind: Any = Any, *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> msgspec.json.Decoder[Any]:  # noqa: TID251
    """Return a decoder of JSON text. The arguments are those of `msgspec.json.Decoder`."""
    with JOINING:  # which is free in a process that is forked
        return msgspec.json.Decoder(kind, strict=strict, dec_hook=dec_hook)  # noqa: TID251


def converter(kind: type[_T], *, dec_hook: Callable[[type, Any], Any] | None = None) -> Callable[[Any], _T]:
    """Return a function that converts parsed JSON, as `msgspec.convert` does. Do not make one for each value."""
    decoder(kind, dec_hook=dec_hook)
    if dec_hook is None:
        return lambda value: msgspec.convert(value, kind)  # noqa: TID251 - arguments with names take as long again
    return partial(msgspec.convert, type=kind, dec_hook=dec_hook)  # noqa: TID251
