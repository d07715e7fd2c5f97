"""Streams and runs over HTTP. It needs an extra: `pip install "streamkit-sdk[server]"`, which is imported where it is used."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .response import EventStreamResponse

__all__ = ["EventStreamResponse"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"EventStreamResponse": ".response"})
