"""The shape of AG-UI's events, which no other item has. It is checked before the decoder is imported."""

from .wire import is_event as recognises

__all__ = ["recognises"]
