"""Streams and runs over HTTP.

It needs an extra, `pip install 'streamkit-sdk[server]'`: importing a name that uses it raises an `ImportError` without it.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .app import App, create_app
    from .records import Context, Run
    from .response import EventStreamResponse, JsonLinesResponse

__all__ = ["App", "Context", "EventStreamResponse", "JsonLinesResponse", "Run", "create_app"]

_PLACES = {
    "App": ".app",
    "Context": ".records",
    "EventStreamResponse": ".response",
    "JsonLinesResponse": ".response",
    "Run": ".records",
    "create_app": ".app",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES, extra="server")
