"""The shape of chunks of Vercel's UI message stream, which no other item has. It is checked before the decoder is
imported."""

from .wire import is_chunk as recognises

__all__ = ["recognises"]
