"""What an event of AG-UI looks like, and no other item: known before the decoder is imported."""

from .wire import is_event as recognises

__all__ = ["recognises"]
