"""Streams and runs over HTTP. It needs an extra: `pip install "streamkit-sdk[server]"`, which is imported where it is used."""

from ..lazy_names import lazy_names

__all__: list[str] = []

__getattr__, __dir__ = lazy_names(__name__, {})
