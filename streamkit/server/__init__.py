"""Streams and runs over HTTP.

It needs an extra, `pip install 'streamkit-sdk[server]'`: importing a name that uses it raises an `ImportError` without it.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .api_errors import request_error_response
    from .api_response import ApiResponse
    from .app import App, create_app
    from .endpoints import Endpoints
    from .records import Context, Run
    from .response import EventStreamResponse, JsonLinesResponse

__all__ = [
    "ApiResponse",
    "App",
    "Context",
    "Endpoints",
    "EventStreamResponse",
    "JsonLinesResponse",
    "Run",
    "create_app",
    "request_error_response",
]

_PLACES = {
    "ApiResponse": ".api_response",
    "App": ".app",
    "Context": ".records",
    "Endpoints": ".endpoints",
    "EventStreamResponse": ".response",
    "JsonLinesResponse": ".response",
    "Run": ".records",
    "create_app": ".app",
    "request_error_response": ".api_errors",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES, extra="server")
