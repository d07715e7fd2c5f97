"""What a chunk of Vercel's UI message stream looks like, and no other item: known before the decoder is imported."""

from .wire import is_chunk as recognises

__all__ = ["recognises"]
